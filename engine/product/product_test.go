package product

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// dice is a product for tests: it records numbers, and judges that they are below a limit.
var dice = Product{Name: "dice", Command: "dice", New: func(fs *pflag.FlagSet) Flags {
	f := &diceFlags{}
	fs.IntVar(&f.throws, "throws", 3, "how often")
	fs.IntVar(&f.limit, "limit", 4, "the most that passes")
	return f
}}

type diceFlags struct{ throws, limit int }

func (f *diceFlags) Plan(i *Invocation) (Plan, error) {
	if f.throws < 1 {
		return nil, fmt.Errorf("--throws %d: expected at least 1", f.throws)
	}
	p := &dicePlan{limit: f.limit}
	for n := range f.throws {
		p.cases = append(p.cases, NewCase("table", fmt.Sprintf("throw-%d", n), scenarios.Core))
	}
	return p, nil
}

type thrown struct {
	Number int    `json:"number"`
	Said   string `json:"said"`
}

type dicePlan struct {
	cases []Case
	limit int
	lost  string // the case of which nothing is recorded
	panic bool
}

func (p *dicePlan) Cases() []Case { return p.cases }

func (p *dicePlan) Select(leaveOut func(Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" {
			p.cases[i].NotRun = &NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

func (p *dicePlan) Run(_ context.Context, log *record.Log, o Observer) error {
	o.Say("rolling")
	for n, c := range p.cases {
		if c.NotRun != nil || c.ID == p.lost {
			continue
		}
		if err := log.Append(c.ID, thrown{Number: n + 1, Said: "Bearer abcdefghijklmnopqrstuvwxyz0123456789"}); err != nil {
			return err
		}
		o.Done(c.ID)
	}
	return nil
}

func (p *dicePlan) Judge(id string, evidence record.View) reports.Result {
	if p.panic {
		panic("the judge broke")
	}
	e, err := record.Read[thrown](evidence, id)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: err.Error()}
	}
	if e.Number > p.limit {
		return reports.Result{Verdict: verdicts.Failed, Judged: 1, Reason: fmt.Sprintf("%d is more than %d", e.Number, p.limit)}
	}
	return reports.Result{Verdict: verdicts.Passed, Judged: 1}
}

func (p *dicePlan) Conclude(results []reports.Result, _ record.View) (*reports.Report, error) {
	return &reports.Report{
		Subject: reports.Subject{Name: "a die"},
		Groups:  Group(p.cases, results),
		Figures: []reports.Figure{{Name: "throws", Value: float64(len(results))}},
	}, nil
}

func invocation(seed int64) *Invocation {
	i := NewInvocation(nil, "v0", io.Discard)
	i.Seed = seed
	return i
}

// run runs a plan of dice with a command line, and returns the files of its folder.
func run(t *testing.T, plan *dicePlan, args ...string) (*Made, map[string][]byte) {
	t.Helper()
	var judged []string
	made, err := Execute(t.Context(), Run{
		Prepared: &Prepared{Product: dice, Plan: plan}, Invocation: invocation(7),
		Command: append([]string{"authzconf", "dice"}, args...),
		Say:     func(string) {}, Judged: func(c Case, r reports.Result) { judged = append(judged, c.Name+" "+string(r.Verdict)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := reports.Save(dir, made.Report, made.Log, nil, nil); err != nil {
		t.Fatal(err)
	}
	read, done, err := reports.ReadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	files := map[string][]byte{}
	names := []string{reports.ReportFile, record.IndexFile}
	index, err := read(record.IndexFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, record.Index(index)...) {
		if files[name], err = read(name); err != nil {
			t.Fatal(err)
		}
	}
	return made, files
}

// planDice plans as the command line does.
func planDice(words []string) (*CommandLine, []string, error) {
	fs := pflag.NewFlagSet("dice", pflag.ContinueOnError)
	c := NewCommandLine(dice, fs, nil)
	err := fs.Parse(words[1:])
	return c, fs.Args(), err
}

func planned(t *testing.T, throws, limit int) *dicePlan {
	t.Helper()
	plan, err := (&diceFlags{throws, limit}).Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan.(*dicePlan)
}

func verify(files map[string][]byte) ([]string, error) {
	v, err := Verify(func(name string) ([]byte, error) {
		if data, ok := files[name]; ok {
			return data, nil
		}
		return nil, errors.New("it is missing")
	}, planDice, io.Discard)
	if err != nil {
		return nil, err
	}
	return v.Differences, nil
}

func TestExecuteAndVerify(t *testing.T) {
	tests := map[string]struct {
		change func(*dicePlan)
		limit  int
		want   verdicts.Verdict
	}{
		"passed":               {func(*dicePlan) {}, 4, verdicts.Passed},
		"failed":               {func(*dicePlan) {}, 2, verdicts.Failed},
		"evidence is missing":  {func(p *dicePlan) { p.lost = "table/throw-1" }, 4, verdicts.Invalid},
		"nothing was selected": {func(p *dicePlan) { p.Select(func(Case) string { return "not in --focus" }) }, 4, verdicts.Invalid},
		"the judge panics":     {func(p *dicePlan) { p.panic = true }, 4, verdicts.Invalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := planned(t, 3, test.limit)
			test.change(plan)
			made, files := run(t, plan, fmt.Sprintf("--limit=%d", test.limit))
			if got := made.Report.Outcome.Result; got != test.want {
				t.Errorf("outcome %s, want %s: %q", got, test.want, made.Report.Outcome.Reasons)
			}
			for file, data := range files {
				if strings.Contains(string(data), "abcdefghijklmnopqrstuvwxyz") {
					t.Errorf("%s has a token", file)
				}
			}
			if name != "passed" && name != "failed" && name != "evidence is missing" {
				return // The plan was changed behind the command line.
			}
			if differences, err := verify(files); err != nil || len(differences) > 0 {
				t.Errorf("verify: %v, %q", err, differences)
			}
		})
	}
}

// TestVerifyNotices changes one thing each in an honest report.
func TestVerifyNotices(t *testing.T) {
	tests := map[string]struct {
		file, from, to string
		want           string
	}{
		"another verdict":      {reports.ReportFile, "verdict: failed", "verdict: passed", "it is not what the record gives"},
		"another command line": {reports.ReportFile, "- --limit=2", "- --limit=9", "it is not what the record gives"},
		"other evidence":       {"evidence/table/throw-2.json", `"number": 3`, `"number": 1`, "its digest is not the one in record.jsonl"},
		"the plan of less":     {"evidence/run.json", `"--limit=2"`, `"--throws=2"`, "its digest is not the one in record.jsonl"},
		"the index":            {record.IndexFile, `"file":"evidence/table/throw-0.json"`, `"file":"evidence/table/throw-9.json"`, "it is missing"},
		"an unknown field":     {reports.ReportFile, "seed: 7", "seed: 7\nsead: 8", "sead"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, files := run(t, planned(t, 3, 2), "--limit=2")
			before := string(files[test.file])
			if !strings.Contains(before, test.from) {
				t.Fatalf("%s does not contain %q:\n%s", test.file, test.from, before)
			}
			files[test.file] = []byte(strings.Replace(before, test.from, test.to, 1))
			differences, err := verify(files)
			if err != nil {
				differences = append(differences, err.Error())
			}
			if !slices.ContainsFunc(differences, func(d string) bool { return strings.Contains(d, test.want) }) {
				t.Errorf("got %q, want %q", differences, test.want)
			}
		})
	}
}

// TestVerifyPlansAgain leaves a case out of a record that is consistent in itself.
func TestVerifyPlansAgain(t *testing.T) {
	_, files := run(t, planned(t, 2, 4)) // The command line asks for three throws.
	differences, err := verify(files)
	if err != nil || len(differences) != 1 || !strings.Contains(differences[0], "table/throw-2 is missing in the record") {
		t.Errorf("%v, %q", err, differences)
	}
}
