package scenarios

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// names checks that every name can be made unique and still be told apart. A name is reported once, although it is
// usually found in many places.
func (c *checker) names() {
	found := c.s.findNames()
	// The names of RBAC objects may look like verbs, see Bind.
	inText := map[string]bool{}
	for _, n := range found {
		if n.kind != roleName {
			inText[n.name] = true
		}
	}
	clash := ambiguous(inText, c.s.words())
	done := map[string]bool{}
	for _, n := range found {
		if done[n.name] {
			continue
		}
		problem := nameProblem(n)
		if word, bad := clash[n.name]; problem == "" && bad && n.kind != roleName {
			what := "part of " + quote(word)
			if word == fixedWords {
				what = "a word of Kubernetes' own messages"
			}
			problem = "is also " + what + " (expected a name that can be replaced wherever it stands)"
		}
		if problem == "" && n.kind == listedName && !c.s.mentions(n.name) {
			problem = "occurs nowhere (expected a name that the scenario uses)"
		}
		if problem != "" {
			done[n.name] = true
			c.fail(n.path, "the %s name %q %s", n.kind, n.name, problem)
		}
	}
}

// nameProblem says why a name cannot be made unique.
func nameProblem(n foundName) string {
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
		// Roles may have other characters: "system:node" is one.
		if n.kind == objectName && len(validation.IsDNS1123Subdomain(n.name)) > 0 {
			return "is not valid (expected lower-case letters, digits, '-' and '.')"
		}
	}
	if strings.ContainsFunc(n.name, unicode.IsControl) {
		return "has control characters (expected text)"
	}
	return ""
}

func isAlphanumeric(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// mentions tells whether a name occurs anywhere but in the list of names.
func (s *Scenario) mentions(name string) bool {
	plain := *s
	plain.Names = nil
	b := &binder{text: newRenamer(map[string]string{name: name + "-x"})}
	return !reflect.DeepEqual(&plain, b.scenario(&plain, s.Suffix))
}

// fixedWords are what the API server's messages and paths are made of. A name like one of them could not be told
// from the text around it.
const fixedWords = `is forbidden User cannot resource in API group the namespace at cluster scope
	impersonating empty string key extra an invalid a non-lowercase values value not allowed requested
	&user.DefaultInfo{Name: UID: Groups: Extra:map []string nil} without user name attempting to grant
	RBAC permissions currently held {APIGroups Resources Verbs ResourceNames} system: masters nodes node
	serviceaccount serviceaccounts authenticated unauthenticated anonymous /api/v1 /apis/ namespaces`

// words lists the texts of a scenario that Bind must not change, although a name may look the same: verbs, API
// groups, resources and fixed wording.
func (s *Scenario) words() []string {
	set := map[string]bool{fixedWords: true}
	add := func(list ...string) {
		for _, w := range list {
			set[w] = true
		}
	}
	grant := func(g Grant) {
		add(g.Verbs...)
		add(g.APIGroups...)
		add(g.Resources...)
	}
	for _, g := range s.Grants {
		grant(g)
	}
	for _, r := range s.Policy {
		grant(r.For)
	}
	for _, list := range [][]map[string]any{s.Manifests, s.Objects} {
		for _, m := range list {
			for _, g := range RulesOf(m) {
				grant(g)
			}
		}
	}
	for _, st := range s.Steps {
		if r := st.Sent(); r != nil {
			add(r.Verb, r.APIGroup, r.Resource, r.Subresource)
		}
		for _, r := range st.expectedReviews() {
			for _, u := range append([]Review{r}, r.Unordered...) {
				add(u.Verb, u.Group, u.Resource, u.Subresource)
			}
		}
	}
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

// ambiguous tells which of the names occur in the words, with one word each.
func ambiguous(names map[string]bool, words []string) map[string]string {
	all := make(map[string]string, len(names))
	for n := range names {
		all[n] = n + "-x" // any text that differs
	}
	together := newRenamer(all)
	out := map[string]string{}
	for _, w := range words {
		if together.rename(w) == w {
			continue // none of them: the usual case, decided in one pass
		}
		for n := range names {
			if _, known := out[n]; !known && Rename(w, map[string]string{n: n + "-x"}) != w {
				out[n] = w
			}
		}
	}
	return out
}
