package oracle

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// Played is one request of a scenario with what the model predicts for it.
type Played struct {
	// Step is the index of the step, from 0.
	Step int
	// Expect is what the scenario states; nil if nothing.
	Expect *scenarios.Expect
	// Prediction is what the model says.
	Prediction Prediction
}

// Play runs a scenario, bound or not, on a server of its own: waits, grants and revocations included. f says which
// server, its capabilities do not matter; fixtures is where authorizer chains are described.
func Play(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS) ([]Played, error) {
	server, err := ServerFor(s, f, fixtures)
	if err != nil {
		return nil, err
	}
	return play(s, server, func(*Server) {}, fixtures)
}

// play runs the steps; before is called before each request.
func play(s *scenarios.Scenario, server *Server, before func(*Server), fixtures fs.FS) (out []Played, err error) {
	for i, st := range s.Steps {
		sent, err := exchanges(s.ID, i, st)
		if err != nil {
			return nil, err
		}
		if len(sent) == 0 {
			if _, err := server.pass(s, st, fixtures); err != nil {
				return nil, err
			}
		}
		for _, x := range sent {
			before(server)
			p := server.Receive(x.by, s.Requestors[x.by], x.imp, x.request)
			out = append(out, Played{i, x.expect, p})
		}
	}
	return out, nil
}

type exchange struct {
	by      string // alias of the requestor
	imp     *scenarios.Impersonate
	request Request
	expect  *scenarios.Expect
}

// exchanges are the requests that a step sends: one, those that a client is expected to make, or none.
func exchanges(id string, i int, st scenarios.Step) ([]exchange, error) {
	switch {
	case st.Beside: // who of several is first is open
		answer := *st.Expect
		answer.Reviews, answer.Metrics = nil, nil
		return []exchange{{st.Request.By, st.Request.Impersonate, RequestOf(st.Request), &answer}}, nil
	case st.Request != nil:
		return []exchange{{st.Request.By, st.Request.Impersonate, RequestOf(st.Request), st.Expect}}, nil
	case st.Kubectl != nil && st.ExpectClient != nil:
		var out []exchange
		for _, r := range st.ExpectClient.Requests {
			u, err := url.Parse(r.Path)
			if err != nil {
				return nil, fmt.Errorf("%s: step %d: %w", id, i, err)
			}
			request := Request{Attributes: ParseRequest(r.Method, u)}
			out = append(out, exchange{st.Kubectl.By, st.Kubectl.Impersonate(), request, &r.Expect})
		}
		return out, nil
	case st.Wait > 0 || st.Grant != "" || st.Revoke != "" || st.Reload != "":
		return nil, nil
	}
	return nil, fmt.Errorf("%s: step %d is of a kind that the model does not know", id, i)
}

func (s *Server) pass(sc *scenarios.Scenario, st scenarios.Step, fixtures fs.FS) (words string, err error) {
	grants := func(id string) []scenarios.Grant {
		return slices.DeleteFunc(slices.Clone(sc.Grants), func(g scenarios.Grant) bool { return g.ID != id })
	}
	switch {
	case st.Wait > 0:
		s.Advance(time.Duration(st.Wait))
		return time.Duration(st.Wait).String() + " pass.", nil
	case st.Grant != "":
		s.Grant(grants(st.Grant)...)
		return "The grant " + st.Grant + " comes into force.", nil
	case st.Revoke != "":
		s.Revoke(grants(st.Revoke)...)
		return "The grant " + st.Revoke + " is revoked.", nil
	}
	if st.Reload != "" {
		return "The authorizer chain " + st.Reload + " takes the place of the other.", s.chainFrom(st.Reload, sc.Policy, fixtures)
	}
	return "Nothing was sent.", nil
}

// ServerFor is a server as it is before the first step of a scenario.
func ServerFor(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS) (*Server, error) {
	c := Config{Kubernetes: f.Kubernetes, Binary: f.Binary, Gate: f.Gate, Objects: slices.Concat(s.Manifests, s.Objects), Grants: s.GrantsAt(0)}
	for _, alias := range slices.Sorted(maps.Keys(s.Requestors)) {
		if sa := s.Requestors[alias].ServiceAccount; sa != nil && sa.Pod != "" {
			c.Objects = append(c.Objects, map[string]any{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{"namespace": sa.Namespace, "name": sa.Pod},
				"spec":     map[string]any{"nodeName": sa.Node, "serviceAccountName": sa.Name},
			})
		}
	}
	server, err := New(c)
	if err != nil || s.Requires.Chain == "" {
		return server, err
	}
	return server, server.chainFrom(s.Requires.Chain, s.Policy, fixtures)
}

func (s *Server) chainFrom(name string, rules []scenarios.PolicyRule, fixtures fs.FS) error {
	file, err := fs.ReadFile(fixtures, "chains/"+name+".yaml")
	if err != nil {
		return err
	}
	if err := s.Chain(file, rules); err != nil {
		return fmt.Errorf("chain %s: %w", name, err)
	}
	return nil
}
