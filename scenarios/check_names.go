package scenarios

import (
	"reflect"
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
