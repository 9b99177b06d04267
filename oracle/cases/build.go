package cases

import (
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// The names in cases. Each becomes unique when a scenario is bound; none is part of a word that Kubernetes itself
// uses.
const (
	callerName  = "caller"
	teamName    = "backend"
	callerPlace = "shop"  // namespace of the requestor's account
	place       = "depot" // namespace of requests
	elsewhere   = "attic"
	thing       = "thing"
	nodeUser    = "system:node:"
	accountUser = serviceaccount.ServiceAccountUsernamePrefix
	mastersName = user.SystemPrivilegedGroup
)

// builder makes one scenario.
type builder struct {
	Choice
	rng *rand.Rand
	s   *scenarios.Scenario
	// subject is who is granted what the requestor may do.
	subject scenarios.Subject
}

func build(choice Choice, rng *rand.Rand) *scenarios.Scenario {
	b := &builder{Choice: choice, rng: rng, s: &scenarios.Scenario{
		Source:     scenarios.Source{Document: "kubernetes", Section: "k8s.io/apiserver/pkg/endpoints/filters/impersonation"},
		Level:      scenarios.Extended,
		Requires:   scenarios.Requires{Gate: scenarios.GateAny},
		Requestors: map[string]scenarios.Requestor{},
	}}
	b.subject = scenarios.Subject{User: b.requestor("requestor", "worker").User}
	if b.is(requestor, "group-member") {
		b.subject = scenarios.Subject{Group: teamName}
	}
	steps := b.steps()
	b.grants(steps)
	b.s.Steps = b.changed(steps)
	b.s.Grants = slices.DeleteFunc(b.s.Grants, func(g scenarios.Grant) bool { return g.Subject == scenarios.Subject{} })
	prune(b.s)
	return b.s
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// requestor adds one under an alias; node is the one it is on, if it is.
func (b *builder) requestor(alias, node string) scenarios.Requestor {
	r := scenarios.Requestor{User: callerName}
	on := func(nodes ...string) { r.Extra = map[string][]string{serviceaccount.NodeNameKey: nodes} }
	if b.is(requestor, "account", "account-on-node", "account-on-other-node", "account-on-two-nodes", "account-in-pod") {
		r.User = accountUser + callerPlace + ":" + callerName
		if b.rng.IntN(2) == 0 {
			r.Groups = serviceaccount.MakeGroupNames(callerPlace)
		}
	}
	switch b.level(requestor) {
	case "group-member":
		r.Groups = []string{teamName}
	case "user-on-node", "account-on-node":
		on(node)
	case "account-on-other-node":
		on("remote")
	case "account-on-two-nodes":
		on(node, "remote")
	case "account-in-pod":
		on(node)
		r.UID = "b6e1f0c2"
		r.Extra[serviceaccount.PodNameKey] = []string{"pod-" + alias}
		r.Extra[user.CredentialIDKey] = []string{"JTI=" + alias}
	}
	b.s.Requestors[alias] = r
	return r
}

// name is the wanted user, or another one of the same kind.
func (b *builder) name(other bool) string {
	choose := func(one, two string) string {
		if other {
			return two
		}
		return one
	}
	switch b.level(wanted) {
	case "node":
		return nodeUser + choose("worker", "drone")
	case "node-capitals":
		return nodeUser + choose(pick(b.rng, "Bad_Name", "-x", "a..b", "x/y"), "Other_Name")
	case "node-empty":
		return nodeUser
	case "account":
		return accountUser + "stock:" + choose("clerk", "baker")
	case "account-one-part":
		return accountUser + choose("x", "y")
	case "account-capitals":
		return accountUser + choose(pick(b.rng, "stock:Clerk", "Stock:clerk", "stock:clerk:more", "stock:", ":clerk"), "stock:Baker")
	case "anonymous":
		return user.Anonymous
	case "user":
		return choose("wanda", "walter@example.com")
	}
	return ""
}

// headers are those of the first request.
func (b *builder) headers() *scenarios.Impersonate {
	imp := &scenarios.Impersonate{User: b.name(false)}
	if b.is(uid, "given") {
		imp.UID = "4711"
	}
	imp.Groups = map[string][]string{
		"one": {"staff"}, "two-equal": {"staff", "staff"}, "three": {"staff", "crew", "band"},
		"four": {"staff", "crew", "band", "choir"}, "five-equal": {"staff", "crew", "staff", "staff", "crew"},
		"empty": pick(b.rng, []string{""}, []string{"staff", ""}), "masters": pick(b.rng, []string{mastersName}, []string{"staff", mastersName}),
		"nodes": {"system:nodes"}, "unauthenticated": {"system:unauthenticated"}, "authenticated": {"system:authenticated", "staff"},
	}[b.level(groups)]
	imp.Extra = map[string]map[string][]string{
		"one":              {"example.com/tier": {"alpha"}},
		"three":            {"example.com/tier": {"alpha", "beta", "alpha"}},
		"four":             {"example.com/tier": {"alpha", "beta", "gamma", "alpha"}},
		"two-keys":         {"example.com/tier": {"alpha"}, "example.org/zone": {"beta"}},
		"five-on-two-keys": {"example.com/tier": {"alpha", "beta", "gamma"}, "example.org/zone": {"alpha", "delta"}},
		"no-domain":        {pick(b.rng, "scopes", "dn", "example.com", "/tier"): {"view"}},
		"capitals":         {"Example.com/Tier": {"alpha"}},
		"encoded":          {pick(b.rng, "example.com/a b", "example.com/%41", "example.com/Ä", "example.com/ä"): {"alpha"}},
		"empty-key":        {"": {"alpha"}},
		"empty-value":      {"example.com/tier": pick(b.rng, []string{""}, []string{"alpha", ""})},
		"no-values":        {"example.com/tier": {}},
		"several-bad":      {"scopes": {"view"}, "example.com/tier": {""}},
	}[b.level(extra)]
	if imp.User == "" && imp.UID == "" && imp.Groups == nil && imp.Extra == nil {
		return nil
	}
	return imp
}

// changed puts the change of permissions before the last request. A single request is sent again after it.
func (b *builder) changed(requests []scenarios.Request) []scenarios.Step {
	what := b.changeSteps()
	if len(what) > 0 && len(requests) == 1 {
		requests = append(requests, requests[0])
	}
	var steps []scenarios.Step
	for i := range requests {
		if i == len(requests)-1 {
			steps = append(steps, what...)
		}
		r := requests[i]
		steps = append(steps, scenarios.Step{Request: &r})
	}
	return steps
}

// changeSteps are none if what would be revoked is not granted.
func (b *builder) changeSteps() []scenarios.Step {
	what, id, _ := strings.Cut(b.level(change), "-")
	granted := slices.ContainsFunc(b.s.Grants, func(g scenarios.Grant) bool { return g.ID == id })
	switch {
	case what == "revoke" && granted:
		return []scenarios.Step{{Revoke: id}}
	case what == "grant" && !granted && id == legacyID:
		b.add(scenarios.Grant{ID: legacyID, Verbs: []string{"impersonate"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
	case what != "grant" || !granted:
		return nil
	}
	return []scenarios.Step{{Grant: id}} // it comes later instead
}
