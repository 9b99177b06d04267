package scenarios

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A denial proves something only beside a request that is allowed and differs in one respect. What counts as one
// respect, so that it can be checked:
//
//   - the gate: requires.gate, where no target can meet both;
//   - the requestor, as it is defined;
//   - the impersonation headers;
//   - the request: everything else about it. What follows from the headers, a
//     field selector on the impersonated node for example, does not count;
//   - the authorizer chain, and what its webhook answers;
//   - the permissions: what grants and bindings allow the requestor at that
//     step. The impersonated user's count only where it is the request that is
//     forbidden, and none where the request is bad: they decide nothing there.
//
// Versions are a respect only if nothing else differs: they often follow from expected texts. Earlier steps do not count.

// findRespects returns the respects in which a denied request differs from a twin's allowed one.
func findRespects(s *Scenario, denied int, t *Scenario, allowed int) (out []string) {
	r, a := s.Steps[denied].Sent(), t.Steps[allowed].Sent()
	compare := func(respect string, isEqual bool) {
		if !isEqual {
			out = append(out, respect)
		}
	}
	compare("gate", s.Requires.Gate == t.Requires.Gate || s.Requires.Gate == GateAny || t.Requires.Gate == GateAny)
	compare("feature gates", maps.Equal(s.Requires.FeatureGates, t.Requires.FeatureGates))
	compare("requestor", reflect.DeepEqual(s.Credentials(r), t.Credentials(a)))
	compare("authorizer chain", s.Requires.Chain == t.Requires.Chain && slices.EqualFunc(s.Policy, t.Policy, func(x, y PolicyRule) bool {
		return x.Answer == y.Answer && reflect.DeepEqual(x.For, y.For)
	}))
	compare("impersonation headers", haveSameHeaders(r, a))
	compare("request", areSameRequest(r, a))
	outcome := s.Steps[denied].outcome()
	decidesUser := outcome == RequestForbidden && r.WantedUser() != "" && a.WantedUser() != ""
	compare(
		"permissions",
		outcome == BadRequest || slices.Equal(s.permissionsAt(denied, decidesUser), t.permissionsAt(allowed, decidesUser)),
	)
	areSameVersions := s.Requires.Kubernetes == t.Requires.Kubernetes && s.Requires.Binary == t.Requires.Binary
	if len(out) == 0 && !areSameVersions {
		out = append(out, "versions")
	}
	return out
}

// haveSameHeaders reports whether two requests have the same impersonation headers.
func haveSameHeaders(r, a *Request) bool {
	return reflect.DeepEqual(r.Impersonate, a.Impersonate) && reflect.DeepEqual(r.Headers, a.Headers)
}

// areSameRequest reports whether two requests are the same, apart from requestor and headers. If the headers differ, it
// also ignores what follows from them.
func areSameRequest(r, a *Request) bool {
	if reflect.DeepEqual(dropHeaders(r), dropHeaders(a)) {
		return true
	}
	return !haveSameHeaders(r, a) && reflect.DeepEqual(dropNames(r), dropNames(a))
}

// dropHeaders returns a request without requestor and headers. A version that is left out becomes v1.
func dropHeaders(r *Request) Request {
	out := *r
	out.By, out.With, out.Impersonate, out.Headers = "", nil, nil, nil
	if out.Version == "" && out.Path == "" {
		out.Version = "v1"
	}
	return out
}

// dropNames returns a request without requestor and headers, and without the names of the impersonated user.
func dropNames(r *Request) Request {
	if r.Impersonate == nil {
		return dropHeaders(r)
	}
	f := &nameFinder{}
	f.user(r.Impersonate.User)
	names := map[string]string{}
	for _, n := range f.found {
		names[n.name] = "impersonated-" + string(n.kind)
	}
	out := copyRenamed(&binder{text: newRenamer(names)}, dropHeaders(r))
	if out.FieldSelector != r.FieldSelector {
		out.FieldSelector = "" // it selects what belongs to the impersonated node
	}
	return out
}

// permissionsAt returns what the requestor of a step may do before that step, and also what the impersonated user may
// do, if asked for. They are single permissions, sorted and without their subject, so that it does not matter how they
// are written.
func (s *Scenario) permissionsAt(step int, impersonated bool) []string {
	grants := append(RulesFromManifests(slices.Concat(s.Manifests, s.Objects)), s.GrantsAt(step)...)
	r := s.Steps[step].Sent()
	requestor := s.Requestors[r.By]
	set := map[string]bool{}
	addPermissions(set, "requestor", grants, requestor.Username(), requestor.Groups)
	if impersonated {
		var groups []string
		if r.Impersonate != nil {
			groups = r.Impersonate.Groups
		}
		addPermissions(set, "impersonated", grants, r.WantedUser(), groups)
	}
	return slices.Sorted(maps.Keys(set))
}

func addPermissions(set map[string]bool, who string, grants []Grant, name string, groups []string) {
	everybody := user.AllAuthenticated
	if name == user.Anonymous {
		everybody = user.AllUnauthenticated
	}
	groups = append([]string{everybody}, groups...)
	if ns, _, ok := SplitServiceAccount(name); ok {
		groups = append(groups, serviceaccount.MakeGroupNames(ns)...)
	}
	for _, g := range grants {
		if !g.Subject.Is(name, groups) {
			continue
		}
		for _, part := range g.Parts() {
			set[fmt.Sprintf("%s %q %q %q %q %q %q", who, g.Namespace, part.Verbs, part.NonResourceURLs, part.APIGroups, part.Resources, part.Names)] = true
		}
	}
}

// GrantedAt reports whether a grant is in force before a step. A grant without an ID always is.
func (s *Scenario) GrantedAt(id string, step int) bool {
	if id == "" {
		return true
	}
	isInForce := s.InForceAtStart(id)
	for _, st := range s.Steps[:step] {
		switch id {
		case st.Grant:
			isInForce = true
		case st.Revoke:
			isInForce = false
		}
	}
	return isInForce
}

// requestSteps returns the steps that send a request with one of the outcomes.
func (s *Scenario) requestSteps(outcomes ...Outcome) (out []int) {
	for i, st := range s.Steps {
		if st.Sent() != nil && slices.Contains(outcomes, st.outcome()) {
			out = append(out, i)
		}
	}
	return out
}

// unpaired returns the requests with one of the outcomes that no other step of the scenario repeats.
func (s *Scenario) unpaired(outcomes ...Outcome) []int {
	allowed := s.requestSteps(Allowed)
	return slices.DeleteFunc(s.requestSteps(outcomes...), func(d int) bool {
		return slices.ContainsFunc(allowed, func(a int) bool {
			return reflect.DeepEqual(s.Steps[a].Sent(), s.Steps[d].Sent())
		})
	})
}

// checkTwin applies the rules about twins when all scenarios are known. broken are the scenarios that did not decode.
func checkTwin(f *loadedFile, set *Set, broken map[string]bool) {
	s, src := f.scenario, f.source
	if !f.readable || src.failedAt(at("twin")) {
		return
	}
	if s.Twin == "" {
		for _, step := range s.unpaired(denials...) {
			src.failAt(
				at("steps", step, "expect", "outcome"),
				"the request is denied and the scenario has no twin (expected the ID of a scenario that differs in one respect and is allowed, or the same request allowed in another step)",
			)
		}
		return
	}
	twin, exists := set.Get(s.Twin)
	path := at("twin")
	switch {
	case len(s.requestSteps(refusals...)) == 0 && !src.failedAt(at("steps")):
		src.failAt(path, "a twin is given, and no request is refused (expected a twin for refusals only)")
	case s.Twin == s.ID:
		src.failAt(path, "the scenario is its own twin (expected another, or the same request allowed in another step and no twin)")
	case !exists:
		src.failAt(path, "twin %q does not exist (expected the ID of a scenario)", s.Twin)
	case broken[s.Twin]:
		// The twin's own errors are reported. A comparison with a half-decoded twin would mislead.
	case len(twin.requestSteps(Allowed)) == 0:
		src.failAt(path, "twin %q has no allowed request (expected one)", s.Twin)
	case !src.failedAt(nil):
		for _, step := range s.unpaired(refusals...) {
			compareTwin(src, s, step, twin)
		}
	}
}

// compareTwin checks that one of the twin's allowed requests differs from the denied one in exactly one respect.
func compareTwin(src *source, s *Scenario, denied int, twin *Scenario) {
	var nearest []string
	for i, allowed := range twin.requestSteps(Allowed) {
		diff := findRespects(s, denied, twin, allowed)
		if len(diff) == 1 {
			return
		}
		isNearer := len(diff) < len(nearest)
		if i == 0 || isNearer {
			nearest = diff
		}
	}
	path := at("steps", denied, "request")
	if len(nearest) == 0 {
		src.failAt(path, "twin %q is the same in every respect and allowed (expected it to differ in one)", twin.ID)
		return
	}
	src.failAt(
		path,
		"twin %q differs in %d respects: %s (expected an allowed request that differs in one)",
		twin.ID,
		len(nearest),
		strings.Join(nearest, ", "),
	)
}
