package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports/statistics"
)

// columnOf is a simulated run that was judged.
func columnOf(r run.Run, thresholds judge.Thresholds) column {
	return column{Run: r, Result: judge.Judge(r, thresholds)}
}

// costOf is of simulated runs with one number of agents each.
func costOf(t *testing.T, agents ...int) *Cost {
	t.Helper()
	var runs []column
	for _, n := range agents {
		r := simulated.Storm{Seed: 3, Pairs: 2, Requests: 400, Noise: 0.02, Agents: n}.Run()
		r.Agents = n
		runs = append(runs, columnOf(r, judge.Thresholds{}))
	}
	return newCost(runs...)
}

// unkeptOf is what the first page says that did not hold.
func unkeptOf(t *testing.T, c *Cost) string {
	t.Helper()
	text, err := markdown("unkept", c.Columns)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Runs with one number of agents each make a curve together.
func TestCostOfSeveralRuns(t *testing.T) {
	c := costOf(t, 1000, 10, 100)
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || !strings.Contains(string(files["reviews.svg"]), `xmlns="http://www.w3.org/2000/svg"`) ||
		!strings.Contains(string(files["reviews.svg"]), "associated-node") {
		t.Errorf("%d files", len(files))
	}
	text := string(files["README.md"])
	ten := strings.Index(text, "| 10 agents |")
	hundred := strings.Index(text, "| 100 agents |")
	thousand := strings.Index(text, "| 1000 agents |")
	inOrder := ten > 0 && ten < hundred && hundred < thousand
	if !inOrder || !strings.Contains(text, "(reviews.svg)") {
		t.Errorf("not in order of agents:\n%s", text)
	}
	dir := t.TempDir()
	readme := filepath.Join(dir, "README.md")
	if err := errors.Join(writePages(dir, files), writePages(dir, files)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(readme, []byte("# Mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePages(dir, files); err == nil || !strings.Contains(err.Error(), "name another folder") {
		t.Errorf("somebody else's page is overwritten: %v", err)
	}
	if page, err := os.ReadFile(readme); err != nil || string(page) != "# Mine\n" {
		t.Errorf("somebody else's page is %q: %v", page, err)
	}
}

// Where a variant did not run, or no curve is to be had, it says so.
func TestCostOfWhatDidNotRun(t *testing.T) {
	c := costOf(t, 10, 10)
	if files, err := c.Files(); err != nil || len(files) != 1 {
		t.Errorf("one number of agents makes a curve: %d files, %v", len(files), err)
	}
	other := c.Columns[0].Run
	other.Blocks = nil
	c = newCost(columnOf(c.Columns[0].Run, judge.Thresholds{}), columnOf(other, judge.Thresholds{}))
	if text := unkeptOf(t, c); !strings.Contains(text, "executed broken") {
		t.Errorf("a run without blocks looks sound:\n%s", text)
	}
}

// A line has no points that differ in more than the number of agents.
func TestNoLineThroughOtherConditions(t *testing.T) {
	for name, change := range map[string]func(*run.Run){
		"how often they ask": func(r *run.Run) { r.Population.Every *= 2 },
		"how they arrive":    func(r *run.Run) { r.Population.Arrivals = "poisson" },
		"accounts":           func(r *run.Run) { r.Population.ServiceAccounts = r.Agents },
		"DaemonSets":         func(r *run.Run) { r.Population.DaemonSets = 2 },
		"the authorizer":     func(r *run.Run) { r.Authorizer = "webhook, remembered" },
		"the profile":        func(r *run.Run) { r.Profile += "-5000" },
		"Kubernetes":         func(r *run.Run) { r.Servers[0].GitVersion = "v1.36.3" },
		"the length of blocks": func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Length *= 2
			}
		},
		"whether all had asked before": func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Predicted.First = 1
			}
		},
	} {
		c := costOf(t, 10, 100)
		changed := c.Columns[1].Run
		change(&changed)
		if svg, err := newCost(c.Columns[0], columnOf(changed, judge.Thresholds{})).curve(); err != nil || svg != "" {
			t.Errorf("a line through runs that differ in %s, too: %v", name, err)
		}
	}
}

// TestPublishedPages expects docs/results to be what is written of the runs that are published there.
func TestPublishedPages(t *testing.T) {
	const pages = "../../docs/results"
	out := t.TempDir()
	if err := os.CopyFS(out, os.DirFS(pages)); err != nil {
		t.Fatal(err)
	}
	if err := writeResults("", out); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{pages, out} {
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			before, _ := os.ReadFile(filepath.Join(pages, path))
			after, _ := os.ReadFile(filepath.Join(out, path))
			if string(before) != string(after) {
				t.Errorf("%s is stale: go run ./ci/load-results pages", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// What was published as a steady state is one if its blocks are whole cycles.
func TestPublishedSteadyState(t *testing.T) {
	for every, want := range map[time.Duration]string{4 * time.Second: judge.AskedBefore, 30 * time.Second: judge.SteadyState, 0: judge.AskedBefore} {
		p := published{Population: run.Population{Arrivals: "periodic", Every: run.Duration(every)}, Length: run.Duration(30 * time.Second)}
		p.Variants = []judge.Variant{{Reviews: judge.ReviewRate{Of: judge.SteadyState}}}
		if got := p.column("run").Result.Variants[0].Reviews.Of; got != want {
			t.Errorf("every %s in a block of 30 s: %s, want %s", every, got, want)
		}
	}
}

// TestContradictions expects scenarios against the sentences that they quote, and none of these to hold.
func TestContradictions(t *testing.T) {
	list, err := makeStatements(nil)
	if err != nil {
		t.Fatal(err)
	}
	quoted := 0
	for i, c := range claims {
		against, err := findContradiction(c.quote, c.against...)
		if err != nil {
			t.Fatal(err)
		}
		if len(against.scenarios) == 0 {
			continue
		}
		quoted++
		if list[i].Verdict != "does not hold" || against.most == 0 {
			t.Errorf("%q: %s, though there are %s", c.quote, list[i].Verdict, against)
		}
	}
	if quoted < 4 {
		t.Errorf("%d sentences are quoted by scenarios", quoted)
	}
	if against, err := findContradiction("nobody said so"); err != nil || len(against.scenarios) > 0 {
		t.Errorf("%v, %v", against, err)
	}
	// What impersonates a user with groups costs more than the sentence says, and no run has measured it.
	if s := list[0]; s.Verdict != "does not hold" || !strings.Contains(strings.Join(s.Figures, " "), "deputy-legacy 5 and 5") {
		t.Errorf("%+v", s)
	}
}

// TestResults expects a page for each part, and the statements to say no more than their figures.
func TestResults(t *testing.T) {
	out := t.TempDir()
	if err := writeResults(t.TempDir(), out); err == nil || !strings.Contains(err.Error(), "expected the folders") {
		t.Errorf("nothing to read: %v", err)
	}
	r := simulated.Sound().Run()
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Variant = map[string]string{"legacy": "legacy-gate-off", "associated-node": "associated-node-cold"}[b.Variant]
	}
	partsOf := func(names ...string) (parts []Part) {
		for _, name := range names {
			parts = append(parts, Part{Name: name, Cost: newCost(columnOf(r, soundThresholds()))})
		}
		return parts
	}
	if err := publishParts(partsOf("reviews", "latency"), out); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| [reviews](reviews/README.md) | 1 | 1 passed | 2026-",
		"| The existing impersonation mechanism will introduce 1 access review. | Scalability | **does not hold** | 2.000 to 5.000 reviews per request; by the KEP 2 |",
		"| The existing impersonation mechanism will introduce 1 access review. | [latency](latency/README.md), [reviews](reviews/README.md) | legacy-gate-off, asked before: 2.000 reviews per request in 2 runs, as predicted |\n|  |  | legacy-gate-off, first contact: 2.000",
		"| SLOs | **held** | by the API server's own indicator nothing is known; of 6 p99 of clients 0 broken and 0 not known", "| **measured** | 0.0 % \\[0.0, 0.0 %\\] (p 1.000) of", "of the API server's CPU above idle per request",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("does not say %q:\n%s", want, data)
		}
	}
	// Another part, measured where there are no runs of the others: they stay, with their figures.
	r.Population = run.Population{Nodes: 20, DaemonSets: 1, ServiceAccounts: 1, Every: run.Duration(9 * time.Second)}
	for i := range r.Blocks {
		r.Blocks[i].Variant = strings.TrimSuffix(r.Blocks[i].Variant, "-cold")
	}
	if err := os.MkdirAll(filepath.Join(out, "page-only"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "page-only/README.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publishParts(partsOf("events", "daemonset"), out); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[reviews](reviews/README.md) | 1 |", "[latency](latency/README.md) | 1 |", "[events](events/README.md) | 1 |", "reviews per request in 4 runs", "| **measured** |", "[page-only](page-only/README.md) | ? | of an earlier measurement", "| every 9s |"} {
		if !strings.Contains(string(after), want) {
			t.Errorf("does not say %q:\n%s", want, after)
		}
	}
	for _, part := range []string{"reviews", "latency", "events"} {
		page, err := os.ReadFile(filepath.Join(out, part, "README.md"))
		if err != nil || !strings.Contains(string(page), " CPUs, ") {
			t.Errorf("%v:\n%s", err, page)
		}
	}
	// Of what is published alone the same comes out.
	if err := writeResults("", out); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(out, "README.md")); err != nil || string(again) != string(after) {
		t.Errorf("%v:\n%s\nwas\n%s", err, again, after)
	}
	if err := writeResults("", t.TempDir()); err == nil || !strings.Contains(err.Error(), "expected the pages") {
		t.Errorf("nothing is published: %v", err)
	}
	if err := os.WriteFile(filepath.Join(out, "latency", publishedFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publishParts(partsOf("events"), out); err == nil || !strings.Contains(err.Error(), publishedFile) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// Statements say what the runs show, and no more.
func TestStatements(t *testing.T) {
	rate := func(variant, server string, mean float64, verdict string) judge.Variant {
		return judge.Variant{
			Variant: variant,
			Server:  server,
			Reviews: judge.ReviewRate{Of: "steady state", PerRequest: statistics.Interval{Estimate: mean}, Verdict: verdict},
		}
	}
	slo := func(of string, state judge.State) judge.LimitResult {
		return judge.LimitResult{Of: of, Name: judge.Objective("list"), State: state, Detail: "so"}
	}
	for name, c := range map[string]struct {
		result judge.Result
		which  int
		want   string
	}{
		"as a scenario denies":  {judge.Result{Variants: []judge.Variant{rate("denied", "gate-on", 3, judge.AsPredicted)}}, 3, "does not hold"},
		"not as predicted":      {judge.Result{Variants: []judge.Variant{rate("denied", "gate-on", 3, judge.NotPredicted)}}, 3, "not known: some is not as the model predicts"},
		"objective held":        {judge.Result{Limits: []judge.LimitResult{slo("a on gate-on", judge.Holds), slo("b on gate-off", judge.Holds)}}, 6, "held"},
		"objective not known":   {judge.Result{Limits: []judge.LimitResult{slo("a on gate-on", judge.Holds), slo("b on gate-off", judge.Unknown)}}, 6, "held wherever it could be judged"},
		"broken by the feature": {judge.Result{Limits: []judge.LimitResult{slo("a on gate-on", judge.Broken), slo("b on gate-off", judge.Holds)}, Comparisons: []judge.Comparison{{P99: judge.Effect{Measured: true}}}}, 6, "broken"},
		"broken in one pair": {judge.Result{Limits: []judge.LimitResult{slo("a on gate-on", judge.Broken), slo("b on gate-off", judge.Holds)}, Comparisons: []judge.Comparison{{}}}, 6,
			"not known: broken where too few pairs tell the feature from the machine"},
		"broken by the machine": {judge.Result{Limits: []judge.LimitResult{slo("a on gate-on", judge.Broken), slo("b on gate-off", judge.Broken)}}, 6, "broken without the feature as well, where it is"},
	} {
		parts := []Part{{Name: "p", Cost: &Cost{Columns: []column{{Title: "run", Result: c.result}}}}}
		list, err := makeStatements(parts)
		if err != nil {
			t.Fatal(err)
		}
		if got := list[c.which]; got.Verdict != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, got.Verdict, c.want, got.Figures)
		}
	}
}

// A sentence that no scenario contradicts is judged by the runs that count, and by the model where there are none.
func TestClaims(t *testing.T) {
	run := func(mean float64, more judge.Result) []Part {
		more.Variants = append(more.Variants, judge.Variant{
			Variant: "legacy-gate-on", Server: "gate-on", Done: 100,
			Reviews: judge.ReviewRate{Of: judge.SteadyState, PerRequest: statistics.Interval{Estimate: mean}, Verdict: judge.AsPredicted},
		})
		return []Part{{Name: "p", Cost: &Cost{Columns: []column{{Title: "run", Result: more}}}}}
	}
	errors := run(9, judge.Result{})
	errors[0].Columns[0].Result.Variants[0].Errors = 30
	broken := func(name judge.CheckName) judge.Result {
		return judge.Result{Checks: []judge.Check{{Name: name, State: judge.Broken}}}
	}
	c := claim{"Scalability", "nobody said so", "gate-on", []string{"legacy-gate-on"}, 4, nil}
	for name, x := range map[string]struct {
		parts []Part
		want  string
	}{
		"exact":             {run(4, judge.Result{}), "holds"},
		"fewer":             {run(2.5, judge.Result{}), "an upper bound"},
		"more":              {run(5, judge.Result{}), "does not hold"},
		"late, and counted": {run(4, broken(judge.GeneratorKeptUp)), "holds"},
		// By the model it is 4 at first contact, and 2 later.
		"nothing":    {nil, "an upper bound"},
		"miscounted": {run(9, broken(judge.Counters)), "an upper bound"},
		"overloaded": {errors, "an upper bound"},
	} {
		s, err := c.compare(x.parts)
		if err != nil || s.Verdict != x.want {
			t.Errorf("%s: %q, want %q (%v, %v)", name, s.Verdict, x.want, s.Figures, err)
		}
	}
}

// A run that did not do is published with what was offered and answered, and what was not kept, in words; where reviews
// came in waves there is a plot of them over time.
func TestPublishesWhatFailed(t *testing.T) {
	c := costOf(t, 100)
	col := &c.Columns[0]
	col.Result.Outcome = judge.Inconclusive
	col.Result.Checks = []judge.Check{
		{Name: "generator kept up", State: judge.Broken, Detail: "9 of 10 late\nlast 20 log lines: x"},
		{Name: "executed", State: judge.Holds},
	}
	col.Result.Limits = []judge.LimitResult{
		{Of: "v on gate-on", Name: judge.Objective("list"), State: judge.Broken, Detail: "p99 31 s, at most 30s"},
		{Of: "v on gate-on", Name: "errorRate", State: judge.Holds},
	}
	v := &col.Result.Variants[0]
	v.Sent = 90
	v.Dropped = 10
	v.Late = 9
	v.Done = 80
	v.Errors = 3
	v.Again = map[string]int64{"429": 4}
	v.MostReviews = 61
	v.ReviewsPerSecond = 20
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	plot := slug.Replace(col.Title) + ".svg"
	for _, want := range []string{
		"| inconclusive |",
		"/s sent, 9 late, 10 never), 80 answered, 3 errors; asked again after 4 × 429 |",
		"| 20.0, 61 |",
		"100 due (",
		"(" + plot + ")",
	} {
		if !strings.Contains(string(files["README.md"]), want) {
			t.Errorf("does not say %q:\n%s", want, files["README.md"])
		}
	}
	if !strings.Contains(string(files[plot]), "access reviews per second") {
		t.Error("no plot of the wave")
	}
	wanted := ": **inconclusive**\n  - generator kept up broken: 9 of 10 late … (all of it is in the report)\n  - v on gate-on: SLO (list) broken: p99 31 s, at most 30s\n"
	if text := unkeptOf(t, c); !strings.HasSuffix(text, wanted) {
		t.Errorf("does not end with %q:\n%s", wanted, text)
	}
	v.MostReviews = 60
	if files, err := c.Files(); err != nil || len(files) != 1 {
		t.Errorf("what is even has a plot over time: %d files, %v", len(files), err)
	}
}
