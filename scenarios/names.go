package scenarios

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// suffixLength is that of the "-abc123" which Bind appends.
const suffixLength = 1 + 6

// nameKind says which of Kubernetes' rules a name is under.
type nameKind string

const (
	namespaceName nameKind = "namespace"
	objectName    nameKind = "object"
	roleName      nameKind = "RBAC object"
	userName      nameKind = "user or group"
	listedName    nameKind = "listed"
)

type foundName struct {
	name string
	kind nameKind
	path []any
}

type nameFinder struct{ found []foundName }

func (f *nameFinder) add(kind nameKind, name string, path ...any) {
	if name != "" {
		f.found = append(f.found, foundName{name, kind, path})
	}
}

// user adds the names within a user or group name. What begins with "system:" means something to Kubernetes and is
// not renamed whole.
func (f *nameFinder) user(name string, path ...any) {
	if node, ok := strings.CutPrefix(name, "system:node:"); ok {
		if len(validation.IsDNS1123Subdomain(node)) == 0 {
			f.add(objectName, node, path...)
		}
		return
	}
	if ns, sa, ok := SplitServiceAccount(name); ok {
		f.add(namespaceName, ns, path...)
		f.add(objectName, sa, path...)
		return
	}
	if ns, ok := strings.CutPrefix(name, serviceaccount.ServiceAccountGroupPrefix); ok {
		if len(validation.IsDNS1123Label(ns)) == 0 {
			f.add(namespaceName, ns, path...)
		}
		return
	}
	if !strings.HasPrefix(name, "system:") {
		f.add(userName, name, path...)
	}
}

// SplitServiceAccount takes the user name of a service account apart, as the API server does.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	namespace, name, err := serviceaccount.SplitUsername(user)
	return namespace, name, err == nil
}

// findNames finds every name that Bind makes unique; those that stand for real nodes are not among them. Order and
// repetitions are those of the file.
func (s *Scenario) findNames() []foundName {
	f := &nameFinder{}
	for i, n := range s.Names {
		f.add(listedName, n, "names", i)
	}
	for _, alias := range slices.Sorted(maps.Keys(s.Requestors)) {
		f.requestor(s.Requestors[alias], "requestors", alias)
	}
	for _, m := range s.Manifests {
		f.manifest(m, "fixtures")
	}
	for i, m := range s.Objects {
		f.manifest(m, "objects", i)
	}
	grant := func(g Grant, path ...any) {
		f.add(namespaceName, g.Namespace, extend(path, "namespace")...)
		f.user(g.Subject.User, extend(path, "subject", "user")...)
		f.user(g.Subject.Group, extend(path, "subject", "group")...)
	}
	for i, g := range s.Grants {
		grant(g, "grants", i)
	}
	for i, r := range s.Policy {
		grant(r.For, "policy", i, "for")
	}
	for i, st := range s.Steps {
		if r := st.Sent(); r != nil {
			f.request(r, "steps", i, "request")
		}
	}
	return slices.DeleteFunc(f.found, func(n foundName) bool { return slices.Contains(s.Nodes, n.name) })
}

func (f *nameFinder) requestor(r Requestor, path ...any) {
	f.user(r.User, extend(path, "user")...)
	for _, g := range r.Groups {
		f.user(g, extend(path, "groups")...)
	}
	for _, node := range r.Extra[serviceaccount.NodeNameKey] {
		if len(validation.IsDNS1123Subdomain(node)) == 0 {
			f.add(objectName, node, extend(path, "extra")...)
		}
	}
	if sa := r.ServiceAccount; sa != nil {
		path = extend(path, "serviceAccount")
		f.add(namespaceName, sa.Namespace, extend(path, "namespace")...)
		f.add(objectName, sa.Name, extend(path, "name")...)
		f.add(objectName, sa.Pod, extend(path, "pod")...)
		f.add(objectName, sa.Node, extend(path, "node")...)
		f.add(objectName, sa.Secret, extend(path, "secret")...)
	}
}

func (f *nameFinder) request(r *Request, path ...any) {
	f.add(namespaceName, r.Namespace, extend(path, "namespace")...)
	if r.Impersonate != nil {
		f.user(r.Impersonate.User, extend(path, "impersonate", "user")...)
	}
	for i, h := range r.Headers {
		if isUserHeader(h) && h.Repeat == 0 {
			f.user(h.Value, extend(path, "headers", i, "value")...)
		}
	}
	if r.Body != nil {
		f.manifest(r.Body, extend(path, "body")...)
	}
}

// fixedNames are kinds whose objects' names Kubernetes derives from their content; with another name they would be
// refused.
var fixedNames = []string{"CustomResourceDefinition", "APIService"}

// manifest adds the names of an object: its own, its namespace, the node of a pod, and the subjects of a binding.
func (f *nameFinder) manifest(m map[string]any, path ...any) {
	f.add(namespaceName, Text(m, "metadata", "namespace"), path...)
	name, kind := Text(m, "metadata", "name"), Text(m, "kind")
	switch {
	case strings.HasPrefix(name, "system:") || slices.Contains(fixedNames, kind):
	case isRBAC(m):
		f.add(roleName, name, path...)
	case kind == "Namespace":
		f.add(namespaceName, name, path...)
	default:
		f.add(objectName, name, path...)
	}
	if kind == "Pod" {
		f.add(objectName, Text(m, "spec", "nodeName"), path...)
	}
	if !isRBAC(m) {
		return
	}
	for _, subject := range subjectsOf(m) {
		if subject.Kind == rbacv1.ServiceAccountKind {
			f.add(objectName, subject.Name, path...)
			f.add(namespaceName, subject.Namespace, path...)
			continue
		}
		f.user(subject.Name, path...)
	}
}

// extend appends to a path without sharing memory with it.
func extend(path []any, more ...any) []any { return append(slices.Clone(path), more...) }

func isRBAC(m map[string]any) bool {
	return strings.HasPrefix(Text(m, "apiVersion"), "rbac.authorization.k8s.io/")
}

// Set is a checked collection of scenarios with unique IDs.
type Set struct {
	all  []*Scenario // sorted by ID
	byID map[string]*Scenario

	noted Errors
}

// Noted lists the expectations of the files that say only what follows from others (they can be left out, and are
// judged all the same), and the denials that say neither what was answered nor what was asked.
func (s *Set) Noted() Errors { return s.noted }

// add inserts a scenario whose ID is new.
func (s *Set) add(sc *Scenario) {
	i, _ := slices.BinarySearchFunc(s.all, sc.ID, func(e *Scenario, id string) int { return strings.Compare(e.ID, id) })
	s.all = slices.Insert(s.all, i, sc)
	s.byID[sc.ID] = sc
}

// All returns the scenarios sorted by ID. The slice is the caller's; the scenarios are shared and must not be
// changed (Bind gives a copy).
func (s *Set) All() []*Scenario { return slices.Clone(s.all) }

// Len is the number of scenarios.
func (s *Set) Len() int { return len(s.all) }

// Get returns the scenario of that ID.
func (s *Set) Get(id string) (*Scenario, bool) {
	sc, ok := s.byID[id]
	return sc, ok
}

// Only returns the set of the scenarios that keep holds for.
func (s *Set) Only(keep func(*Scenario) bool) *Set {
	out := &Set{byID: map[string]*Scenario{}}
	for _, sc := range s.all {
		if keep(sc) {
			out.add(sc)
		}
	}
	return out
}

// Setups lists the names of all setups, sorted.
func (s *Set) Setups() []string {
	names := sets.New(Each(s.all, func(sc *Scenario) string { return sc.Setup })...)
	return sets.List(names.Delete(""))
}

// checkSetup applies the rules about setups, once all scenarios are known: a scenario is compared with the first
// of its setup.
func checkSetup(f *loadedFile, set *Set, broken map[string]bool) {
	s, src := f.scenario, f.source
	if s.Setup == "" || !f.readable || src.failedAt(nil) {
		return
	}
	for i, st := range s.Steps {
		if st.Sent() == nil && st.Wait == 0 {
			src.failAt(at("steps", i), "the step changes what the setup %q keeps (expected requests and waits only)", s.Setup)
		}
	}
	mates := set.Only(func(o *Scenario) bool { return o.Setup == s.Setup }).all
	first := mates[0]
	if len(mates) == 1 {
		src.failAt(at("setup"), "no other scenario has the setup %q (expected two at least, for different versions or gates)", s.Setup)
	}
	if first == s || broken[first.ID] {
		return
	}
	for field, equal := range map[string]bool{
		"requestors": reflect.DeepEqual(s.Requestors, first.Requestors),
		"grants":     reflect.DeepEqual(s.Grants, first.Grants),
		"fixtures":   slices.Equal(s.Fixtures, first.Fixtures),
		"objects":    reflect.DeepEqual(s.Objects, first.Objects),
		"policy":     reflect.DeepEqual(s.Policy, first.Policy),
	} {
		if !equal {
			src.failAt(at(field), "%s are not those of %s, which has the same setup (expected the same)", field, first.ID)
		}
	}
}
