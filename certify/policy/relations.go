package policy

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed relations.yaml
var relationsYAML []byte

// Relation is a way to take two strings for the same that are not.
type Relation struct {
	Class string `json:"class"`
	// Why says what is right.
	Why string `json:"why"`
	// Pairs are forms of two strings (see relations.yaml).
	Pairs [][2]string `json:"pairs"`
}

type object struct {
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Verb        string `json:"verb"`
}

type tables struct {
	Relations []Relation `json:"relations"`
	Verbs     []string   `json:"verbs"`
	PathVerbs []string   `json:"pathVerbs"`
	Actions   []string   `json:"actions"`
	Modes     []string   `json:"modes"`
	Resources []object   `json:"resources"`
	// Follows are pairs of a verb, an API group, resource and subresource, and a name if it matters.
	Follows    [][2]string `json:"follows"`
	Users      []string    `json:"users"`
	Groups     []string    `json:"groups"`
	Namespaces []string    `json:"namespaces"`
	Paths      []string    `json:"paths"`
	Freely     []object    `json:"freely"`
	Separators []string    `json:"separators"`
	// Busy are what somebody with a name that everybody knows may do unasked, Extra keys of user.extra, Objects what else
	// code knows by name.
	Busy    []object `json:"busy"`
	Extra   []string `json:"extra"`
	Objects []object `json:"objects"`
	// Reasons say what is right, for those of no relation.
	Reasons map[string]string `json:"reasons"`
}

var loadTables = sync.OnceValue(func() *tables { return fixtures.Table[*tables]("relations.yaml", relationsYAML) })

// Relations are those that the policy has grants for.
func Relations() []Relation { return loadTables().Relations }

// Why says what is right about a reason; empty if there is nothing to say.
func Why(reason string) string {
	t := loadTables()
	for _, r := range t.Relations {
		if strings.HasSuffix(reason, "-"+r.Class) || r.Class == "ignored" && strings.HasPrefix(reason, "ignores-") {
			return r.Why
		}
	}
	return t.Reasons[reason]
}

var placeholder = regexp.MustCompile(`\{[a-z0-9]*\}`)

// Form writes one side of a pair about a string.
func Form(form, s string) string {
	if s == "" {
		s = "x"
	}
	runes, last := []rune(s), len(s)-1
	return placeholder.ReplaceAllStringFunc(form, func(found string) string {
		switch found {
		case "{}":
			return s
		case "{upper}":
			return strings.ToUpper(s)
		case "{title}":
			return strings.Map(titled(), s)
		case "{other}":
			return "other" + reversed(s)
		case "{butlast}":
			return string(runes[:len(runes)-1])
		case "{butfirst}":
			return string(runes[1:])
		case "{base64}":
			return base64.StdEncoding.EncodeToString([]byte(s))
		case "{entity}":
			return s[:last] + fmt.Sprintf("&#%d;", s[last])
		case "{percent}":
			return s[:last] + fmt.Sprintf("%%%02X", s[last])
		}
		n, err := strconv.Atoi(strings.Trim(found, "{}"))
		if err != nil {
			return found
		}
		return s + strings.Repeat("a", max(0, n-len(s)))
	})
}

func titled() func(rune) rune {
	done := false
	return func(r rune) rune {
		if done || !unicode.IsLetter(r) {
			return r
		}
		done = true
		return unicode.ToUpper(r)
	}
}

func reversed(s string) string {
	out := []rune(s)
	slices.Reverse(out)
	return string(out)
}

// Attribute is a part of a review that a grant is about.
type Attribute struct {
	Name string
	// grant adds a value to what a grant covers, and ask asks for it.
	grant func(g *scenarios.Grant, value string)
	ask   func(s *spec, value string)
	// single says that a grant has one value.
	single bool
	// onPath says that it is compared in what is asked about paths.
	onPath bool
}

type spec = authorizationv1.SubjectAccessReviewSpec

// Attributes are all that are compared.
func Attributes() []Attribute {
	type resource = authorizationv1.ResourceAttributes
	of := func(change func(a *resource, v string)) func(*spec, string) {
		return func(s *spec, v string) {
			if s.ResourceAttributes != nil {
				change(s.ResourceAttributes, v)
			}
		}
	}
	path := func(before, after string) func(*spec, string) {
		return func(s *spec, v string) {
			if s.NonResourceAttributes != nil {
				s.NonResourceAttributes.Path = before + v + after
			}
		}
	}
	return []Attribute{
		{"user", func(g *scenarios.Grant, v string) { g.Subject = scenarios.Subject{User: v} }, func(s *spec, v string) { s.User = v }, true, false},
		{"groups", func(g *scenarios.Grant, v string) { g.Subject = scenarios.Subject{Group: v} }, func(s *spec, v string) {
			at := len(v) % (len(s.Groups) + 1)
			s.Groups = slices.Insert(slices.Clone(s.Groups), at, v)
		}, true, false},
		{"verb", func(g *scenarios.Grant, v string) { g.Verbs = append(g.Verbs, v) }, func(s *spec, v string) {
			if s.ResourceAttributes != nil {
				s.ResourceAttributes.Verb = v
			} else {
				s.NonResourceAttributes.Verb = v
			}
		}, false, false},
		{"api-group", func(g *scenarios.Grant, v string) { g.APIGroups = append(g.APIGroups, v) }, of(func(a *resource, v string) { a.Group = v }), false, false},
		{"resource", func(g *scenarios.Grant, v string) { g.Resources = append(g.Resources, v) }, of(func(a *resource, v string) { a.Resource = v }), false, false},
		{"subresource", func(g *scenarios.Grant, v string) { g.Resources = append(g.Resources, withSub+"/"+v) }, of(func(a *resource, v string) { a.Subresource = v }), false, false},
		{"name", func(g *scenarios.Grant, v string) { g.Names = append(g.Names, v) }, of(func(a *resource, v string) { a.Name = v }), false, false},
		{"namespace", func(g *scenarios.Grant, v string) { g.Namespace = v }, of(func(a *resource, v string) { a.Namespace = v }), true, false},
		{"path", func(g *scenarios.Grant, v string) { g.NonResourceURLs = append(g.NonResourceURLs, v) }, path("", ""), false, true},
		{"path-below", func(g *scenarios.Grant, v string) { g.NonResourceURLs = append(g.NonResourceURLs, v+"/*") }, path("", "/below"), false, true},
	}
}

// withSub is the resource of which subresources are granted.
const withSub = "pods"

// value is what an attribute has in a review.
func (a Attribute) value(s spec) (string, bool) {
	r := s.ResourceAttributes
	switch {
	case a.Name == "user":
		return s.User, true
	case a.Name == "path" && s.NonResourceAttributes != nil:
		return s.NonResourceAttributes.Path, true
	case a.Name == "verb" && s.NonResourceAttributes != nil:
		return s.NonResourceAttributes.Verb, true
	case r == nil:
		return "", false
	}
	v, ok := map[string]string{"verb": r.Verb, "api-group": r.Group, "resource": r.Resource, "subresource": r.Subresource, "name": r.Name, "namespace": r.Namespace}[a.Name]
	return v, ok
}

// Like is a review that only the wrong comparison of an attribute takes for this one, if the relation has such a pair
// that fits any string.
func (a Attribute) Like(s authorizationv1.SubjectAccessReviewSpec, pair [2]string) (authorizationv1.SubjectAccessReviewSpec, bool) {
	v, ok := a.value(s)
	like := Form(pair[1], v)
	if !ok || v == "" || pair[0] != "{}" || like == v || !a.askable(like) {
		return s, false
	}
	out := s.DeepCopy()
	a.ask(out, like)
	return *out, true
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// maxPath is how long a path is asked about: there are engines that have a relationship for each beginning of it.
const maxPath = 300

// askable says whether a review can have the value: nobody's name is empty.
func (a Attribute) askable(v string) bool {
	switch a.Name {
	case "user", "resource":
		return v != ""
	case "path", "path-below":
		return len(v) <= maxPath
	}
	return true
}

// grantable says whether the value of a form can be granted, alone, to somebody of the seed.
func (a Attribute) grantable(form, v string) bool {
	switch {
	case v == "" && a.Name != "api-group", v == "*", !a.askable(v):
		return false
	case a.Name == "path":
		return !strings.HasSuffix(v, "*")
	case strings.HasSuffix(a.Name, "resource") && strings.Contains(v, "/"):
		return false // it could be a subresource
	case a.Name == "namespace":
		return len(v) <= 63 && label.MatchString(v)
	case a.single:
		return strings.Contains(form, "{")
	}
	return !strings.ContainsFunc(v, unicode.IsControl)
}
