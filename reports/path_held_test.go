package reports

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestPathIsNotCheated: what is said of a path fits together, and is of what the command line asks for. Whatever follows
// from evidence follows from what it was made to be.
func TestPathIsNotCheated(t *testing.T) {
	asked := writtenPath(t, t.TempDir(), nil)
	evidence := seq.Map(asked.Path.Evidence, (*StageEvidence).asked)
	asked.Path = asked.Path.asked()
	asked.Path.Evidence = evidence
	for name, c := range map[string]struct {
		change func(p *PathReport)
		want   string // empty where the report holds
	}{
		"nothing":               {func(*PathReport) {}, ""},
		"nothing flowed":        {func(p *PathReport) { p.Evidence[1].Flow = nil }, "not as the command line asks"},
		"something flowed":      {func(p *PathReport) { p.Evidence[2].Flow = p.Evidence[1].Flow }, "not as the command line asks"},
		"an object is left out": {func(p *PathReport) { eachStage(p, func(e *StageEvidence) { e.Objects = e.Objects[1:] }) }, "not as the command line asks"},
		"an object is made up": {func(p *PathReport) {
			eachStage(p, func(e *StageEvidence) { e.Objects = append(e.Objects, ObjectState{"/z", `{"metadata":{"name":"z"}}`}) })
		}, "not as the command line asks"},
		"an object is another": {func(p *PathReport) { eachStage(p, func(e *StageEvidence) { e.Objects[0].Body = e.Objects[1].Body }) }, "is another object"},
		"an object is none":    {func(p *PathReport) { eachStage(p, func(e *StageEvidence) { e.Objects[0].Body = "" }) }, "is another object"},
		"a neighbour is made up": {func(p *PathReport) {
			p.Evidence[2].Neighbours = map[string]map[string]int{"1-1.37-gate-off": {"get": 1}}
		}, "not as the command line asks"},
		"a verb is left out":    {func(p *PathReport) { delete(p.Evidence[1].Verbs, "impersonate:user-info") }, "reviews with the verb impersonate:user-info"},
		"the witness's reviews": {func(p *PathReport) { p.Evidence[1].Verbs["list"]-- }, "arrived in its scenarios and of the witness"},
		"reviews that were not": {func(p *PathReport) {
			p.Evidence[1].Verbs["list"], p.Evidence[1].Verbs["x"] = p.Evidence[1].Verbs["list"]-1, -1
		}, "arrived in its scenarios and of the witness"},
		"away for less":           {func(p *PathReport) { p.Stages[1].DownSeconds = 0.1 }, "2-1.37-gate-on: the API server was away for 0.1 s, ready after"},
		"a request twice":         {func(p *PathReport) { f := p.Evidence[1].Flow; f.Samples = append(f.Samples, f.Samples[8]) }, "the audit ID"},
		"most requests left out":  {func(p *PathReport) { f := p.Evidence[1].Flow; f.Samples = f.Samples[:6] }, "requests did not flow for 1s"},
		"requests in disorder":    {func(p *PathReport) { slices.Reverse(p.Evidence[1].Flow.Samples) }, "was not sent behind the one before"},
		"requests at other times": {func(p *PathReport) { f := p.Evidence[1].Flow; f.Samples = later(f.Samples, time.Second) }, "between the scenarios of two stages"},
		"another setup's turn":    {func(p *PathReport) { p.Evidence[1].Flow.Samples[3].Setup = "none" }, "was not the next"},
		"an answer is none":       {func(p *PathReport) { p.Evidence[1].Flow.Samples[6].Error = "timeout" }, "request 6 was answered, and was not"},
		"ready later":             {func(p *PathReport) { s := p.Evidence[1].Flow.Servers[0]; s[1].Ready = s[1].Ready.Add(time.Second) }, "requests did not flow for 1s"},
		"gone earlier":            {func(p *PathReport) { s := p.Evidence[1].Flow.Servers[0]; s[0].Ended = s[0].Ended.Add(-2 * time.Second) }, "at the times that it is said to have been"},
		"never gone":              {func(p *PathReport) { p.Evidence[1].Flow.Servers[0][0].Ended = time.Time{} }, "at the times that it is said to have been"},
		"of another cell":         {func(p *PathReport) { p.Evidence[1].Flow.Servers[0][0].Cell = "3-1.37-gate-off" }, "not as the command line asks"},
		"names of another seed":   {func(p *PathReport) { p.Evidence[1].Flow.Suffixes[""] = "aaaaaa" }, "not as the command line asks"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := writtenPath(t, dir, c.change)
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion, Plan: func(r *ConformanceReport, _ *scenarios.Set) (*ConformanceReport, error) {
				out := *asked
				out.Cells = seq.Map(r.Cells, func(c Cell) Cell {
					w := Witness{AskedAuthorizers: c.Witness.AskedAuthorizers, ExpectedGate: c.Witness.ExpectedGate}
					missing := seq.Filter(c.Results, func(r verdicts.Result) bool { return r.Verdict == verdicts.NotSupported })
					return Cell{Cell: c.Cell, Facts: c.Facts, Witness: w, NotRun: c.NotRun, Results: missing}
				})
				return &out, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) || (c.want == "") != v.OK() {
				t.Errorf("got:\n%s\nwant: %s", all, c.want)
			}
		})
	}
}

func eachStage(p *PathReport, change func(e *StageEvidence)) {
	for _, e := range p.Evidence {
		change(e)
	}
}

// TestStagesComeInOrder: of two stages of one version and gate neither is the other.
func TestStagesComeInOrder(t *testing.T) {
	texts := testTexts(t)
	r, evidence := pathOf3(t, texts)
	walkedSlowly(r, evidence)
	r.Path.Evidence[1].Flow = nil
	for _, e := range evidence {
		if e.Cell.Name != "2-1.37-gate-on" {
			e.Cell.Name = map[string]string{"1-1.37-gate-off": "3-1.37-gate-off", "3-1.37-gate-off": "1-1.37-gate-off"}[e.Cell.Name]
		}
	}
	r.Complete(texts.Set, evidence, nil)
	dir := t.TempDir()
	if err := Write(dir, r, evidence, texts); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, "its scenarios ran before those of the stage before had") {
		t.Errorf("got:\n%s", all)
	}
}
