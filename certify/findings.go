package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// Finding is one cause of wrong answers in a certification, with the questions that show it.
type Finding struct {
	// Reason is its short name, and Level is the level that is lost by it.
	Reason string
	Level  CertificationLevel
	// Blame is whose fault it is, as far as the answers of the reference to the same questions show it. It is empty if
	// that was not found out.
	Blame verdicts.Blame
	// Advice is set if Kubernetes only recommends something else. Then no level is lost.
	Advice bool
	// Count is how many answers show the finding, and Examples are some of them.
	Count    int
	Examples []string
}

const maxExamples = 3

// Findings collects what is wrong, by reason, level, blame and whether it is advice. It keeps one table of everything,
// and one for each case.
type Findings struct {
	all     findingTable
	byCases map[string]findingTable
}

// findingTable has the findings by what distinguishes them.
type findingTable map[findingKey]*Finding

// findingKey is what distinguishes one finding from another.
type findingKey struct {
	reason string
	level  CertificationLevel
	blame  verdicts.Blame
	advice bool
}

// NewFindings returns an empty collection.
func NewFindings() *Findings {
	return &Findings{all: findingTable{}, byCases: map[string]findingTable{}}
}

// Add counts a finding of a case. The example is made and kept only if it is one of the first.
func (c *Findings) Add(caseID string, f Finding, example func() string) {
	example = sync.OnceValue(example)
	if c.byCases[caseID] == nil {
		c.byCases[caseID] = findingTable{}
	}
	c.all.add(f, example)
	c.byCases[caseID].add(f, example)
}

// add counts a finding, and keeps the example if it is one of the first.
func (t findingTable) add(f Finding, example func() string) {
	key := findingKey{f.Reason, f.Level, f.Blame, f.Advice}
	if t[key] == nil {
		t[key] = &f
	}
	finding := t[key]
	if finding.Count++; len(finding.Examples) < maxExamples {
		finding.Examples = append(finding.Examples, example())
	}
}

// Sorted returns the findings in the order of the given levels.
func (c *Findings) Sorted(order []CertificationLevel) []Finding { return c.all.sorted(order) }

// OfCase returns the findings of a case.
func (c *Findings) OfCase(id string) []Finding { return c.byCases[id].sorted(nil) }

// sorted returns the findings in the order of the given levels.
func (t findingTable) sorted(order []CertificationLevel) []Finding {
	out := seq.Map(slices.Collect(maps.Values(t)), func(f *Finding) Finding { return *f })
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Level), slices.Index(order, y.Level)), cmp.Compare(y.Count, x.Count),
			strings.Compare(x.Reason, y.Reason), strings.Compare(string(x.Blame), string(y.Blame)), cmp.Compare(fmt.Sprint(x.Advice), fmt.Sprint(y.Advice)))
	})
	return out
}

// difference returns the finding as a difference between what is right and what was answered.
func (f Finding) difference() verdicts.Difference {
	example, _, _ := strings.Cut(strings.Join(f.Examples, "\n"), "\n")
	right := cmp.Or(policy.Why(f.Reason), "no such answer")
	return verdicts.Difference{Field: f.Reason, Want: right, Got: reports.Plural(f.Count, "answer") + ", such as " + example}
}

// lines returns the finding for people, with its examples.
func (f Finding) lines() []string {
	head := fmt.Sprintf("%s (%s, %s)", f.Reason, f.Level, reports.Plural(f.Count, "answer"))
	if f.Advice {
		head += ", which the text only advises against"
	}
	if f.Blame != "" {
		head += fmt.Sprintf(", blame: %s", f.Blame)
	}
	lines := []string{head}
	for _, example := range f.Examples {
		for line := range strings.Lines(example) {
			lines = append(lines, "  "+strings.TrimRight(line, "\n"))
		}
	}
	return lines
}
