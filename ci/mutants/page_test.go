package mutants

import (
	_ "embed" // the page
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/internal/seq"
)

// table is one of Markdown. Columns whose head ends with a colon are numbers.
type table struct{ strings.Builder }

func newTable(heads ...string) *table {
	t := &table{}
	names, lines := make([]any, len(heads)), make([]any, len(heads))
	for i, head := range heads {
		name, number := strings.CutSuffix(head, ":")
		names[i], lines[i] = name, "---"
		if number {
			lines[i] = "--:"
		}
	}
	t.row(names...)
	t.row(lines...)
	return t
}

// row adds a row; text is made to fit into cells.
func (t *table) row(cells ...any) {
	for _, c := range cells {
		if text, ok := c.(string); ok {
			c = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
		}
		_, _ = fmt.Fprintf(t, "| %v ", c)
	}
	t.WriteString("|\n")
}

// code shows source in a cell.
func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

func percent(part, whole int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}

// markdown is the whole table of mutants. What its words mean is in docs/mutants.md.
func (r *results) markdown() string {
	var out strings.Builder
	fmt.Fprintf(
		&out,
		"# Broken API servers, and what catches each\n\nMutants of Kubernetes %s, by `make mutants`.\n\n**%s.**\n",
		r.Kubernetes,
		r.summary(),
	)
	for _, by := range []struct {
		title string
		of    func(Result) string
	}{
		{"part", func(one Result) string { return one.Part }},
		{"function", func(one Result) string { return one.File + ", " + code(one.Function) }},
		{"kind of change", func(one Result) string { return one.Operator }},
	} {
		out.WriteString("\n## By " + by.title + "\n\n" + r.Results.by(by.of))
	}
	for _, some := range []struct {
		title    string
		statuses []Status
	}{
		{"Not caught", []Status{Survived, NotCovered}},
		{"Equivalent", []Status{Equivalent}},
		{"Caught", statuses[:3]},
	} {
		out.WriteString("\n## " + some.title + "\n\n" + r.Results.only(some.statuses...))
	}
	return out.String()
}

// by counts the results by what group says of each, in the order in which the groups come.
func (l list) by(group func(Result) string) string {
	heads := seq.Map(statuses, func(s Status) string { return string(s) + ":" })
	t := newTable(slices.Concat([]string{"", "mutants:"}, heads, []string{"failed:", "caught:"})...)
	seen := map[string]bool{}
	for _, one := range l {
		name := group(one)
		if seen[name] {
			continue
		}
		seen[name] = true
		some := l.where(func(other Result) bool { return group(other) == name })
		cells := []any{name, len(some)}
		for _, s := range statuses {
			cells = append(cells, some.count(s))
		}
		failed, caught := some.scores()
		t.row(append(cells, failed, caught)...)
	}
	return t.String()
}

// only shows the mutants with one of the statuses.
func (l list) only(which ...Status) string {
	some := l.where(func(one Result) bool { return slices.Contains(which, one.Status) })
	if len(some) == 0 {
		return "None.\n"
	}
	t := newTable("mutant", "line:", "source", "change", "status", "by, or why not")
	for _, one := range some {
		note := one.Reason
		if one.Status.Caught() {
			// The first difference without its values: names are others in every run.
			note = fmt.Sprintf("%s (%s)", one.Scenario, one.Cell)
			if field, _, ok := strings.Cut(one.Difference, ": want "); ok && one.Status == Killed {
				note += ", " + field
			}
		}
		t.row(one.Key, one.Line, code(one.Snippet), one.Change, string(one.Status), note)
	}
	return t.String()
}

// TestServerCoverage runs the whole suite against the kube-apiserver with all mutants in it, none of them chosen, gate on
// and gate off, and counts how many of the places where a mutant changes something are reached, of each part. It wants
// every place to be reached, argued to be unreachable, or in open.yaml, and no argument to be wrong.
func TestServerCoverage(t *testing.T) {
	if flags.coverage == "" {
		t.Skip("-coverage says which page to write (make server-coverage)")
	}
	if _, err := flags.check(); err != nil {
		t.Fatal(err)
	}
	run, found, err := flags.measure(interruptible(t), t)
	if err != nil {
		t.Fatal(err)
	}
	r := newReach(found, run.Reached)
	if err := os.WriteFile(flags.coverage, []byte(r.markdown()), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintln(t.Output(), r.total())
	if err := errors.Join(r.wrong...); err != nil {
		t.Error(err)
	}
}

// reach is which places the suite reaches.
type reach struct {
	*results
	reached func(number int) bool
	// argued are places that no client reaches, missing those that nothing is argued about.
	argued, missing []Mutant
	wrong           []error
}

func newReach(found *results, reached func(int) bool) *reach {
	r := &reach{results: found, reached: reached}
	for _, m := range found.mutants {
		switch {
		case reached(m.Number) && found.is(m.Key, unreachable):
			r.wrong = append(r.wrong, fmt.Errorf("%s: argued to be unreachable, but reached: %s", m.Key, m.Snippet))
		case reached(m.Number):
		case found.argued(m.Key):
			r.argued = append(r.argued, m)
		default:
			r.missing = append(r.missing, m)
			if !found.is(m.Key, open) {
				r.wrong = append(r.wrong, fmt.Errorf("%s: not reached, no argument why, and not in %s: %s", m.Key, openFile, m.Snippet))
			}
		}
	}
	return r
}

// total is what is reached of each part.
func (r *reach) total() string {
	var lines []string
	for _, p := range r.parts {
		count := func(some []Mutant) (n int) {
			for _, m := range some {
				if m.Part == p.Name {
					n++
				}
			}
			return n
		}
		all, left := count(r.mutants), count(r.missing)
		reachable := all - count(r.argued)
		lines = append(lines, fmt.Sprintf("%s: %d of %d places (%s); of the %d that a client can reach, %s",
			p.Name, reachable-left, all, percent(reachable-left, all), reachable, percent(reachable-left, reachable)))
	}
	return strings.Join(lines, "\n")
}

// coveragePage is the published page: the release, the totals, the functions, and what is not reached, argued and not.
//
//go:embed coverage.txt
var coveragePage string

// markdown is the published page.
func (r *reach) markdown() string {
	functions := newTable("part", "file", "function", "places:", "reached:", "share:")
	for i := 0; i < len(r.mutants); {
		first, places, reached := r.mutants[i], 0, 0
		for ; i < len(r.mutants) && r.mutants[i].File == first.File && r.mutants[i].Function == first.Function; i++ {
			places++
			if r.reached(r.mutants[i].Number) {
				reached++
			}
		}
		functions.row(first.Part, first.File, code(first.Function), places, reached, percent(reached, places))
	}
	list := func(all []Mutant) string {
		if len(all) == 0 {
			return "Nothing.\n"
		}
		t, last := newTable("where", "source", "why"), ""
		for _, m := range all {
			where := fmt.Sprintf("%s:%d, %s", m.File, m.Line, code(m.Function))
			if why := r.arguments[m.Key].Reason; why == "" || where+why != last {
				t.row(where, code(m.Snippet), why)
				last = where + why
			}
		}
		return t.String()
	}
	return fmt.Sprintf(coveragePage, r.Kubernetes, strings.ReplaceAll(r.total(), "\n", "\n- "), functions, list(r.argued), list(r.missing))
}
