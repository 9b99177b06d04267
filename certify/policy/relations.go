package policy

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"fmt"
	"maps"
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

// Relation is a way to take two different strings for the same.
type Relation struct {
	Class string `json:"class"`
	// Names is set if the relation is about names as directories and networks write them.
	Names bool `json:"names"`
	// Why says what is right.
	Why   string      `json:"why"`
	Pairs [][2]string `json:"pairs"` // the forms of two strings (see relations.yaml)
}

// object is what a grant or a review is about, with a verb in some tables.
type object struct {
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Verb        string `json:"verb"`
}

// tables are the lists in relations.yaml.
type tables struct {
	Relations []Relation `json:"relations"`
	Verbs     []string   `json:"verbs"`
	PathVerbs []string   `json:"pathVerbs"`
	Actions   []string   `json:"actions"`
	Modes     []string   `json:"modes"`
	// ModePatterns are verbs of impersonation that contain a *. PatternVerbs are asked about where one of these is
	// granted.
	ModePatterns []string `json:"modePatterns"`
	PatternVerbs []string `json:"patternVerbs"`
	// WildcardVerbs and WildcardObjects are asked about where a * is granted.
	WildcardVerbs   []string `json:"wildcardVerbs"`
	WildcardObjects []object `json:"wildcardObjects"`
	Resources       []object `json:"resources"`
	// SeemingConsequences are pairs of a verb and an API group, resource and subresource, with a name where it matters.
	SeemingConsequences [][2]string `json:"follows"`
	Users               []string    `json:"users"`
	Groups              []string    `json:"groups"`
	Namespaces          []string    `json:"namespaces"`
	Paths               []string    `json:"paths"`
	OpenToEverybody     []object    `json:"freely"`
	Separators          []string    `json:"separators"`
	OwnNodeRights       []object    `json:"onNode"` // what the Node authorizer allows a node to do to itself
	// WellKnownRights are things that an identity with a well-known name may do without being granted them. ExtraKeys
	// are keys of user.extra. Objects are other things that code knows by name.
	WellKnownRights []object `json:"busy"`
	ExtraKeys       []string `json:"extra"`
	Objects         []object `json:"objects"`
	// Reasons say what is right, for reasons that belong to no relation.
	Reasons map[string]string `json:"reasons"`
}

var loadTables = sync.OnceValue(func() *tables { return fixtures.Table[*tables]("relations.yaml", relationsYAML) })

// Relations returns the relations for which the policy has grants.
func Relations() []Relation { return loadTables().Relations }

// Reasons returns the names of the reasons that belong to no relation, in order.
func Reasons() []string { return slices.Sorted(maps.Keys(loadTables().Reasons)) }

// Why returns what is right where an authorizer is wrong for a reason, or "" if there is nothing to say.
func Why(reason string) string {
	if r := relationOf(reason); r != nil {
		return r.Why
	}
	return loadTables().Reasons[reason]
}

// Class returns the class of the relation that a reason is about, or "" if it is about something else.
func Class(reason string) string {
	if r := relationOf(reason); r != nil {
		return r.Class
	}
	return ""
}

// relations remembers what relationOf returned, which is needed of every question and every answer.
var relations sync.Map

// relationOf returns the relation that a reason is about, or nil if there is none.
func relationOf(reason string) *Relation {
	if r, isKnown := relations.Load(reason); isKnown {
		return r.(*Relation)
	}
	all := loadTables().Relations
	i := slices.IndexFunc(all, func(r Relation) bool {
		ignores := r.Class == "ignored" && strings.HasPrefix(reason, "ignores-")
		return ignores || strings.HasSuffix(reason, "-"+r.Class)
	})
	var found *Relation
	if i >= 0 {
		found = &all[i]
	}
	relations.Store(reason, found)
	return found
}

var placeholder = regexp.MustCompile(`\{[a-z0-9]*\}`)

// Form makes one string of a pair from a name.
func Form(form, s string) string {
	s = cmp.Or(s, "x")
	runes, last := []rune(s), len(s)-1
	return placeholder.ReplaceAllStringFunc(form, func(token string) string {
		switch token {
		case "{}":
			return s
		case "{upper}":
			return strings.ToUpper(s)
		case "{title}":
			title := slices.Clone(runes)
			if i := slices.IndexFunc(title, unicode.IsLetter); i >= 0 {
				title[i] = unicode.ToUpper(title[i])
			}
			return string(title)
		case "{other}":
			return "other" + reverse(s)
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
		if address, ok := addressOf(token, s); ok {
			return address
		}
		n, err := strconv.Atoi(strings.Trim(token, "{}"))
		if err != nil {
			return token
		}
		return s + strings.Repeat("a", max(0, n-len(s)))
	})
}

func reverse(s string) string {
	out := []rune(s)
	slices.Reverse(out)
	return string(out)
}

// Attribute is an attribute of a review that grants are about.
type Attribute struct {
	Name string
	// addToGrant adds a value to what a grant covers. setInReview sets it in a review.
	addToGrant  func(g *scenarios.Grant, value string)
	setInReview func(s *spec, value string)
	// isSingle is set if a grant has only one value of the attribute.
	isSingle bool
	// isOnPath is set if the attribute is compared in reviews about paths.
	isOnPath bool
	// isNamesOnly is set if only relations about ways to write names apply, and the relation that ignores the attribute.
	isNamesOnly bool
}

// compares reports whether a relation applies to the attribute.
func (a Attribute) compares(r Relation) bool {
	isUnicode := slices.Contains([]string{"specially-folded", "unseen-marks", "other-scripts", "compatibility-forms"}, r.Class)
	return !a.isNamesOnly || r.Names || isUnicode || r.Class == "ignored"
}

type spec = authorizationv1.SubjectAccessReviewSpec

// Attributes returns all attributes that are compared.
func Attributes() []Attribute {
	type resource = authorizationv1.ResourceAttributes
	resourceSetter := func(change func(a *resource, v string)) func(*spec, string) {
		return func(s *spec, v string) {
			if s.ResourceAttributes != nil {
				change(s.ResourceAttributes, v)
			}
		}
	}
	pathSetter := func(before, after string) func(*spec, string) {
		return func(s *spec, v string) {
			if s.NonResourceAttributes != nil {
				s.NonResourceAttributes.Path = before + v + after
			}
		}
	}
	return []Attribute{
		{"user", func(g *scenarios.Grant, v string) { g.Subject = scenarios.Subject{User: v} }, func(s *spec, v string) { s.User = v }, true, false, false},
		{"groups", func(g *scenarios.Grant, v string) { g.Subject = scenarios.Subject{Group: v} }, func(s *spec, v string) {
			at := len(v) % (len(s.Groups) + 1)
			s.Groups = slices.Insert(slices.Clone(s.Groups), at, v)
		}, true, false, false},
		{"verb", func(g *scenarios.Grant, v string) { g.Verbs = append(g.Verbs, v) }, func(s *spec, v string) {
			if s.ResourceAttributes != nil {
				s.ResourceAttributes.Verb = v
			} else {
				s.NonResourceAttributes.Verb = v
			}
		}, false, false, false},
		{"api-group", func(g *scenarios.Grant, v string) { g.APIGroups = append(g.APIGroups, v) }, resourceSetter(func(a *resource, v string) { a.Group = v }), false, false, false},
		{"resource", func(g *scenarios.Grant, v string) { g.Resources = append(g.Resources, v) }, resourceSetter(func(a *resource, v string) { a.Resource = v }), false, false, false},
		{"subresource", func(g *scenarios.Grant, v string) { g.Resources = append(g.Resources, subresourceParent+"/"+v) }, resourceSetter(func(a *resource, v string) { a.Subresource = v }), false, false, false},
		{"name", func(g *scenarios.Grant, v string) { g.Names = append(g.Names, v) }, resourceSetter(func(a *resource, v string) { a.Name = v }), false, false, false},
		{"namespace", func(g *scenarios.Grant, v string) { g.Namespace = v }, resourceSetter(func(a *resource, v string) { a.Namespace = v }), true, false, false},
		{"path", func(g *scenarios.Grant, v string) { g.NonResourceURLs = append(g.NonResourceURLs, v) }, pathSetter("", ""), false, true, false},
		{"path-below", func(g *scenarios.Grant, v string) { g.NonResourceURLs = append(g.NonResourceURLs, v+"/*") }, pathSetter("", "/below"), false, true, false},
		{"extra-value", func(g *scenarios.Grant, v string) { g.Names = append(g.Names, v) }, resourceSetter(func(a *resource, v string) { a.Name = v }), false, false, true},
	}
}

// subresourceParent is the resource whose subresources are granted.
const subresourceParent = "pods"

// extraValues is the resource by which values of user.extra are impersonated. Its names are the values.
var extraValues = object{Group: "authentication.k8s.io", Resource: "userextras/scopes"}

// value returns the value that an attribute has in a review.
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
	v, ok := map[string]string{
		"verb":        r.Verb,
		"api-group":   r.Group,
		"resource":    r.Resource,
		"subresource": r.Subresource,
		"name":        r.Name,
		"namespace":   r.Namespace,
	}[a.Name]
	return v, ok
}

// MakeLookalike returns a review that only a wrong comparison takes for this one. It returns false if the relation has
// no pair that fits any string.
func (a Attribute) MakeLookalike(
	s authorizationv1.SubjectAccessReviewSpec,
	pair [2]string,
) (authorizationv1.SubjectAccessReviewSpec, bool) {
	v, ok := a.value(s)
	spelling := Form(pair[1], v)
	fitsAny := pair[0] == "{}" && v != ""
	isAnother := spelling != v && a.canAskFor(spelling)
	isPossible := fitsAny && isAnother
	if !ok || !isPossible {
		return s, false
	}
	out := s.DeepCopy()
	a.setInReview(out, spelling)
	return *out, true
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// maxPath is the longest path that is asked about. Some engines store a relationship for each beginning of a path.
const maxPath = 300

// canAskFor reports whether a review can have the value. Nobody's name is empty.
func (a Attribute) canAskFor(v string) bool {
	switch a.Name {
	case "user", "resource":
		return v != ""
	case "path", "path-below":
		return len(v) <= maxPath
	}
	return true
}

// canGrant reports whether the value of a form can be granted by itself to somebody of the seed.
func (a Attribute) canGrant(form, v string) bool {
	switch {
	case v == "" && a.Name != "api-group", v == "*", !a.canAskFor(v):
		return false
	case a.Name == "path":
		return !strings.HasSuffix(v, "*")
	case strings.HasSuffix(a.Name, "resource") && strings.Contains(v, "/"):
		return false // it could name a subresource
	case a.Name == "namespace":
		return len(v) <= 63 && label.MatchString(v)
	case a.isSingle:
		return strings.Contains(form, "{")
	}
	return !strings.ContainsFunc(v, unicode.IsControl)
}
