package scenarios

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Suffix derives the end of unique names from a seed and what it is for (the
// scenario's ID, the control plane, ...): six characters, the first a letter.
func Suffix(seed int64, parts ...string) string {
	h := sha256.New()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(seed))
	h.Write(b[:])
	for _, p := range parts {
		addDigest(h, []byte(p))
	}
	// 64 bits over 1.6e9 suffixes: the bias is far below what matters here.
	n := binary.BigEndian.Uint64(h.Sum(nil))
	const letters, all = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 6)
	out[0] = letters[n%26]
	n /= 26
	for i := 1; i < len(out); i++ {
		out[i] = all[n%36]
		n /= 36
	}
	return string(out)
}

// Bind returns a copy of the scenario in which every unique name has "-" and
// the suffix appended, and what each name became. Scenarios bound with
// different suffixes share no requestor, namespace or object, so they can run
// side by side, and no cache of the API server carries anything from one to the
// other.
//
// Names are found where the format says that something is a name (requestors,
// grants, namespaces, metadata.name of manifests, impersonated users, subjects
// of bindings) and are replaced in every string of requestors, manifests,
// objects, grants and steps, see Rename. Left as they are: the identity of the
// scenario (ID, description, source, requires, documented, twin), map keys,
// aliases and grant IDs, step names, and the fields that hold no names (verbs,
// API groups, versions, resources, kinds).
//
// An RBAC object whose name is also a verb, as in the examples of KEP-5284, is
// renamed only where the name stands for the object: in metadata.name and in
// roleRef.
func (s *Scenario) Bind(suffix string) (*Scenario, map[string]string) {
	return s.BindOn(suffix, nil)
}

// BindOn is Bind for a cluster with these nodes: the first of the scenario's
// Nodes becomes the first of them, and so on. Placeholders without a node stay as
// they are.
func (s *Scenario) BindOn(suffix string, nodes []string) (*Scenario, map[string]string) {
	names := map[string]string{}
	for i, placeholder := range s.Nodes[:min(len(s.Nodes), len(nodes))] {
		names[placeholder] = nodes[i]
	}
	roles := map[string]bool{}
	for _, n := range s.findNames() {
		names[n.name] = n.name + "-" + suffix
		if n.kind == roleName {
			roles[n.name] = true
		}
	}
	inText := names
	if len(roles) > 0 {
		inText = make(map[string]string, len(names))
		clash := ambiguous(roles, s.words())
		for from, to := range names {
			if _, skip := clash[from]; !skip {
				inText[from] = to
			}
		}
	}
	b := &binder{text: newRenamer(inText), exact: names}
	return b.scenario(s, suffix), names
}

// binder copies the parts of a scenario with names replaced. All methods keep
// the difference between nil and empty.
type binder struct {
	text  *renamer
	exact map[string]string // of whole values, for names of RBAC objects
}

func (b *binder) scenario(s *Scenario, suffix string) *Scenario {
	out := *s
	out.Suffix = suffix
	out.Requires.Capabilities = slices.Clone(s.Requires.Capabilities)
	out.Names = b.list(s.Names)
	out.Nodes = b.list(s.Nodes)
	out.Fixtures = slices.Clone(s.Fixtures)
	out.Requestors = copyMap(s.Requestors, b.requestor)
	out.Manifests = copyList(s.Manifests, b.manifest)
	out.Objects = copyList(s.Objects, b.manifest)
	out.Grants = copyList(s.Grants, b.grant)
	out.Policy = copyList(s.Policy, b.policyRule)
	out.Steps = copyList(s.Steps, b.step)
	return &out
}

func (b *binder) str(s string) string             { return b.text.rename(s) }
func (b *binder) list(l []string) []string        { return copyList(l, b.str) }
func (b *binder) lists(m stringLists) stringLists { return copyMap(m, b.list) }

// stringLists is the type of all extra maps.
type stringLists = map[string][]string

func (b *binder) requestor(r Requestor) Requestor {
	r.User, r.UID = b.str(r.User), b.str(r.UID)
	r.Groups, r.Extra = b.list(r.Groups), b.lists(r.Extra)
	r.ServiceAccount = copyPtr(r.ServiceAccount, func(sa ServiceAccount) ServiceAccount {
		sa.Namespace, sa.Name, sa.Pod, sa.Node = b.str(sa.Namespace), b.str(sa.Name), b.str(sa.Pod), b.str(sa.Node)
		sa.NodeObject = copyPtr(sa.NodeObject, same)
		return sa
	})
	return r
}

func (b *binder) grant(g Grant) Grant {
	g.Subject = Subject{User: b.str(g.Subject.User), Group: b.str(g.Subject.Group)}
	g.Verbs, g.APIGroups, g.Resources = slices.Clone(g.Verbs), slices.Clone(g.APIGroups), slices.Clone(g.Resources)
	g.Names, g.Namespace, g.NonResourceURLs = b.list(g.Names), b.str(g.Namespace), b.list(g.NonResourceURLs)
	return g
}

func (b *binder) step(st Step) Step {
	st.Request = copyPtr(st.Request, b.request)
	st.Expect = copyPtr(st.Expect, b.expect)
	st.Kubectl = copyPtr(st.Kubectl, b.kubectl)
	st.ExpectClient = copyPtr(st.ExpectClient, b.expectClient)
	return st
}

func (b *binder) request(r Request) Request {
	r.Impersonate = copyPtr(r.Impersonate, func(i Impersonate) Impersonate {
		return Impersonate{User: b.str(i.User), UID: b.str(i.UID), Groups: b.list(i.Groups), Extra: b.lists(i.Extra)}
	})
	r.Headers = copyList(r.Headers, b.header)
	r.Namespace, r.Name, r.Path = b.str(r.Namespace), b.str(r.Name), b.str(r.Path)
	r.FieldSelector, r.LabelSelector = b.str(r.FieldSelector), b.str(r.LabelSelector)
	r.Query = copyMap(r.Query, b.str)
	r.Body = b.manifest(r.Body)
	r.Operations = copyList(r.Operations, b.object)
	return r
}

func (b *binder) expect(e Expect) Expect {
	e.Message, e.MessageMatches, e.Output = b.str(e.Message), b.str(e.MessageMatches), b.str(e.Output)
	e.User = copyPtr(e.User, b.user)
	e.Backend = copyList(e.Backend, b.user)
	e.Reviews = copyList(e.Reviews, b.review)
	e.Audit = copyPtr(e.Audit, func(a AuditExpect) AuditExpect {
		return AuditExpect{
			ImpersonatedUser: copyPtr(a.ImpersonatedUser, same),
			Constraint:       copyPtr(a.Constraint, same),
			Decision:         copyPtr(a.Decision, same),
		}
	})
	e.Metrics = copyPtr(e.Metrics, cloneMetrics)
	e.OneOf = copyList(e.OneOf, func(a Alternative) Alternative {
		return Alternative{Message: b.str(a.Message), Reviews: copyList(a.Reviews, b.review), Metrics: copyPtr(a.Metrics, cloneMetrics)}
	})
	return e
}

func cloneMetrics(m MetricsExpect) MetricsExpect {
	return MetricsExpect{Attempts: slices.Clone(m.Attempts), Authorizations: slices.Clone(m.Authorizations)}
}

func (b *binder) user(u User) User {
	return User{Name: b.str(u.Name), UID: b.str(u.UID), Groups: b.list(u.Groups), Extra: b.lists(u.Extra)}
}

func (b *binder) review(r Review) Review {
	r.Unordered = copyList(r.Unordered, b.review)
	r.Namespace, r.Name, r.Path = b.str(r.Namespace), b.str(r.Name), b.str(r.Path)
	r.FieldSelector, r.LabelSelector = b.str(r.FieldSelector), b.str(r.LabelSelector)
	r.Extra = b.lists(r.Extra)
	return r
}

// nameless are the fields of Kubernetes objects that hold no names. Only their
// strings and lists of strings are left alone: a pod's "resources" is a mapping.
var nameless = map[string]bool{
	"apiVersion": true, "kind": true, "apiGroup": true, "apiGroups": true, "verb": true, "verbs": true,
	"resource": true, "resources": true, "subresource": true, "version": true,
}

func (b *binder) manifest(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := b.object(m)
	if isRBAC(m) {
		for _, field := range []string{"metadata", "roleRef"} {
			part, ok := out[field].(map[string]any)
			if to, known := b.exact[text(m, field, "name")]; ok && known {
				part["name"] = to
			}
		}
	}
	return out
}

func (b *binder) object(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = b.value(v, nameless[k])
	}
	return out
}

func (b *binder) value(v any, keep bool) any {
	switch t := v.(type) {
	case string:
		if keep {
			return t
		}
		return b.str(t)
	case []any:
		return copyList(t, func(x any) any { return b.value(x, keep) })
	case map[string]any:
		return b.object(t)
	}
	return v
}

func same[T any](v T) T { return v }

func copyPtr[T any](p *T, fn func(T) T) *T {
	if p == nil {
		return nil
	}
	v := fn(*p)
	return &v
}

func copyList[T any](l []T, fn func(T) T) []T {
	if l == nil {
		return nil
	}
	out := make([]T, len(l))
	for i, v := range l {
		out[i] = fn(v)
	}
	return out
}

func copyMap[T any](m map[string]T, fn func(T) T) map[string]T {
	if m == nil {
		return nil
	}
	out := make(map[string]T, len(m))
	for k, v := range m {
		out[k] = fn(v)
	}
	return out
}
