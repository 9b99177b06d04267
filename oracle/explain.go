package oracle

import (
	_ "embed" // the words
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Need is what a mode lacks to succeed.
type Need struct {
	Mode Mode // empty for the permission of the resulting user to make the request
	// Refused says why the mode cannot succeed whatever is granted.
	Refused string
	Grants  []scenarios.Grant // what is missing, as narrow as the checks are
}

// Missing returns what would have to be granted, mode by mode, so that the requestor may impersonate. Modes that do
// not apply are left out. It changes nothing in the server, and looks at no cache.
func (s *Server) Missing(requestor scenarios.User, imp *scenarios.Impersonate, r Request) (needs []Need) {
	requestedUser, isSent := wantedUser(imp, r.Headers)
	if !isSent || requestedUser.Name == "" {
		return nil
	}
	if !s.isGateOn() {
		return []Need{s.need(Legacy, gateOffIdentity(requestor).stages(requestedUser))}
	}
	for _, mode := range Modes() {
		if notApplicable(mode, requestedUser, requestor) != "" {
			continue
		}
		if mode == Legacy {
			needs = append(needs, s.need(mode, legacyIdentity(requestor).stages(requestedUser)))
			continue
		}
		user, action := requestor, r.Attributes
		if mode == AssociatedNode {
			user = asAssociated(requestor)
		}
		action.Verb = "impersonate-on:" + string(mode) + ":" + action.Verb
		first := stage{runs: [][]question{{{mode, user, action}}}}
		needs = append(needs, s.need(mode, append([]stage{first}, constrainedIdentity(mode, user).stages(requestedUser)...)))
	}
	return needs
}

// need asks all that stages can ask, further than a server would.
func (s *Server) need(mode Mode, stages []stage) Need {
	k, n := asker{Server: s, plain: !s.isGateOn()}, Need{Mode: mode}
	for _, st := range stages {
		if len(st.refusals) > 0 {
			n.Refused = st.refusals[0]
			return n
		}
		if st.all != nil && k.ask(*st.all).Allowed() {
			continue
		}
		for _, q := range slices.Concat(st.runs...) {
			if r := k.ask(q); !r.Allowed() {
				n.add(grantFor(r.Spec))
			}
		}
	}
	return n
}

// add joins grants that differ in the name alone.
func (n *Need) add(g scenarios.Grant) {
	for i, h := range n.Grants {
		haveNames := len(g.Names) > 0 && len(h.Names) > 0
		if haveNames && differInName(g, h) {
			n.Grants[i].Names = slices.Compact(append(h.Names, g.Names...))
			return
		}
	}
	n.Grants = append(n.Grants, g)
}

// differInName reports whether two grants differ in nothing but the names of objects.
func differInName(g, h scenarios.Grant) bool {
	return h.Namespace == g.Namespace && slices.Equal(h.Verbs, g.Verbs) && slices.Equal(h.APIGroups, g.APIGroups) &&
		slices.Equal(h.Resources, g.Resources)
}

// grantFor returns the narrowest grant that allows a review. The name * of the mode associated-node stands for every node.
func grantFor(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Grant {
	g := scenarios.Grant{Subject: scenarios.Subject{User: spec.User}}
	if n := spec.NonResourceAttributes; n != nil {
		g.Verbs, g.NonResourceURLs = []string{n.Verb}, []string{n.Path}
		return g
	}
	a := spec.ResourceAttributes
	g.Verbs = []string{a.Verb}
	g.APIGroups = []string{a.Group}
	g.Resources = []string{scenarios.FullResource(a.Resource, a.Subresource)}
	g.Namespace = a.Namespace
	if a.Name != "" && a.Name != "*" {
		g.Names = []string{a.Name}
	}
	return g
}

// NearMiss is a grant that would allow a review if one respect were different.
type NearMiss struct{ Grant, Differs string }

// String returns the near miss for people.
func (n NearMiss) String() string { return n.Grant + ": " + n.Differs }

// NearMisses returns the grants that would allow a review if one respect were different: what is usually wrong.
func (s *Server) NearMisses(spec authorizationv1.SubjectAccessReviewSpec) (out []NearMiss) {
	a := spec.ResourceAttributes
	if a == nil {
		return nil
	}
	for _, g := range slices.Concat(s.policy.grants, s.grants) {
		if len(g.Resources) == 0 || g.Covers(spec) {
			continue
		}
		tries := []struct {
			change  func(*scenarios.Grant)
			differs string
		}{
			{
				func(g *scenarios.Grant) { g.APIGroups = []string{"*"} },
				fmt.Sprintf("its API group is %q, the check is about %q", strings.Join(g.APIGroups, ", "), a.Group),
			},
			{func(g *scenarios.Grant) { g.Namespace = "" }, fmt.Sprintf("it holds in namespace %q only, the check is %s", g.Namespace, scope(a))},
			{func(g *scenarios.Grant) { g.Names = nil }, namesWhy(g, a)},
			{func(g *scenarios.Grant) { g.Resources = []string{"*"} }, fmt.Sprintf("its resource is %q, the check is about %q", strings.Join(g.Resources, ", "), scenarios.FullResource(a.Resource, a.Subresource))},
			{func(g *scenarios.Grant) { g.Verbs = []string{"*"} }, fmt.Sprintf("its verb is %q, the check is about %q", strings.Join(g.Verbs, ", "), a.Verb)},
		}
		// A rule about something else is not a near miss: of verbs only those of impersonation are alike.
		if !slices.ContainsFunc(g.Verbs, func(v string) bool { return strings.HasPrefix(v, "impersonate") }) {
			tries = tries[:len(tries)-1]
		}
		for _, try := range tries {
			changed := g
			try.change(&changed)
			if changed.Covers(spec) {
				out = append(out, NearMiss{describeGrant(g), try.differs})
				break
			}
		}
	}
	return out
}

func scope(a *authorizationv1.ResourceAttributes) string {
	if a.Namespace == "" {
		return "cluster-wide"
	}
	return fmt.Sprintf("in namespace %q", a.Namespace)
}

func namesWhy(g scenarios.Grant, a *authorizationv1.ResourceAttributes) string {
	names := strings.Join(g.Names, ", ")
	switch a.Name {
	case "":
		return fmt.Sprintf("it is for the name %q only, and this check carries no name", names)
	case "*":
		return fmt.Sprintf("it is for the name %q only, and this check carries the name \"*\" for all of them", names)
	}
	return fmt.Sprintf("it is for the name %q only, not for %q", names, a.Name)
}

// Dangling returns the bindings among the objects to roles that are not among them and not built in.
func (s *Server) Dangling() []string {
	return sets.List(sets.New(seq.Map(s.policy.dangling, func(r scenarios.BoundRule) string {
		return fmt.Sprintf(
			"%s is bound to %s %q, which is not there",
			nameSubject(r.Subject),
			scenarios.Text(r.Binding, "roleRef", "kind"),
			scenarios.Text(r.Binding, "roleRef", "name"),
		)
	})...))
}

//go:embed explain.tmpl
var explainText string

// Explain says, for a person with a 403 on the screen, what a server was asked, in order, what it answered and
// why, and what was missing. It is called with the prediction that the server made of the request.
func (s *Server) Explain(p Prediction, imp *scenarios.Impersonate, r Request) string {
	var needs []Need
	switch p.Outcome {
	case scenarios.ImpersonationForbidden:
		needs = s.Missing(p.Requestor, imp, r)
	case scenarios.RequestForbidden:
		needs = []Need{s.need("", []stage{{runs: [][]question{{{"", subject(p), r.Attributes}}}}})} // of the request itself
	}
	questions := 0
	words := template.Must(template.New("").Funcs(template.FuncMap{
		"rest": rest, "describe": Describe, "object": object, "near": s.NearMisses, "subject": subject,
		"extra": scenarios.RenderExtra, "join": strings.Join, "replace": strings.ReplaceAll,
		"quoted": func(list []string) string { return strings.Join(seq.Map(list, strconv.Quote), ", ") },
		"next":   func() int { questions++; return questions },
	}).Parse(explainText))
	var out strings.Builder
	if err := words.ExecuteTemplate(&out, "explanation", map[string]any{"Prediction": p, "Request": r, "Needs": needs}); err != nil {
		panic(fmt.Sprintf("explain.tmpl: %v", err)) // it is compiled in
	}
	return out.String()
}

// ExplainScenario explains the requests of a scenario, one after the other, on a server as ServerFor makes it.
func ExplainScenario(s *scenarios.Scenario, server *Server, fixtures fs.FS) (text string, _ error) {
	for i, st := range s.Steps {
		list, err := exchanges(s, i, st)
		if err != nil {
			return "", err
		}
		words := ""
		if len(list) == 0 {
			if words, err = server.passStep(s, st, fixtures); err != nil {
				return "", err
			}
		}
		for _, x := range list {
			words += server.Explain(server.Receive(x.by, s.Requestors[x.by], x.imp, x.request), x.imp, x.request)
		}
		text += fmt.Sprintf("Step %d. %s\n", i, words)
	}
	return text, nil
}

// object returns what is asked about, in words: pods in namespace shop.
func object(group, resource, subresource, namespace, name string) string {
	text := scenarios.FullResource(resource, subresource)
	if group != "" {
		text += "." + group
	}
	if name != "" {
		text += fmt.Sprintf(" %q", name)
	}
	if namespace != "" {
		text += " in namespace " + namespace
	}
	return text
}

func rest(p Prediction) []Segment {
	return slices.DeleteFunc(slices.Clone(p.Segments), func(g Segment) bool {
		return len(g.Runs) != 1 || len(g.Runs[0]) == 0 || g.Runs[0][0].Mode != ""
	})
}

func subject(p Prediction) scenarios.User {
	if p.User != nil {
		return *p.User
	}
	return p.Requestor
}

// PredictedRequest is one request of a scenario with what the model predicts for it.
type PredictedRequest struct {
	Step       int               // the index of the step, from 0
	Expect     *scenarios.Expect // what the scenario states; nil if nothing
	Prediction Prediction        // what the model says
}

// Play runs a scenario, bound or not, on a server of its own: waits, grants and revocations included. f says which
// server, its capabilities do not matter; fixtures is where authorizer chains are described.
func Play(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS) ([]PredictedRequest, error) {
	server, err := ServerFor(s, f, fixtures)
	if err != nil {
		return nil, err
	}
	return playSteps(s, server, func(*Server) {}, fixtures)
}

// Span is when a request was sent and when it was answered, from some moment on.
type Span struct{ Sent, Answered time.Duration }

// PlayAt does what Play does for requests with these times, whatever the waits say. sureSteps is how many of the
// predictions hold wherever within a request the server looked at what it remembers: up to one that may just, or just
// not, have come too late.
func PlayAt(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS, times []Span) (out []PredictedRequest, sureSteps int, err error) {
	var bounds [2][]PredictedRequest
	for i := range bounds {
		server, err := ServerFor(s, f, fixtures)
		if err != nil {
			return nil, 0, err
		}
		rest := times
		bounds[i], err = playSteps(s, server, func(server *Server) {
			server.Advance(rest[0].Sent - server.memory.now)
			server.Takes(rest[0].Answered-rest[0].Sent, i == 1)
			rest = rest[1:]
		}, fixtures)
		if err != nil {
			return nil, 0, err
		}
	}
	for sureSteps < len(times) && reflect.DeepEqual(bounds[0][sureSteps].Prediction.Expect(), bounds[1][sureSteps].Prediction.Expect()) {
		sureSteps++
	}
	return bounds[0], sureSteps, nil
}

func playSteps(s *scenarios.Scenario, server *Server, before func(*Server), fixtures fs.FS) (out []PredictedRequest, err error) {
	for i, st := range s.Steps {
		list, err := exchanges(s, i, st)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			if _, err := server.passStep(s, st, fixtures); err != nil {
				return nil, err
			}
		}
		for _, x := range list {
			before(server)
			out = append(out, PredictedRequest{i, x.expect, server.Receive(x.by, s.Requestors[x.by], x.imp, x.request)})
		}
	}
	return out, nil
}

type exchange struct {
	by      string // alias of the requestor whom the server chooses
	imp     *scenarios.Impersonate
	request Request
	expect  *scenarios.Expect
}

// exchanges returns the requests that a step sends: one, those that a client is expected to make, or none.
func exchanges(s *scenarios.Scenario, i int, st scenarios.Step) ([]exchange, error) {
	switch {
	case st.Beside: // who of several is first is open
		answer := *st.Expect
		answer.Reviews, answer.Metrics = nil, nil
		return []exchange{{chooseRequestor(s, st.Request), st.Request.Impersonate, RequestOf(st.Request), &answer}}, nil
	case st.Request != nil:
		return []exchange{{chooseRequestor(s, st.Request), st.Request.Impersonate, RequestOf(st.Request), st.Expect}}, nil
	case st.Kubectl != nil && st.ExpectClient != nil:
		var out []exchange
		for _, r := range st.ExpectClient.Requests {
			u, err := url.Parse(r.Path)
			if err != nil {
				return nil, fmt.Errorf("%s: step %d: %w", s.ID, i, err)
			}
			request := Request{Attributes: ParseRequest(r.Method, u)}
			out = append(out, exchange{st.Kubectl.By, st.Kubectl.Impersonate(), request, &r.Expect})
		}
		return out, nil
	case st.Wait > 0, st.Grant != "", st.Revoke != "", st.Reload != "":
		return nil, nil
	}
	return nil, fmt.Errorf("%s: step %d is of a kind that the model does not know", s.ID, i)
}

func (s *Server) passStep(sc *scenarios.Scenario, st scenarios.Step, fixtures fs.FS) (words string, err error) {
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

// ServerFor returns a server as it is before the first step of a scenario.
func ServerFor(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS) (*Server, error) {
	c := Config{
		Kubernetes: f.Kubernetes,
		Binary:     f.Binary,
		Gate:       f.Gate,
		Objects:    slices.Concat(s.Manifests, s.Objects),
		Grants:     s.GrantsAt(0),
	}
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
