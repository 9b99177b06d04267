package product_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

func invocation(seed int64) *product.Invocation {
	i := product.NewInvocation(nil, "v0", io.Discard)
	i.Seed = seed
	return i
}

// run runs a plan of dice with a command line, and returns the files of its folder.
func run(t *testing.T, plan *producttest.Plan, args ...string) (*product.RunResult, map[string][]byte) {
	t.Helper()
	made, err := execute(t.Context(), plan, args...)
	if err != nil {
		t.Fatal(err)
	}
	return made, save(t, made)
}

func execute(ctx context.Context, plan *producttest.Plan, args ...string) (*product.RunResult, error) {
	return product.Execute(ctx, product.Run{
		PreparedRun: &product.PreparedRun{Product: producttest.Dice, Plan: plan}, Invocation: invocation(7),
		Command: append([]string{"authzconf", "dice"}, args...),
		Say:     func(string) {}, Judged: func(product.Case, reports.Result) {},
	})
}

// save writes the report, and returns the files of its folder.
func save(t *testing.T, made *product.RunResult) map[string][]byte {
	t.Helper()
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
	return files
}

func verify(files map[string][]byte) ([]string, error) {
	v, err := product.Verify(func(name string) ([]byte, error) {
		if data, ok := files[name]; ok {
			return data, nil
		}
		return nil, errors.New("it is missing")
	}, producttest.Parse(producttest.Dice), io.Discard)
	if err != nil {
		return nil, err
	}
	return v.Differences, nil
}

// TestInterrupted ends runs early: the report names what interrupted the run and the error with which the plan ended, and
// verify finds the same.
func TestInterrupted(t *testing.T) {
	pressed := errors.New("somebody has pressed Ctrl-C")
	tests := map[string]struct {
		broken error
		want   string
	}{
		"in order":              {nil, "the run ended early: somebody has pressed Ctrl-C"},
		"with the interruption": {context.Canceled, "the run ended early: somebody has pressed Ctrl-C"},
		"with errors of its own": {
			errors.Join(errors.New("etcd does not stop"), errors.New("a folder is left")),
			"the run ended early: somebody has pressed Ctrl-C; etcd does not stop; a folder is left",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := producttest.NewPlan(3, 4)
			plan.Broken = test.broken
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(pressed)
			made, err := execute(ctx, plan)
			if err != nil {
				t.Fatal(err)
			}
			if o := made.Report.Outcome; o.Result != verdicts.Invalid || !slices.Contains(o.Reasons, test.want) {
				t.Errorf("outcome %s, %q, want the reason %q", o.Result, o.Reasons, test.want)
			}
			if differences, err := verify(save(t, made)); err != nil || len(differences) > 0 {
				t.Errorf("%v, %q", err, differences)
			}
		})
	}
	plan := producttest.NewPlan(3, 4)
	plan.Broken = errors.New("etcd does not start")
	if _, err := execute(t.Context(), plan); !errors.Is(err, plan.Broken) {
		t.Errorf("a run that nobody interrupted ended with %v", err)
	}
}

func TestExecuteAndVerify(t *testing.T) {
	tests := map[string]struct {
		change func(*producttest.Plan)
		limit  int
		want   verdicts.Verdict
	}{
		"passed":              {func(*producttest.Plan) {}, 4, verdicts.Passed},
		"failed":              {func(*producttest.Plan) {}, 2, verdicts.Failed},
		"evidence is missing": {func(p *producttest.Plan) { p.Lost = "table/throw-1" }, 4, verdicts.Invalid},
		"nothing was selected": {
			func(p *producttest.Plan) { p.Select(func(product.Case) string { return "not in --focus" }) },
			4,
			verdicts.Invalid,
		},
		"the judge panics": {func(p *producttest.Plan) { p.Panics = true }, 4, verdicts.Invalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := producttest.NewPlan(3, test.limit)
			test.change(plan)
			made, files := run(t, plan, fmt.Sprintf("--limit=%d", test.limit))
			if got := made.Report.Outcome.Result; got != test.want {
				t.Errorf("outcome %s, want %s: %q", got, test.want, made.Report.Outcome.Reasons)
			}
			for file, data := range files {
				if strings.Contains(string(data), producttest.Token) {
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
		"the index": {
			record.IndexFile,
			`"file":"evidence/table/throw-0.json"`,
			`"file":"evidence/table/throw-9.json"`,
			"it is missing",
		},
		"an unknown field": {reports.ReportFile, "seed: 7", "seed: 7\nsead: 8", "sead"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, files := run(t, producttest.NewPlan(3, 2), "--limit=2")
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
	_, files := run(t, producttest.NewPlan(2, 4)) // The command line asks for three throws.
	differences, err := verify(files)
	if err != nil || len(differences) != 1 || !strings.Contains(differences[0], "table/throw-2 is missing in the record") {
		t.Errorf("%v, %q", err, differences)
	}
}
