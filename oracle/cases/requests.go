package cases

import (
	"maps"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// requestOf is a request of one kind. Nothing that it names exists, and none has a body: what storage makes of it
// is not what is looked at.
func (b *builder) requestOf(kind string) scenarios.Request {
	core := pick(b.rng, "pods", "configmaps", "secrets")
	pod := scenarios.Request{Resource: "pods", Namespace: place, Name: thing}
	with := func(r scenarios.Request, verb, sub string) scenarios.Request {
		r.Verb, r.Subresource = verb, sub
		return r
	}
	switch kind {
	case "get", "update", "patch", "delete":
		return scenarios.Request{Verb: kind, Resource: core, Namespace: place, Name: thing}
	case "list", "watch", "create", "deletecollection":
		return scenarios.Request{Verb: kind, Resource: core, Namespace: place}
	case "list-all":
		return scenarios.Request{Verb: "list", Resource: core}
	case "status":
		return with(pod, pick(b.rng, "get", "update", "patch"), "status")
	case "exec":
		return with(pod, "get", pick(b.rng, "exec", "attach", "portforward"))
	case "exec-create":
		return with(pod, "create", pick(b.rng, "exec", "attach", "portforward"))
	case "log":
		return with(pod, "get", "log")
	case "token":
		return scenarios.Request{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: place, Name: thing}
	case "get-node":
		return scenarios.Request{Verb: "get", Resource: "nodes", Name: pick(b.rng, "worker", "drone")}
	case "list-nodes":
		return scenarios.Request{Verb: pick(b.rng, "list", "watch"), Resource: "nodes"}
	case "custom":
		return scenarios.Request{Verb: pick(b.rng, "get", "update"), APIGroup: "example.com", Version: "v1beta2", Resource: "widgets", Namespace: place, Name: thing}
	case "custom-cluster":
		return scenarios.Request{Verb: pick(b.rng, "list", "create"), APIGroup: "example.com", Resource: "gadgets"}
	case "path":
		return scenarios.Request{Verb: "get", Path: pick(b.rng, "/version", "/healthz", "/nowhere/at/all")}
	case "path-post":
		return scenarios.Request{Verb: pick(b.rng, "post", "delete", "put"), Path: "/nowhere"}
	case "discovery":
		return scenarios.Request{Verb: "get", Path: pick(b.rng, "/api", "/apis", "/apis/apps/v1")}
	}
	panic("no such kind of request: " + kind)
}

// first is the first request, with its selectors.
func (b *builder) first() scenarios.Request {
	r := b.requestOf(b.level(request))
	switch b.level(selector) {
	case "name":
		r.FieldSelector = "metadata.name=" + pick(b.rng, thing, "worker", "no/name")
	case "node":
		r.FieldSelector = "spec.nodeName=" + pick(b.rng, "worker", "drone")
	case "not-equal":
		r.FieldSelector = "metadata.name!=" + thing + ",metadata.namespace=" + place
	case "label":
		r.LabelSelector = "app=web,tier!=back"
	case "label-set":
		r.LabelSelector = "app in (web,api),tier notin (back)"
	case "label-exists":
		r.LabelSelector = pick(b.rng, "app,!tier", "size>3")
	case "both":
		r.FieldSelector, r.LabelSelector = "metadata.name="+thing, "app"
	case "bad-field":
		r.FieldSelector = pick(b.rng, "metadata.name", "a=b=c,", "!")
	case "bad-label":
		r.LabelSelector = pick(b.rng, "a in", "a==b==c", "-")
		if b.rng.IntN(2) == 0 {
			r.FieldSelector = "metadata.name=" + thing
		}
	}
	return r
}

// steps are the requests in order.
func (b *builder) steps() []scenarios.Request {
	base := b.first()
	base.By, base.Impersonate = "requestor", b.headers()
	switch b.level(sequence) {
	case "repeat":
		return []scenarios.Request{base, base}
	case "other-request":
		return []scenarios.Request{base, b.otherRequest(base), base}
	case "other-wanted":
		return []scenarios.Request{base, b.otherWanted(base), base}
	case "legacy-first":
		return []scenarios.Request{asMaster(base), base, base}
	case "other-pod":
		return []scenarios.Request{base, b.otherPod(base), base}
	case "same-name-other-extra":
		return []scenarios.Request{base, b.otherExtra(base), base}
	case "four":
		out := []scenarios.Request{base}
		for len(out) < 4 {
			out = append(out, pick(b.rng, func() scenarios.Request { return base }, func() scenarios.Request { return b.otherRequest(base) },
				func() scenarios.Request { return b.otherWanted(base) }, func() scenarios.Request { return asMaster(base) },
				func() scenarios.Request { return b.otherPod(base) }, func() scenarios.Request { return onlyName(base) })())
		}
		return out
	}
	return []scenarios.Request{base}
}

// otherRequest has the same headers.
func (b *builder) otherRequest(base scenarios.Request) scenarios.Request {
	levels := factors[request].Levels
	r := b.requestOf(levels[b.rng.IntN(len(levels))])
	if r.Resource == base.Resource && b.rng.IntN(2) == 0 {
		r.LabelSelector = "app=other"
	}
	r.By, r.Impersonate = base.By, base.Impersonate
	return r
}

// copyHeaders makes headers that can be changed.
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
	if base.Impersonate.User == "" {
		base.Impersonate.User = "wanda"
	}
	return base
}

// asMaster asks for what only the mode legacy gives.
func asMaster(base scenarios.Request) scenarios.Request {
	base.Impersonate = copyHeaders(base.Impersonate)
	base.Impersonate.Groups = append(base.Impersonate.Groups, mastersName)
	return base
}

// onlyName leaves all headers but the user's out.
func onlyName(base scenarios.Request) scenarios.Request {
	if base.Impersonate == nil || base.Impersonate.User == "" {
		return base
	}
	base.Impersonate = &scenarios.Impersonate{User: base.Impersonate.User}
	return base
}

// otherPod is sent by the same account from another node, whom it impersonates.
func (b *builder) otherPod(base scenarios.Request) scenarios.Request {
	b.requestor("other", "drone")
	if b.is(wanted, "node") {
		base = b.otherWanted(base)
	}
	base.By = "other"
	return base
}

// otherExtra is sent by the same user with one key of extra more.
func (b *builder) otherExtra(base scenarios.Request) scenarios.Request {
	r := b.requestor("other", "worker")
	extra := map[string][]string{"example.com/more": {"1"}}
	maps.Copy(extra, r.Extra)
	r.Extra = extra
	b.s.Requestors["other"] = r
	base.By = "other"
	return base
}
