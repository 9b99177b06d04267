package loadgen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/pages"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
	"github.com/authzconf/authzconf/verdicts"
)

// execute judges a run of simulated.Profile.
func execute(t *testing.T, r run.Run, args ...string) *product.RunResult {
	t.Helper()
	file := filepath.Join(t.TempDir(), "simulated.yaml")
	if err := os.WriteFile(file, []byte(simulated.Profile), 0o600); err != nil {
		t.Fatal(err)
	}
	words := append([]string{"load", "--profile", file}, args...)
	return producttest.Run(t.Context(), t, Replaying(r), words...)
}

func save(t *testing.T, made *product.RunResult) string {
	t.Helper()
	rendered, err := pages.Render(made.Report)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "report")
	if err := reports.Save(dir, made.Report, made.Log, rendered, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func verify(t *testing.T, dir string) []string {
	t.Helper()
	return producttest.VerifyFolder(t, Product, dir, nil).Differences
}

func TestRecordedStorm(t *testing.T) {
	made := execute(t, simulated.OfProfile())
	if made.Report.Outcome.Result != verdicts.Passed {
		t.Fatalf("%s: %q", made.Report.Outcome.Result, made.Report.Outcome.Reasons)
	}
	dir := save(t, made)
	if differences := verify(t, dir); len(differences) > 0 {
		t.Errorf("an honest report: %q", differences)
	}
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Run.Blocks) != 80 || s.Result.Outcome != judge.Passed || s.Report.Product != "load" {
		t.Errorf("%d blocks, %s, %s", len(s.Run.Blocks), s.Result.Outcome, s.Report.Product)
	}
	// One byte of the evidence is changed.
	file := filepath.Join(dir, "evidence", "storm", "blocks", "0003.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), `"late": 0`, `"late": 1`, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil || changed == string(data) {
		t.Fatal(err)
	}
	if differences := verify(t, dir); len(differences) != 1 || !strings.Contains(differences[0], "0003.json: its digest is not") {
		t.Errorf("a block was changed: %q", differences)
	}
	if s, err := Open(dir, nil); err != nil || len(s.Differences) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestCasesSayWhatIsClaimed(t *testing.T) {
	made := execute(t, simulated.OfProfile())
	var names []string
	for _, g := range made.Report.Groups {
		for _, c := range g.Cases {
			names = append(names, fmt.Sprintf("%s | %s | %s | %s", g.Name, c.Level, c.Verdict, c.Case))
		}
	}
	for _, want := range []string{
		"the measuring | core | passed | the generator kept up",
		"the measuring | core | passed | two servers that are the same do not differ (A/A)",
		"same | extended | passed | legacy-gate-off on gate-off-2: as many reviews as predicted",
		"same | extended | passed | legacy-gate-off on gate-off: p99 at most 1s",
		"gate | extended | passed | associated-node on gate-on: at most 1.5 reviews per request",
		"gate | extended | passed | associated-node on gate-on: at most 0.1 % of the answers are errors",
		"gate | extended | passed | associated-node on gate-on: p99 of list at most 30s, as Kubernetes promises",
		"gate | extended | passed | gate: it was run",
		"gate | extended | passed | gate: p50 of B at most 5 % above that of A",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %q:\n%s", want, strings.Join(names, "\n"))
		}
	}
	ids := map[string]bool{}
	for _, s := range made.Report.Sections {
		ids[s.ID] = true
	}
	for _, id := range []string{"variants", "reviews", "comparisons", "usage", "servers"} {
		if !ids[id] {
			t.Errorf("the report has no section %s", id)
		}
	}
}

// TestAnswers checks that the answers come first: what a request costs and how much longer it takes, each with its
// grounds and its limits.
func TestAnswers(t *testing.T) {
	made := execute(t, simulated.OfProfile())
	rows := []string{made.Report.Answers.Title}
	for _, row := range made.Report.Answers.Rows {
		rows = append(rows, strings.Join(row.Cells, " | "))
	}
	text := strings.Join(rows, "\n")
	for _, want := range []string{
		"For 100 agents with 1 account, each every 12s; authorizer not known; v1.37.1",
		"reviews per request: legacy-gate-off on gate-off | 2.000 | 2 blocks | as predicted: 2.000 | first contact",
		"p50: associated-node on gate-on against legacy-gate-off on gate-off | ", " | 20 pairs in 5 starts | [",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "gate-off-2 against") {
		t.Errorf("two servers that are the same are no question:\n%s", text)
	}
	var terminal strings.Builder
	err := pages.WriteSummary(&terminal, made.Report, pages.SummaryOptions{})
	if err != nil || !strings.Contains(terminal.String(), "QUESTION ") ||
		strings.Contains(terminal.String(), "reviews per request\n") {
		t.Errorf("%v:\n%s", err, terminal.String())
	}
}

// TestOutcomes checks that the outcome of the report is the judge's, and that the case that is about it says so.
func TestOutcomes(t *testing.T) {
	fewer := func(r *run.Run) {
		r.Blocks = slices.DeleteFunc(r.Blocks, func(b run.Block) bool { return b.Is("gate") })
	}
	slow := func(r *run.Run) {
		for i := range r.Blocks {
			h := histogram.Histogram{}
			h.RecordN(2*time.Second, 400)
			if b := &r.Blocks[i]; b.Variant == "legacy-gate-off" {
				b.Latency, b.Service, b.Kinds = h, h, map[string]histogram.Histogram{"list": h}
			}
		}
	}
	for name, c := range map[string]struct {
		spoil   func(*run.Run)
		outcome judge.Outcome
		want    string // a case that did not pass
	}{
		"sound":                  {func(*run.Run) {}, judge.Passed, ""},
		"another prediction":     {func(r *run.Run) { r.Blocks[2].Predicted.Checks[0].Low++ }, judge.Failed, "as many reviews as predicted"},
		"late":                   {func(r *run.Run) { r.Blocks[2].Late = 90 }, judge.Inconclusive, "the generator kept up"},
		"late and not predicted": {func(r *run.Run) { r.Blocks[2].Late = 90; r.Blocks[2].Predicted.Checks[0].Low++ }, judge.Inconclusive, "the generator kept up"},
		"interrupted":            {func(r *run.Run) { r.Interrupted = true }, judge.Inconclusive, "nothing disturbed the run"},
		"a comparison less":      {fewer, judge.Inconclusive, "gate: it was run"},
		"errors":                 {func(r *run.Run) { r.Blocks[1].Answers = map[string]int64{"200": 300, "500": 100} }, judge.Failed, "of the answers are errors"},
		"a p99 of two seconds":   {slow, judge.Failed, "legacy-gate-off on gate-off: p99 at most 1s"},
		"no block":               {func(r *run.Run) { r.Blocks = nil }, judge.Inconclusive, "every block was executed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := simulated.OfProfile()
			if name == "errors" {
				i := slices.IndexFunc(r.Blocks, func(b run.Block) bool { return b.Variant == "associated-node" })
				r.Blocks[1], r.Blocks[i] = r.Blocks[i], r.Blocks[1]
			}
			c.spoil(&r)
			made := execute(t, r)
			want := map[judge.Outcome]verdicts.Verdict{judge.Passed: verdicts.Passed, judge.Failed: verdicts.Failed, judge.Inconclusive: verdicts.Invalid}[c.outcome]
			if got := made.Report.Outcome.Result; got != want {
				t.Errorf("%s, want %s: %q", got, want, made.Report.Outcome.Reasons)
			}
			found := c.want == ""
			for _, g := range made.Report.Groups {
				for _, result := range g.Cases {
					found = found ||
						result.Verdict != verdicts.Passed && strings.Contains(result.Case, c.want)
				}
			}
			if !found {
				t.Errorf("no case says %q: %q", c.want, made.Report.Outcome.Reasons)
			}
		})
	}
}

// TestSelect checks that what the user leaves out does not run, but that everything on which the rest depends does.
func TestSelect(t *testing.T) {
	made := execute(t, simulated.OfProfile(), "--focus", "gate-off-2: as many")
	if made.Report.Outcome.Result != verdicts.Passed {
		t.Errorf("%q", made.Report.Outcome.Reasons)
	}
	for _, g := range made.Report.Groups {
		if g.Name == measuringGroup && len(g.NotRun) > 0 {
			t.Errorf("checks were left out: %v", g.NotRun)
		}
	}
	line, rest, err := producttest.Parse(Product)([]string{"load", "--profile", "steady", "--focus", "no such case"})
	if err == nil {
		_, err = line.Prepare(product.NewInvocation(rest, "v0", io.Discard))
	}
	if !errors.Is(err, product.ErrNothingSelected) {
		t.Errorf("nothing is left: %v", err)
	}
	line, rest, err = producttest.Parse(Product)([]string{"load", "--profile", "steady", "--focus", "arbitrary"})
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := line.Prepare(product.NewInvocation(rest, "v0", io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range prepared.Plan.(*plan).options.Profile.Comparisons {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"aa", "arbitrary"}) {
		t.Errorf("comparisons %q", names)
	}
}

// TestNothingRecorded checks that a storm that ended before anything was recorded says so in each case.
func TestNothingRecorded(t *testing.T) {
	line, rest, err := producttest.Parse(Product)([]string{"load", "--profile", "steady", "--counts"})
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := line.Prepare(product.NewInvocation(rest, "v0", io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	var results []reports.Result
	for _, c := range prepared.Plan.Cases() {
		result := prepared.Plan.Judge(c.ID, record.New().View())
		if result.Verdict != verdicts.Invalid || !strings.Contains(result.Reason, "did not come to an end") {
			t.Errorf("%+v", result)
		}
		results = append(results, result)
	}
	if _, err := prepared.Plan.Conclude(results, record.New().View()); err != nil {
		t.Error(err)
	}
}
