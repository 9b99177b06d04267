package scenarios

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkNames checks that every name can be made unique without being confused with anything else. Each name is reported
// once.
func (c *checker) checkNames() {
	names := c.s.findNames()
	// The names of RBAC objects may look like verbs (see Bind).
	inText := sets.New[string]()
	for _, n := range names {
		if n.kind != roleName {
			inText.Insert(n.name)
		}
	}
	clash := findAmbiguous(inText, c.s.words())
	reported := map[string]bool{}
	for _, n := range names {
		if reported[n.name] {
			continue
		}
		if problem := c.nameProblem(n, clash); problem != "" {
			reported[n.name] = true
			c.fail(n.path, "the %s name %q %s", n.kind, n.name, problem)
		}
	}
}

// nameProblem returns what is wrong with a name in this scenario, as the end of a sentence, or "". clash has the names
// that look like words which must not be replaced.
func (c *checker) nameProblem(n foundName, clash map[string]string) string {
	if problem := formProblem(n); problem != "" {
		return problem
	}
	if word, isWord := clash[n.name]; isWord && n.kind != roleName {
		what := "part of " + strconv.Quote(word)
		if word == fixedWords {
			what = "a word of Kubernetes' own messages"
		}
		return "is also " + what + " (expected a name that can be replaced wherever it stands)"
	}
	if n.kind == listedName && !c.s.mentions(n.name) {
		return "occurs nowhere (expected a name that the scenario uses)"
	}
	return ""
}

// formProblem returns what is wrong with the form of a name, as the end of a sentence, or "".
func formProblem(n foundName) string {
	first, _ := utf8.DecodeRuneInString(n.name)
	last, _ := utf8.DecodeLastRuneInString(n.name)
	if !isAlphanumeric(first) || !isAlphanumeric(last) {
		return "cannot be made unique (expected it to begin and end with a letter or digit)"
	}
	switch length := len(n.name) + suffixLength; n.kind {
	case namespaceName:
		if length > validation.DNS1123LabelMaxLength {
			return "is too long (expected at most 56 characters, to leave room for the suffix that makes it unique)"
		}
		if len(validation.IsDNS1123Label(n.name)) > 0 {
			return "is not valid (expected lower-case letters, digits and '-')"
		}
	case objectName, roleName:
		if length > validation.DNS1123SubdomainMaxLength {
			return "is too long (expected at most 246 characters, to leave room for the suffix that makes it unique)"
		}
		// The names of roles may contain other characters, as in "system:node".
		if n.kind == objectName && len(validation.IsDNS1123Subdomain(n.name)) > 0 {
			return "is not valid (expected lower-case letters, digits, '-' and '.')"
		}
	}
	if strings.ContainsFunc(n.name, unicode.IsControl) {
		return "has control characters (expected text)"
	}
	return ""
}

func isAlphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) } // utf8.RuneError is neither

// mentions reports whether a name occurs anywhere outside of the list of names.
func (s *Scenario) mentions(name string) bool {
	plain := *s
	plain.Names = nil
	return !reflect.DeepEqual(plain, copyRenamed(&binder{text: newRenamer(map[string]string{name: name + "-x"})}, plain))
}

// fixedWords are the words of the API server's messages and paths. A name that is one of them could not be told apart.
const fixedWords = `is forbidden User cannot resource in API group the namespace at cluster scope
	impersonating empty string key extra an invalid a non-lowercase values value not allowed requested
	&user.DefaultInfo{Name: UID: Groups: Extra:map []string nil} without user name attempting to grant
	RBAC permissions currently held {APIGroups Resources Verbs ResourceNames} system: masters nodes node
	serviceaccount serviceaccounts authenticated unauthenticated anonymous /api/v1 /apis/ namespaces`

// words returns the texts of a scenario that Bind must not change, although a name may look the same.
func (s *Scenario) words() []string {
	set := sets.New(fixedWords)
	grant := func(g Grant) { set.Insert(slices.Concat(g.Verbs, g.APIGroups, g.Resources)...) }
	for _, g := range s.Grants {
		grant(g)
	}
	for _, r := range s.Policy {
		grant(r.For)
	}
	for _, m := range slices.Concat(s.Manifests, s.Objects) {
		for _, g := range RulesOf(m) {
			grant(g)
		}
	}
	for _, st := range s.Steps {
		if r := st.Sent(); r != nil {
			set.Insert(r.Verb, r.APIGroup, r.Resource, r.Subresource)
		}
		for _, r := range st.expectedReviews() {
			for _, u := range append([]Review{r}, r.Unordered...) {
				set.Insert(u.Verb, u.Group, u.Resource, u.Subresource)
			}
		}
	}
	return sets.List(set.Delete(""))
}

// findAmbiguous returns the names that occur in the words, each with one of the words.
func findAmbiguous(names sets.Set[string], words []string) map[string]string {
	all := make(map[string]string, len(names))
	for n := range names {
		all[n] = n + "-x" // any text that differs
	}
	renameAll := newRenamer(all).rename
	out := map[string]string{}
	for _, w := range words {
		if renameAll(w) == w {
			continue // it contains none of the names: this is the usual case, which one pass decides
		}
		for n := range names {
			if _, known := out[n]; !known && Rename(w, map[string]string{n: n + "-x"}) != w {
				out[n] = w
			}
		}
	}
	return out
}

// maxNodes is how many nodes a scenario may name. A target with the capability has at least that many.
const maxNodes = 2

// checkNodes checks the names of real nodes. They are replaced in the same way as names that are made unique, so the
// same rules apply.
func (c *checker) checkNodes() {
	c.failIf(len(c.s.Nodes) > maxNodes, at("nodes"), "there are %d nodes (expected at most %d)", len(c.s.Nodes), maxNodes)
	if len(c.s.Nodes) == 0 {
		c.failIf(slices.Contains(c.s.Requires.Capabilities, KubeletNodes), at("requires", "capabilities"),
			"capability %q is listed without nodes (expected nodes, from which it follows)", KubeletNodes)
		return
	}
	clash := findAmbiguous(sets.New(c.s.Nodes...), c.s.words())
	unnamed := *c.s
	unnamed.Nodes = nil
	for i, n := range c.s.Nodes {
		path := at("nodes", i)
		switch _, isAmbiguous := clash[n]; {
		case len(validation.IsDNS1123Subdomain(n)) > 0:
			c.fail(path, "the node name %q is not valid (expected lower-case letters, digits, '-' and '.')", n)
		case slices.Contains(c.s.Nodes[:i], n):
			c.fail(path, "the node name %q is listed twice (expected each once)", n)
		case isAmbiguous:
			c.fail(
				path,
				"the node name %q is also a word of the scenario or of Kubernetes (expected a name that can be replaced wherever it stands)",
				n,
			)
		case !unnamed.mentions(n):
			c.fail(path, "the node name %q occurs nowhere (expected a name that the scenario uses)", n)
		}
	}
}

// checkRunning checks a service account whose pod really runs.
func (c *checker) checkRunning(sa *ServiceAccount, path []any) {
	if !sa.Running {
		c.failIf(slices.Contains(c.s.Nodes, sa.Node) && sa.Node != "", extend(path, "node"),
			"node %q is a real node, and running is not given (expected both)", sa.Node)
		return
	}
	path = extend(path, "running")
	c.failIf(sa.Pod == "", path, "running is given without pod (expected both)")
	c.failIf(!slices.Contains(c.s.Nodes, sa.Node), path,
		"running is given with node %q (expected one of the scenario's nodes)", sa.Node)
	c.failIf(sa.NodeObject != nil, path,
		"running is given with nodeObject (expected one of the two: a real node has its object)")
}

// Pods returns the pods that the scenario runs on real nodes, by namespace and name. They are pods of requestors, and
// objects on such a node.
func (s *Scenario) Pods() (out [][2]string) {
	add := func(node, namespace, name string) {
		key := [2]string{namespace, name}
		if slices.Contains(s.Nodes, node) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(s.Requestors)) {
		if sa := s.Requestors[alias].ServiceAccount; sa != nil && sa.Running {
			add(sa.Node, sa.Namespace, sa.Pod)
		}
	}
	for _, m := range slices.Concat(s.Manifests, s.Objects) {
		if Text(m, "kind") == "Pod" {
			add(Text(m, "spec", "nodeName"), Text(m, "metadata", "namespace"), Text(m, "metadata", "name"))
		}
	}
	return out
}
