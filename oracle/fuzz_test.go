package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// FuzzInvariants lets a seed choose grants and requests, and holds what must be
// true of all of them.
func FuzzInvariants(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, on bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		gate := scenarios.GateOff
		if on {
			gate = scenarios.GateOn
		}
		s := server(t, gate, randomGrants(r)...)
		for range 8 {
			imp, request, who := randomWanted(r), []Request{listPods, getPods}[r.IntN(2)], []scenarios.User{alice, agent}[r.IntN(2)]
			p := s.Do(who, imp, request)
			holdInvariants(t, s, p, imp)
			warm := s.Do(who, imp, request)
			if warm.Outcome != p.Outcome ||
				!slices.Equal(warm.Messages, p.Messages) && !on {
				t.Errorf("the same request again: %s %q, before %s %q", warm.Outcome, warm.Messages, p.Outcome, p.Messages)
			}
			if _, n := warm.ImpersonationChecks(); warm.Mode != "" && warm.Mode != Legacy && n != 0 {
				t.Errorf("a warm request costs %d checks in mode %s", n, warm.Mode)
			}
			s.Advance(time.Duration(r.IntN(6000)) * time.Millisecond)
		}
	})
}

func holdInvariants(t *testing.T, s *Server, p Prediction, imp *scenarios.Impersonate) {
	t.Helper()
	least, _ := p.ImpersonationChecks()
	if p.Outcome == scenarios.ImpersonationForbidden && s.isGateOn() && least < 1 {
		t.Errorf("a denial of %+v after %d checks", imp, least)
	}
	if p.Outcome == scenarios.ImpersonationForbidden && s.isGateOn() &&
		onlyName(scenarios.User{UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra}) &&
		least < 2 {
		t.Errorf("a denial of the name %q after %d checks", imp.User, least)
	}
	if (p.User == nil) == (p.Outcome == scenarios.Allowed || p.Outcome == scenarios.RequestForbidden) {
		t.Errorf("%s with user %v", p.Outcome, p.User)
	}
	if p.Code == 403 && len(p.Messages) == 0 {
		t.Errorf("no message: %+v", p)
	}
	all, _ := p.Sequences()
	for _, seq := range all {
		for _, r := range seq {
			if verb := Describe(r).Verb; !s.isGateOn() && strings.Contains(verb, ":") {
				t.Errorf("gate off: %s", verb)
			}
			if r.Mode != "" && r.By != scenarios.ByRequestor {
				t.Errorf("an impersonation check asks about %s", r.Spec.User)
			}
		}
		for i, r := range seq[:max(0, len(seq)-1)] {
			if r.By == scenarios.ByImpersonated {
				t.Errorf("review %d of %d is the final one", i, len(seq))
			}
		}
	}
	if p.User != nil && p.Mode != Legacy && slices.Contains(p.User.Groups, mastersGroup) {
		t.Errorf("mode %s made a member of system:masters", p.Mode)
	}
	if diffs := p.Compare(p.Expect()); len(diffs) > 0 {
		t.Errorf("the prediction does not meet its own expectation: %+v", diffs)
	}
}

func randomGrants(r *rand.Rand) (out []scenarios.Grant) {
	for _, user := range []string{"alice", agent.Name} {
		for _, mode := range Modes() {
			identity, action := "impersonate:"+string(mode), "impersonate-on:"+string(mode)+":"
			groups := []string{authenticationGroup}
			if mode == Legacy {
				identity, groups = "impersonate", []string{"", authenticationGroup}
			}
			for _, resource := range []string{"nodes", "serviceaccounts", "users", "uids", "groups", "userextras/*", "userextras/a.com/a"} {
				if r.IntN(2) == 0 {
					out = append(out,
						scenarios.Grant{
							Subject:   scenarios.Subject{User: user},
							Verbs:     []string{identity},
							APIGroups: groups,
							Resources: []string{resource},
						},
					)
				}
			}
			for _, verb := range []string{"list", "get"} {
				if mode != Legacy && r.IntN(3) > 0 {
					out = append(out, grant(user, action+verb, "", "pods"))
				}
			}
		}
	}
	return out
}

func randomWanted(r *rand.Rand) *scenarios.Impersonate {
	names := []string{
		"bob",
		"system:node:node1",
		"system:node:node2",
		"system:serviceaccount:shop:app",
		"system:node:Bad_Name",
		"system:serviceaccount:x",
		anonymousUser,
	}
	imp := &scenarios.Impersonate{User: names[r.IntN(len(names))]}
	if r.IntN(4) == 0 {
		imp.UID = "uid"
	}
	groups := []string{"developers", mastersGroup, "", unauthenticatedGroup, authenticatedGroup}
	for n := r.IntN(6); n > 0 && r.IntN(2) == 0; n-- {
		imp.Groups = append(imp.Groups, groups[r.IntN(len(groups))])
	}
	if r.IntN(3) == 0 {
		imp.Extra = map[string][]string{"a.com/a": {"1", "2"}}
		for i := range r.IntN(4) {
			imp.Extra[fmt.Sprintf("b.com/b%d", i)] = []string{"1"}
		}
		if r.IntN(4) == 0 {
			imp.Extra["scopes"] = []string{"view"}
		}
	}
	return imp
}
