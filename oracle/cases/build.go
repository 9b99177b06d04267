package cases

import (
	"cmp"
	_ "embed" // what levels are made of
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// The names in cases. Each becomes unique when a scenario is bound; none is part of a word that Kubernetes itself uses.
const (
	callerPlace = "shop"  // namespace of the requestor's account
	place       = "depot" // namespace of requests, here and in parts.yaml
	elsewhere   = "attic"
	thing       = "thing"
	nodeUser    = "system:node:"
	accountUser = serviceaccount.ServiceAccountUsernamePrefix
	mastersName = user.SystemPrivilegedGroup
)

//go:embed parts.yaml
var partsYAML []byte

// parts are what levels are made of where that is data, by their names.
var parts = fixtures.Table[struct {
	Requestors          map[string]scenarios.Requestor
	Requests, Selectors map[string]scenarios.Request
	Users               map[string][2]string
	Groups              map[string][][]string
	Extra               map[string][]map[string][]string
	Sequences           map[string][]string
}]("parts.yaml", partsYAML)

type builder struct {
	Choice
	rng     *rand.Rand
	s       *scenarios.Scenario
	subject scenarios.Subject // who is granted what the requestor may do
}

func build(choice Choice, rng *rand.Rand) *scenarios.Scenario {
	b := &builder{Choice: choice, rng: rng, s: &scenarios.Scenario{
		Source:     scenarios.Source{Document: "kubernetes", Section: "k8s.io/apiserver/pkg/endpoints/filters/impersonation"},
		Level:      scenarios.Extended,
		Requires:   scenarios.Requires{Gate: scenarios.GateAny},
		Requestors: map[string]scenarios.Requestor{},
	}}
	who := b.requestor("requestor", "worker")
	b.subject = scenarios.Subject{User: who.User}
	if b.is(requestor, "group-member") {
		b.subject = scenarios.Subject{Group: who.Groups[0]}
	}
	steps := b.steps()
	b.grants(steps)
	b.s.Steps = b.insertChange(steps)
	b.s.Grants = slices.DeleteFunc(b.s.Grants, func(g scenarios.Grant) bool { return g.Subject == scenarios.Subject{} })
	prune(b.s)
	return b.s
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

func (b *builder) requestor(alias, node string) scenarios.Requestor {
	r := parts.Requestors[b.level(requestor)]
	if strings.HasPrefix(r.User, accountUser) && b.rng.IntN(2) == 0 {
		r.Groups = serviceaccount.MakeGroupNames(callerPlace)
	}
	if b.Choice[audit] > 0 {
		r.Groups = append(slices.Clone(r.Groups), "system:audit:"+b.level(audit))
	}
	r.Extra = maps.Clone(r.Extra)
	for key, values := range r.Extra {
		r.Extra[key] = seq.Map(values, strings.NewReplacer("NODE", node, "ALIAS", alias).Replace)
	}
	b.s.Requestors[alias] = r
	return r
}

func (b *builder) name(other bool) string {
	names := parts.Users[b.level(wanted)]
	b.chooseIn(&names[0])
	if other {
		return names[1]
	}
	return names[0]
}

func (b *builder) headers() *scenarios.Impersonate {
	imp := &scenarios.Impersonate{User: b.name(false)}
	if b.is(uid, "given") {
		imp.UID = "4711"
	}
	imp.Groups, imp.Extra = drawLevels(b, groups, parts.Groups), drawLevels(b, extra, parts.Extra)
	if isEmpty(imp) {
		return nil
	}
	return imp
}

// drawLevels returns what the level of a factor is made of. It draws for all levels, so that what comes after does not
// depend on the level.
func drawLevels[T any](b *builder, factor int, values map[string][]T) (out T) {
	for _, level := range factors[factor].Levels {
		if value := draw(b.rng, values[level]); level == b.level(factor) {
			out = value
		}
	}
	return out
}

// draw returns one of several values, and the zero value where there is none.
func draw[T any](rng *rand.Rand, all []T) (value T) {
	switch len(all) {
	case 0:
		return value
	case 1:
		return all[0]
	}
	return pick(rng, all...)
}

// chooseIn replaces texts such as "a|b" by one of their parts.
func (b *builder) chooseIn(texts ...*string) {
	for _, text := range texts {
		*text = draw(b.rng, strings.Split(*text, "|"))
	}
}

// insertChange puts the change of permissions before the last request. A single request is sent again after it.
func (b *builder) insertChange(requests []scenarios.Request) (steps []scenarios.Step) {
	what := b.changeSteps()
	if len(what) > 0 && len(requests) == 1 {
		requests = append(requests, requests[0])
	}
	for i, r := range requests {
		switch {
		case i == len(requests)-1:
			steps = append(steps, what...)
		case i > 0 && b.is(sequence, "walk") && b.rng.IntN(3) == 0:
			steps = append(steps, b.toggle(steps)...)
		}
		steps = append(steps, scenarios.Step{Request: &r})
	}
	return steps
}

// toggle returns a step that takes one of the grants that have an ID, or gives it back. The grant of the change is left alone.
func (b *builder) toggle(before []scenarios.Step) []scenarios.Step {
	_, last, _ := strings.Cut(b.level(change), "-")
	ids := slices.DeleteFunc(seq.Map(b.s.Grants, func(g scenarios.Grant) string { return g.ID }), func(id string) bool { return id == "" || id == last })
	if len(ids) == 0 {
		return nil
	}
	id := pick(b.rng, ids...)
	if (&scenarios.Scenario{Steps: before}).GrantedAt(id, len(before)) {
		return []scenarios.Step{{Revoke: id}}
	}
	return []scenarios.Step{{Grant: id}}
}

// changeSteps returns the steps of the change, none if what would be revoked is not granted.
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

func (b *builder) requestOf(kind string) scenarios.Request {
	core := pick(b.rng, "pods", "configmaps", "secrets")
	r := parts.Requests[kind]
	if r.Resource == "core" {
		r.Resource = core
	}
	b.chooseIn(&r.Verb, &r.Subresource, &r.Name, &r.Path)
	r.Hold = r.Verb == "watch" && b.rng.IntN(3) > 0
	return r
}

func (b *builder) steps() []scenarios.Request {
	base, selectorRequest := b.requestOf(b.level(request)), parts.Selectors[b.level(selector)]
	b.chooseIn(&selectorRequest.LabelSelector, &selectorRequest.FieldSelector)
	base.LabelSelector, base.FieldSelector = selectorRequest.LabelSelector, selectorRequest.FieldSelector
	base.By, base.Impersonate = "requestor", b.headers()
	kinds := map[string]func(scenarios.Request) scenarios.Request{
		"same": func(r scenarios.Request) scenarios.Request { return r }, "other-request": b.otherRequest, "other-wanted": b.otherWanted,
		"as-master": asMaster, "other-pod": b.otherPod, "other-extra": b.otherExtra, "only-name": onlyName,
	}
	list := parts.Sequences[b.level(sequence)]
	if b.is(sequence, "walk") {
		list = list[:6+b.rng.IntN(len(list)-5)]
	}
	return seq.Map(list, func(kind string) scenarios.Request {
		if kind == "any" {
			kind = pick(b.rng, slices.Sorted(maps.Keys(kinds))...)
		}
		return kinds[kind](base)
	})
}

func (b *builder) otherRequest(base scenarios.Request) scenarios.Request {
	levels := factors[request].Levels
	r := b.requestOf(levels[b.rng.IntN(len(levels))])
	if r.Resource == base.Resource && b.rng.IntN(2) == 0 {
		r.LabelSelector = "app=other"
	}
	r.By, r.Impersonate = base.By, base.Impersonate
	return r
}

func copyHeaders(imp *scenarios.Impersonate) *scenarios.Impersonate {
	if imp == nil {
		return &scenarios.Impersonate{}
	}
	out := *imp
	out.Groups = slices.Clone(out.Groups)
	return &out
}

func (b *builder) otherWanted(base scenarios.Request) scenarios.Request {
	base.Impersonate = copyHeaders(base.Impersonate)
	base.Impersonate.User = b.name(true)
	base.Impersonate.User = cmp.Or(base.Impersonate.User, "wanda")
	return base
}

// asMaster returns a request that asks for what only the mode legacy gives.
func asMaster(base scenarios.Request) scenarios.Request {
	base.Impersonate = copyHeaders(base.Impersonate)
	base.Impersonate.Groups = append(base.Impersonate.Groups, mastersName)
	return base
}

func onlyName(base scenarios.Request) scenarios.Request {
	if base.Impersonate == nil || base.Impersonate.User == "" {
		return base
	}
	base.Impersonate = &scenarios.Impersonate{User: base.Impersonate.User}
	return base
}

// otherPod returns a request that is sent by the same account from another node, whom it impersonates.
func (b *builder) otherPod(base scenarios.Request) scenarios.Request {
	b.requestor("other", "drone")
	if b.is(wanted, "node") {
		base = b.otherWanted(base)
	}
	base.By = "other"
	return base
}

// otherExtra returns a request that is sent by the same user with one key of extra more.
func (b *builder) otherExtra(base scenarios.Request) scenarios.Request {
	r := b.requestor("namesake", "worker")
	extra := map[string][]string{"example.com/more": {"1"}}
	maps.Copy(extra, r.Extra)
	r.Extra = extra
	b.s.Requestors["namesake"] = r
	base.By = "namesake"
	return base
}
