package docs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/evidencetest"
)

// aboutEvidence begins the source of rules that are no API server's business.
const aboutEvidence = "the evidence itself"

// TestRules makes docs/rules.md from the doc comments of the judges, and checks that every rule about API servers says where
// it is written.
func TestRules(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	examples := findExamples(t, set)
	all := readRules(t, "verdicts")
	for _, name := range all.silent {
		t.Errorf("the doc comment of %s is not of the form \"%s demands ...\", so that the page of rules would not have it", name, name)
	}
	servers, evidence := splitRules(all.rules)
	var b strings.Builder
	b.WriteString("## API servers\n\n| rule | what it demands | source | a scenario that it judges |\n|---|---|---|---|\n")
	for _, r := range servers {
		example := examples.linkTo(r)
		if r.source == "" {
			t.Errorf("%s: the doc comment of %s has no line %q", r.file, r.name, strings.TrimSpace(sourceLine))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.link(), escapeCell(r.demand), escapeCell(strings.TrimSuffix(r.source, ".")), example)
	}
	b.WriteString("\n## Evidence\n\nWithout these a result is invalid, because nothing is known of the API server.\n\n| rule | what it demands |\n|---|---|\n")
	for _, r := range evidence {
		fmt.Fprintf(&b, "| %s | %s |\n", r.link(), escapeCell(r.demand))
	}
	b.WriteString("\n## Deputies\n\n| rule | what it demands |\n|---|---|\n")
	for _, folder := range []string{"deputy", "deputy/dashboard"} {
		for _, r := range readRules(t, folder).rules {
			fmt.Fprintf(&b, "| %s | %s |\n", r.link(), escapeCell(r.demand))
		}
	}
	b.WriteString("\n## Authorizers\n\n")
	b.WriteString(renderReasons(t, set))
	ComparePart(t, "rules.md", "made from the doc comments by go test ./docs -update", b.String(), *update)
}

// splitRules returns the rules about API servers, and those about the evidence.
func splitRules(all []rule) (servers, evidence []rule) {
	for _, r := range all {
		if strings.HasPrefix(r.source, aboutEvidence) {
			evidence = append(evidence, r)
		} else {
			servers = append(servers, r)
		}
	}
	return servers, evidence
}

// link returns the rule's name as a link to the file that has it.
func (r rule) link() string { return fmt.Sprintf("[%s](../%s)", r.name, r.file) }

// compared is a field that was compared in a scenario.
type compared struct{ field, scenario string }

// comparisons are the fields that are compared in the scenarios, each with the first scenario in which it is.
type comparisons []compared

// findExamples judges all scenarios by evidence of API servers that do what is expected, and returns what was compared.
func findExamples(t *testing.T, set *scenarios.Set) (out comparisons) {
	t.Helper()
	known := map[string]bool{}
	for _, gate := range []scenarios.Gate{scenarios.GateOn, scenarios.GateOff} {
		facts := evidencetest.LocalFacts(gate)
		cell := verdicts.Cell{Name: "1.37-gate-" + string(gate), Provider: "local", Kubernetes: facts.Kubernetes, Gate: gate}
		for _, s := range set.All() {
			if isSelected, _, _ := s.Selected(facts); !isSelected {
				continue
			}
			e := evidencetest.Perfect(s, cell, facts.Capabilities, "x", evidencetest.Epoch)
			for _, d := range verdicts.MatchingComparisons(s, e) {
				if !known[d.Field] {
					known[d.Field] = true
					out = append(out, compared{d.Field, s.ID})
				}
			}
		}
	}
	return out
}

// linkTo returns a link to the first scenario in which a field of the rule is compared, and a dash if there is none: some rules
// need what only a real API server shows.
func (all comparisons) linkTo(r rule) string {
	i := slices.IndexFunc(all, func(c compared) bool { return r.fields != nil && r.fields.MatchString(c.field) })
	if i < 0 {
		return "–"
	}
	return fmt.Sprintf("[%s](../scenarios/%s.yaml)", all[i].scenario, all[i].scenario)
}

// reasonOf is a reason for which the answers to some questions of a plan can be wrong.
type reasonOf struct {
	level certify.CertificationLevel
	why   string
	// question is the name of one of the questions. count is how many there are.
	question string
	count    int
}

// renderReasons returns the tables of what certification demands: every reason for which an answer can be wrong, with what
// is right, and a question about it.
func renderReasons(t *testing.T, set *scenarios.Set) string {
	t.Helper()
	plan, err := certify.NewPlan(set, 1)
	if err != nil {
		t.Fatal(err)
	}
	safePlan, err := certify.NewSafePlan(1)
	if err != nil {
		t.Fatal(err)
	}
	reasons, safe := collectReasons(plan), collectReasons(safePlan)
	var b strings.Builder
	b.WriteString("The questions are those of seed 1: `authzconf certify explain QUESTION --seed 1 --authorizer-kubeconfig FILE` asks one again, and shows it as curl sends it.\n\n")
	renderTable(t, &b, reasons)
	b.WriteString("\n### Level safe\n\nThese are asked by `authzconf certify safe`, where nothing is granted.\n\n")
	renderTable(t, &b, safe)
	b.WriteString("\n### Any answer\n\nWhat can be wrong whatever was asked, and when it was asked.\n\n| finding | what is right |\n|---|---|\n")
	for _, reason := range policy.Reasons() {
		_, isOfQuestion := reasons[reason]
		_, isOfSafe := safe[reason]
		if !isOfQuestion && !isOfSafe {
			fmt.Fprintf(&b, "| %s | %s |\n", reason, escapeCell(policy.Why(reason)))
		}
	}
	return b.String()
}

// collectReasons returns the reasons of the questions of a plan, by their names. The same of each attribute is one.
func collectReasons(plan *certify.Plan) map[string]reasonOf {
	reasons := map[string]reasonOf{}
	for _, q := range plan.All() {
		name := cmp.Or(policy.Class(q.Reason), q.Reason)
		reason, isKnown := reasons[name]
		if !isKnown {
			reason = reasonOf{level: q.Level, why: policy.Why(q.Reason), question: q.ID}
		}
		reason.count++
		reasons[name] = reason
	}
	return reasons
}

// renderTable writes the table of reasons, and demands that relations.yaml says what is right about each.
func renderTable(t *testing.T, b *strings.Builder, reasons map[string]reasonOf) {
	t.Helper()
	b.WriteString("| an answer is wrong because it | level | what is right | questions | one of them |\n|---|---|---|--:|---|\n")
	for _, name := range sortedKeys(reasons) {
		reason := reasons[name]
		if reason.why == "" {
			t.Errorf("certify/policy/relations.yaml does not say what is right about %s", name)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %d | `%s` |\n", name, reason.level, escapeCell(reason.why), reason.count, reason.question)
	}
}

// TestNumberOfSafeReviews checks that docs/certify.md shows as many reviews of level safe as there are questions.
func TestNumberOfSafeReviews(t *testing.T) {
	plan, err := certify.NewSafePlan(1)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("\nsafe: %d reviews\n", len(plan.All()))
	if !strings.Contains(pages(t)["docs/certify.md"], want) {
		t.Errorf("certify.md does not show %q", strings.TrimSpace(want))
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
