package certify

import (
	"encoding/base64"
	"fmt"
	"html"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/scenarios"
)

// comparison is a way to compare what is granted with what is asked.
type comparison struct {
	class, name string
	same        func(granted, asked string) bool
}

// both returns three comparisons: one applies a function to both strings, one only to what is asked, and one only to
// what is granted. The last two refuse what is granted.
func both(class, name string, f func(string) string) []comparison {
	return []comparison{
		{class, name, func(g, a string) bool { return f(g) == f(a) }},
		{class, name + ", asked only", func(g, a string) bool { return g == f(a) }},
		{class, name + ", granted only", func(g, a string) bool { return f(g) == a }},
		{class, name + ", twice", func(g, a string) bool { return g == a && f(g) == g }},
	}
}

func list(classes ...[]comparison) []comparison { return slices.Concat(classes...) }

func either(class, name string, same func(granted, asked string) bool) []comparison {
	return []comparison{{class, name, func(g, a string) bool { return g == a || same(g, a) }}}
}

func cutAt(n int) func(string) string { return func(s string) string { return s[:min(len(s), n)] } }

func keep(f func(rune) bool) func(string) string {
	return func(s string) string {
		return strings.Map(func(r rune) rune {
			if f(r) {
				return r
			}
			return -1
		}, s)
	}
}

func decoded(f func(string) (string, error)) func(string) string {
	return func(s string) string {
		if out, err := f(s); err == nil {
			return out
		}
		return s
	}
}

// wrongComparisons are the comparisons of relations, as somebody would program them in Go. None of them uses
// relations.yaml.
func wrongComparisons() (out []comparison) {
	out = list(
		either("ignored", "always", func(string, string) bool { return true }),
		either("ignored", "of the same length", func(g, a string) bool { return len(g) == len(a) }),
		[]comparison{{"ignored", "never", func(string, string) bool { return false }}},
		both("case-folded", "ToLower", strings.ToLower),
		both("case-folded", "ToUpper", strings.ToUpper),
		either("case-folded", "EqualFold", strings.EqualFold),
		both("blanks-trimmed", "TrimSpace", strings.TrimSpace),
		both("blanks-trimmed", "TrimLeft", func(s string) string { return strings.TrimLeft(s, " ") }),
		both("blanks-trimmed", "TrimRight", func(s string) string { return strings.TrimRight(s, " ") }),
		both("blanks-trimmed", "Fields", func(s string) string { return strings.Join(strings.Fields(s), " ") }),
		both("blanks-trimmed", "without", keep(func(r rune) bool { return !unicode.IsSpace(r) })),
		either("by-prefix", "asked has prefix", func(g, a string) bool { return strings.HasPrefix(a, g) }),
		either("by-prefix", "granted has prefix", func(g, a string) bool { return a != "" && strings.HasPrefix(g, a) }),
		either("by-suffix", "asked has suffix", func(g, a string) bool { return strings.HasSuffix(a, g) }),
		either("by-suffix", "granted has suffix", func(g, a string) bool { return a != "" && strings.HasSuffix(g, a) }),
		either("contained", "asked contains", func(g, a string) bool { return strings.Contains(a, g) }),
		either("contained", "granted contains", func(g, a string) bool { return a != "" && strings.Contains(g, a) }),
		both("normalised", "NFC", norm.NFC.String),
		both("normalised", "NFD", norm.NFD.String),
		both("normalised", "NFKC", norm.NFKC.String),
		both("normalised", "ASCII", keep(func(r rune) bool { return r < unicode.MaxASCII })),
		both("normalised", "letters", keep(unicode.IsLetter)),
		both("normalised", "underscores", func(s string) string { return strings.ReplaceAll(s, "-", "_") }),
		both("normalised", "printable", keep(unicode.IsPrint)),
		both("decoded", "PathUnescape", decoded(url.PathUnescape)),
		both("decoded", "QueryUnescape", decoded(url.QueryUnescape)),
		both("decoded", "HTML", html.UnescapeString),
		both("decoded", "quotes", func(s string) string { return strings.Trim(s, `"'`) }),
		both("decoded", "base64", decoded(func(s string) (string, error) {
			raw, err := base64.StdEncoding.DecodeString(s)
			return string(raw), err
		})),
		both("path-cleaned", "Clean", path.Clean),
		both("path-cleaned", "trailing slash", func(s string) string { return strings.TrimRight(s, "/") }),
		both("path-cleaned", "leading slash", func(s string) string { return strings.TrimLeft(s, "/") }),
		both("path-cleaned", "double slashes", func(s string) string { return strings.ReplaceAll(s, "//", "/") }),
		either("read-as-pattern", "regexp, granted", func(g, a string) bool { ok, _ := regexp.MatchString(g, a); return ok }),
		either("read-as-pattern", "regexp, whole", func(g, a string) bool { ok, _ := regexp.MatchString("^(?:"+g+")$", a); return ok }),
		either("read-as-pattern", "regexp, asked", func(g, a string) bool { ok, _ := regexp.MatchString("^("+a+")$", g); return ok && a != "" }),
		[]comparison{{"read-as-pattern", "regexp only", func(g, a string) bool { ok, err := regexp.MatchString("^(?:"+g+")$", a); return ok && err == nil }}},
		either("read-as-pattern", "glob, granted", func(g, a string) bool { ok, _ := path.Match(g, a); return ok }),
		either("read-as-pattern", "glob, asked", func(g, a string) bool { ok, _ := path.Match(a, g); return ok && a != "" }),
		[]comparison{{"read-as-pattern", "glob only", func(g, a string) bool { ok, err := path.Match(g, a); return ok && err == nil }}},
		either("read-as-pattern", "LIKE", func(g, a string) bool {
			ok, _ := regexp.MatchString("^"+strings.NewReplacer("_", ".", "%", ".*").Replace(regexp.QuoteMeta(g))+"$", a)
			return ok
		}),
		either("read-as-pattern", "a * at the end", func(g, a string) bool {
			before, star := strings.CutSuffix(g, "*")
			return star && strings.HasPrefix(a, before)
		}),
		either("separators-confused", "a list, asked", func(g, a string) bool { return slices.Contains(strings.Split(a, ","), g) }),
		either("separators-confused", "a list, blanks", func(g, a string) bool { return slices.Contains(strings.Fields(a), g) }),
		both("separators-confused", "colons and slashes", func(s string) string { return strings.ReplaceAll(s, ":", "/") }),
		both("separators-confused", "the last part of :", func(s string) string { return s[strings.LastIndex(s, ":")+1:] }),
		both("separators-confused", "the first part of /", func(s string) string { before, _, _ := strings.Cut(s, "/"); return before }),
		both("separators-confused", "the first part of @", func(s string) string { before, _, _ := strings.Cut(s, "@"); return before }),
		either("wildcard-asked", "*", func(_, a string) bool { return a == "*" }),
		either("empty-matches", "asked", func(_, a string) bool { return a == "" }),
		either("empty-matches", "granted", func(g, _ string) bool { return g == "" }),
	)
	out = append(out, wrongNames()...)
	for _, n := range []int{16, 20, 32, 63, 64, 128, 253, 256} {
		out = append(out, both("cut", fmt.Sprint("at ", n), cutAt(n))...)
	}
	for _, word := range []string{"default", "core", "null", "v1"} {
		out = append(out, either("default-read", word, func(g, a string) bool {
			return g == word && a == "" ||
				g == "" && a == word
		})...)
	}
	return out
}

// compared has the parts of the engine, each of which compares one attribute.
var compared = map[string]func(e *engine, same func(granted, asked string) bool){
	"user": func(e *engine, same func(g, a string) bool) { e.user = same },
	"groups": func(e *engine, same func(g, a string) bool) {
		e.member = func(g string, of []string) bool {
			return slices.ContainsFunc(of, func(a string) bool { return same(g, a) })
		}
	},
	"verb":      func(e *engine, same func(g, a string) bool) { e.verb = wild(same) },
	"api-group": func(e *engine, same func(g, a string) bool) { e.group = wild(same) },
	"resource": func(e *engine, same func(g, a string) bool) {
		e.resource = func(g, resource, sub string) bool {
			first, second, _ := strings.Cut(g, "/")
			return wild(same)(g, "\x00") ||
				second == sub &&
					(same(first, resource) ||
						first == "*" && sub != "")
		}
	},
	"subresource": func(e *engine, same func(g, a string) bool) {
		e.resource = func(g, resource, sub string) bool {
			first, second, has := strings.Cut(g, "/")
			return g == "*" ||
				(first == resource ||
					first == "*" && has) &&
					same(second, sub)
		}
	},
	"name": func(e *engine, same func(g, a string) bool) { e.name = same },
	"namespace": func(e *engine, same func(g, a string) bool) {
		e.namespace = func(g, a string) bool { return g == "" || same(g, a) }
	},
	"extra-value": func(e *engine, same func(g, a string) bool) { e.name = same },
	"path": func(e *engine, same func(g, a string) bool) {
		right := e.path
		e.path = func(g, a string) bool {
			if strings.HasSuffix(g, "*") {
				return right(g, a)
			}
			return same(g, a)
		}
	},
	"path-below": func(e *engine, same func(g, a string) bool) {
		e.path = func(g, a string) bool {
			before, star := strings.CutSuffix(g, "*")
			if g == a || g == "*" || !star {
				return g == a || g == "*"
			}
			for i := range len(a) + 1 {
				if same(before, a[:i]) {
					return true
				}
			}
			return false
		}
	},
}

func wild(same func(g, a string) bool) func(g, a string) bool {
	return func(g, a string) bool { return g == "*" || same(g, a) }
}

// firstWrong returns the first question of a plan that is answered wrongly.
func firstWrong(b *Plan, decide reference.Decider) *Question { return firstOf(b.All(), decide) }

func firstOf(questions []Question, decide reference.Decider) *Question {
	for _, q := range questions {
		if q.Form == literal {
			continue
		}
		if q.Expect == "" {
			// Most such requests are refused before anything is decided.
			body, _ := q.body()
			if _, s, err := reference.Decode(body); err == nil && decide(s) == scenarios.Allow {
				return &q
			}
			continue
		}
		// The spec is the same in v1beta1 and in v1.
		d := decide(q.Spec)
		isDeniedSafely := d == scenarios.Deny && q.Level == Safe
		if d != q.Expect && !isDeniedSafely {
			return &q
		}
	}
	return nil
}

func (v *Question) String() string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s: %s: expected %s", v.ID, describeSpec(v.Spec), v.Expect)
}

// decideBy makes a decider from an engine. It looks only at the grants of the user who asks, unless the engine compares
// users or groups wrongly.
func decideBy(e *engine, p *policy.Policy, anybody bool) reference.Decider {
	if anybody {
		return e.deciderBySubject(p)
	}
	of := map[scenarios.Subject][]*scenarios.Grant{}
	for i := range p.Grants {
		of[p.Grants[i].Subject] = append(of[p.Grants[i].Subject], &p.Grants[i])
	}
	return func(r review) scenarios.Decision {
		covers := func(g *scenarios.Grant) bool { return e.covers(g, r) }
		if slices.ContainsFunc(of[scenarios.Subject{User: r.User}], covers) {
			return scenarios.Allow
		}
		for _, group := range r.Groups {
			if slices.ContainsFunc(of[scenarios.Subject{Group: group}], covers) {
				return scenarios.Allow
			}
		}
		return scenarios.NoOpinion
	}
}

// cannotDiffer reports whether a comparison decides in the same way as the right one, because the policy can have no
// grant, or a review no value, that would show the difference.
func cannotDiffer(attribute string, c comparison) bool {
	if cannotDifferByName(attribute, c) {
		return true
	}
	first, how, _ := strings.Cut(c.name, ", ")
	granted, both := how == "granted only" || how == "twice", strings.TrimSuffix(c.name, ", asked only")
	one := func(of string, some ...string) bool { return slices.Contains(some, of) }
	switch {
	case attribute == "namespace" && granted: // a namespace of RBAC is a label: a to z, 0 to 9 and -, up to 63 characters
		return !one(first, "ToUpper", "letters", "underscores", "at 16", "at 20", "at 32")
	case attribute == "namespace" && one(both, "NFC", "NFD", "double slashes", "regexp, whole", "regexp only", "glob, granted", "glob only", "LIKE", "a * at the end", "colons and slashes", "at 64", "at 128", "at 253", "at 256"):
		return true
	case strings.HasSuffix(attribute, "resource") &&
		(first == "double slashes" ||
			granted &&
				(c.class == "path-cleaned" || first == "the first part of /")):
		return true // what follows a / is a subresource
	case attribute == "resource" && one(c.class, "empty-matches", "default-read"), attribute == "user" && c.class == "empty-matches":
		return true // never empty in a review
	case one(attribute, "user", "groups", "path-below") && c.class == "default-read", c.name == "granted" && c.class == "empty-matches" && attribute != "api-group" && attribute != "subresource":
		return true // not granted to anybody
	case attribute == "path-below" &&
		(first == "TrimRight" || one(c.name, "quotes", "base64", "asked has prefix")):
		return true // there is a / before the *
	}
	return strings.HasPrefix(attribute, "path") && c.name == "a * at the end" // that is right for paths
}

// score is how many generated authorizers a class has, and how many of them were rejected.
type score struct{ made, rejected int }

// scores are the scores by class. Unless everything is asked for, they count the first authorizer of a class and every
// seventh, others with each commit.
type scores map[string]*score

func (all scores) take(class string) bool {
	if all[class] == nil {
		all[class] = &score{}
	}
	all[class].made++
	return all[class].made == 1 || sample.TakesIndex(all[class].made, 7)
}

func share(of, all int) string { return fmt.Sprintf("%.1f %%", 100*float64(of)/float64(all)) }

// generatedAuthorizers returns everything that is generated: wrong comparisons of every attribute, and authorizers that
// take one thing for another.
func generatedAuthorizers(p *policy.Policy) (out []generated) {
	for _, attribute := range slices.Sorted(maps.Keys(compared)) {
		isAnybody := attribute == "user" || attribute == "groups"
		for _, c := range wrongComparisons() {
			if cannotDiffer(attribute, c) {
				continue
			}
			e := newEngine()
			compared[attribute](e, c.same)
			out = append(out, generated{c.class, attribute + " by " + c.name, func(reference.Decider) reference.Decider { return decideBy(e, p, isAnybody) }})
		}
	}
	return append(out, implies()...)
}

func TestGeneratedAreRejected(t *testing.T) {
	t.Parallel()
	seeds := []int64{1}
	if sample.IsEverything() {
		seeds = []int64{1, 2, 3}
	}
	all, asked := scores{}, 0
	for _, seed := range seeds {
		b := plan(t, seed)
		by := map[string][]Question{}
		for _, q := range b.All() {
			by[q.Reason] = append(by[q.Reason], q)
		}
		for _, g := range generatedAuthorizers(b.Policy) {
			if !all.take(g.class) {
				continue
			}
			asked++
			// The questions about the class come first, because they end most runs. A cache has to be empty each time.
			faulty := func() reference.Decider { return g.wrong(b.Policy.Decide) }
			if firstOf(by[g.name[:strings.Index(g.name+" ", " ")]+"-"+g.class], faulty()) == nil && firstOf(by[g.class], faulty()) == nil && firstWrong(b, faulty()) == nil {
				t.Errorf("seed %d: %s: %s: every level is granted", seed, g.class, g.name)
				continue
			}
			all[g.class].rejected++
		}
	}
	table := "| class | generated | rejected | share |\n|---|--:|--:|--:|\n"
	for _, class := range slices.Sorted(maps.Keys(all)) {
		table += fmt.Sprintf("| %s | %d | %d | %s |\n", class, all[class].made, all[class].rejected, share(all[class].rejected, all[class].made))
	}
	t.Logf("%d were asked\n%s", asked, table)
	if sample.IsEverything() {
		docs.ComparePart(t, "../docs/faulty-authorizers.md", "generated faulty authorizers", table, *update)
	}
}
