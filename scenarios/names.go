package scenarios

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// suffixLength is the length of what Bind appends, such as "-abc123".
const suffixLength = 1 + 6

// nameKind is the kind of a name. It decides which of Kubernetes' rules for names apply.
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

// user adds the names within the name of a user or group. A name that begins with "system:" has a meaning, and is not
// renamed as a whole.
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

// SplitServiceAccount splits the user name of a service account as the API server does.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	namespace, name, err := serviceaccount.SplitUsername(user)
	return namespace, name, err == nil
}

// findNames finds every name that Bind makes unique, in the order of the file and with repetitions. Names of real nodes
// are not among them.
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

// fixedNames are the kinds whose names Kubernetes derives from their content. It refuses objects of these kinds with
// other names.
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

// extend returns a path with further elements, without sharing memory with it.
func extend(path []any, more ...any) []any { return slices.Concat(path, more) }

func isRBAC(m map[string]any) bool {
	return strings.HasPrefix(Text(m, "apiVersion"), "rbac.authorization.k8s.io/")
}

// Rename replaces every whole occurrence of a name in s by what names maps it to. An occurrence is whole if no
// token character, that is a letter, a digit or one of "_.@-", stands directly before or after it: "node1" is
// replaced in system:node:node1, spec.nodeName=node1 and "node1", and not in node10 or node1.example. A dot that
// ends a sentence is not part of a token, and percent-encoded characters are judged as what they encode. Where
// several names fit, the longest is taken. Names that URL-encoding changes are found in their encoded forms too.
func Rename(s string, names map[string]string) string { return newRenamer(names).rename(s) }

type renamer struct {
	byFirst map[byte][]renaming
}

type renaming struct{ from, to string }

func newRenamer(names map[string]string) *renamer {
	all := make(map[string]string, len(names))
	for from, to := range names {
		for _, escape := range []func(string) string{url.PathEscape, url.QueryEscape} {
			if e := escape(from); e != from {
				all[e] = escape(to)
			}
		}
	}
	// A name itself takes precedence over the encoded form of another one.
	maps.Copy(all, names)
	delete(all, "")
	r := &renamer{byFirst: make(map[byte][]renaming, len(all))}
	for from, to := range all {
		r.byFirst[from[0]] = append(r.byFirst[from[0]], renaming{from, to})
	}
	for _, list := range r.byFirst {
		slices.SortFunc(list, func(a, b renaming) int {
			return cmp.Or(cmp.Compare(len(b.from), len(a.from)), strings.Compare(a.from, b.from))
		})
	}
	return r
}

// rename replaces all names in one pass. It finds the boundaries in the original text, so replacements do not influence
// one another.
func (r *renamer) rename(s string) string {
	if len(r.byFirst) == 0 || s == "" {
		return s
	}
	var out strings.Builder
	done := 0
	for i := 0; i < len(s); {
		hit, ok := r.match(s, i)
		if !ok {
			if _, escaped := unescape(s, i); escaped {
				i += 3
			} else {
				i++
			}
			continue
		}
		out.WriteString(s[done:i])
		out.WriteString(hit.to)
		i += len(hit.from)
		done = i
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

func (r *renamer) match(s string, i int) (renaming, bool) {
	for _, c := range r.byFirst[s[i]] {
		if strings.HasPrefix(s[i:], c.from) && startsHere(s, i) && endsHere(s, i+len(c.from)) {
			return c, true
		}
	}
	return renaming{}, false
}

// startsHere reports whether a token can start at s[i].
func startsHere(s string, i int) bool {
	if i == 0 {
		return true
	}
	if i >= 3 {
		if c, ok := unescape(s, i-3); ok {
			return !isToken(c)
		}
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	return !isToken(before)
}

// endsHere reports whether a token can end before s[i].
func endsHere(s string, i int) bool {
	rest := strings.TrimLeft(s[i:], ".")
	if rest == "" {
		return true // the end of the text, or of a sentence at the end of the text
	}
	if len(rest) == len(s)-i {
		if c, ok := unescape(s, i); ok {
			return !isToken(c)
		}
	}
	after, _ := utf8.DecodeRuneInString(rest)
	return !isToken(after)
}

// unescape decodes a percent-encoded byte at s[i:]. A byte of a multi-byte character counts as a token character.
func unescape(s string, i int) (rune, bool) {
	if i+3 > len(s) || s[i] != '%' {
		return 0, false
	}
	c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
	if err != nil {
		return 0, false
	}
	if c >= utf8.RuneSelf {
		c = 'x'
	}
	return rune(c), true
}

func isToken(r rune) bool {
	return strings.ContainsRune("_.@-", r) || unicode.IsLetter(r) || unicode.IsDigit(r)
}
