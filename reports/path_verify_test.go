package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const someStage = "path/3-1.37-gate-off.json"

// writtenPath is a folder with the report of a path that holds.
func writtenPath(t *testing.T, dir string, change func(p *PathReport)) *ConformanceReport {
	t.Helper()
	texts := testTexts(t)
	r, evidence := pathOf3(t, texts)
	walkedSlowly(r, evidence)
	r.Path.Evidence[1].Flow = rightAnswers(t, texts, (&verifier{evidence: evidence}).ranOn(r.Cells[0].Name).to, on(r.Cells[1].Name, evidence))
	if change != nil {
		change(r.Path)
	}
	r.Complete(texts.Set, evidence, nil)
	if err := Write(dir, r, evidence, texts); err != nil {
		t.Fatal(err)
	}
	return r
}

// walkedSlowly leaves time between the stages for API servers to be replaced and requests to flow, and has reviews counted.
func walkedSlowly(r *ConformanceReport, evidence []*verdicts.Evidence) {
	r.Finished = r.Finished.Add(3 * time.Second)
	for i := range r.Cells {
		c := &r.Cells[i]
		for _, e := range on(c.Name, evidence) {
			*e = later(*e, time.Duration(i)*time.Second)
		}
		verbs := (&walked{verifier: &verifier{evidence: evidence}}).verbsOn(c.Name)
		verbs["list"] += c.Witness.Probes.Front
		now := (&verifier{evidence: evidence}).ranOn(c.Name)
		c.WallSeconds, r.Path.Evidence[i].Verbs = now.seconds()+0.3, verbs
		if i > 0 {
			c.ReadySeconds = r.Path.Stages[i].DownSeconds
		}
	}
}

var timestamp = regexp.MustCompile(`2026-[-0-9]+T[0-9:.]+Z`)

// later is a copy of what was seen at other times.
func later[T any](seen T, by time.Duration) (out T) {
	raw, _ := json.Marshal(seen)
	raw = timestamp.ReplaceAllFunc(raw, func(text []byte) []byte {
		at, _ := time.Parse(time.RFC3339Nano, string(text))
		return []byte(at.Add(by).Format("2006-01-02T15:04:05.000000Z"))
	})
	_ = json.Unmarshal(raw, &out)
	return out
}

// rightAnswers are nine requests of a flow on the way to the second stage: five that nobody answers while the API server is
// replaced, and four answers that the expectations of a scenario hold for.
func rightAnswers(t *testing.T, texts Texts, before time.Time, evidence []*verdicts.Evidence) *FlowEvidence {
	t.Helper()
	slices.SortFunc(evidence, func(a, b *verdicts.Evidence) int { return strings.Compare(a.Scenario, b.Scenario) })
	for _, e := range evidence {
		s, _ := texts.Set.Get(e.Scenario)
		if len(e.Steps) != 1 || len(s.Steps) != 1 || judgeAnswer(s, e.Cell, e.Suffix, &e.Steps[0]).Verdict != verdicts.Passed {
			continue
		}
		begin := before.Add(50 * time.Millisecond)
		at := func(i int) time.Time { return begin.Add(time.Duration(i) * 350 * time.Millisecond) }
		f := &FlowEvidence{
			Servers:  [][]FlowStay{{{Cell: "1-1.37-gate-off", Ready: epoch, Ended: at(3)}, {Cell: e.Cell.Name, Ready: at(4).Add(time.Millisecond * 300)}}},
			Suffixes: map[string]string{s.Setup: e.Suffix},
		}
		for i := range 9 {
			seen := later(e.Steps[0], at(i).Sub(e.Steps[0].Sent))
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			seen.Audit = bytes.ReplaceAll(seen.Audit, []byte(seen.Response.AuditID), []byte(id))
			seen.Response.AuditID = id
			sample := FlowSample{Setup: s.Setup, Seen: seen}
			if i < 5 {
				sample.Error, sample.Server, sample.Seen.Response, sample.Seen.Audit = "connection refused", -1, verdicts.Response{}, nil
			}
			f.Samples = append(f.Samples, sample)
		}
		f.Judge(func(string, string) (*scenarios.Scenario, verdicts.Cell) { return s, e.Cell })
		return f
	}
	t.Fatal("no evidence has a single step that passes")
	return nil
}

// TestVerifyJudgesFlowsAgain has flows that their samples do not bear out.
func TestVerifyJudgesFlowsAgain(t *testing.T) {
	for name, spoil := range map[string]func(f *FlowEvidence){
		"an answer that says nothing": func(f *FlowEvidence) { f.Samples[6].Seen = verdicts.Observation{} },
		"no sample":                   func(f *FlowEvidence) { f.Samples = nil },
		"one left out":                func(f *FlowEvidence) { f.Samples = f.Samples[1:] },
		"one unanswered after all":    func(f *FlowEvidence) { f.Samples[0].Error = "timeout" },
		"of another setup":            func(f *FlowEvidence) { f.Samples[0].Setup = "none" },
		"by another server":           func(f *FlowEvidence) { f.Samples[7].Server = 1 },
		"of another cell":             func(f *FlowEvidence) { f.Servers[0][0].Cell = "none" },
		"another count":               func(f *FlowEvidence) { f.Answers[0].Count++; f.Sent++ },
		"another verdict":             func(f *FlowEvidence) { f.Answers[0].Verdict = verdicts.Failed },
		"a window that was not":       func(f *FlowEvidence) { f.Windows = []Window{{What: "unanswered", Requests: 1}} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := writtenPath(t, dir, func(p *PathReport) { spoil(p.Evidence[1].Flow) })
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
			if err != nil {
				t.Fatal(err)
			}
			if v.OK() {
				t.Error("the report holds")
			}
		})
	}
}

func TestVerifyPathHolds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *PathReport)
		want   verdicts.Verdict
	}{
		{"passed", nil, verdicts.Passed},
		{"failed", func(p *PathReport) { p.Evidence[2].Objects[1].Body = `{"kind":"Z","metadata":{"name":"y"}}` }, verdicts.Failed},
		{"a stage that was not reached", func(p *PathReport) { p.Evidence = p.Evidence[:2] }, verdicts.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := writtenPath(t, dir, c.change)
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
			if err != nil {
				t.Fatal(err)
			}
			if !v.OK() || v.Recomputed.Outcome.Result != c.want {
				t.Errorf("outcome %+v, differences: %q", v.Recomputed.Outcome, v.Differences)
			}
			if !same(v.Report.Path, r.Path) {
				t.Errorf("the path was stored otherwise: %s", change(v.Report.Path, r.Path))
			}
			if len(v.Recomputed.Path.Evidence) != len(r.Path.Evidence) || !same(v.Recomputed.Path.Evidence[0].Objects, r.Path.Evidence[0].Objects) {
				t.Errorf("the evidence was stored otherwise")
			}
		})
	}
}

// Whoever edits a file of a stage is found out by its digest; who mends that too,
// by the claims, which do not follow any more.
func TestVerifyPathFinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"an object edited", func(t *testing.T, dir string) {
			edit(t, dir, someStage, `{\"kind\":\"Y\"`, `{\"kind\":\"Z\"`)
		}, someStage + ": was changed"},
		{"an object edited, digest too", func(t *testing.T, dir string) {
			edit(t, dir, someStage, `{\"kind\":\"Y\"`, `{\"kind\":\"Z\"`)
			mend(t, dir, someStage)
		}, "the claims about the path do not follow from the evidence: stages[2].claims[0].detail: "},
		{"a review added, digest too", func(t *testing.T, dir string) {
			edit(t, dir, "path/2-1.37-gate-on.json", `"impersonate:user-info": 4`, `"impersonate:user-info": 5`)
			mend(t, dir, "path/2-1.37-gate-on.json")
		}, "the claims about the path do not follow from the evidence: stages[1].constrainedReviews: the report says 9, the evidence 10"},
		{"a count of answers edited, digest too", func(t *testing.T, dir string) {
			edit(t, dir, "path/2-1.37-gate-on.json", `"sent": 9`, `"sent": 8`)
			mend(t, dir, "path/2-1.37-gate-on.json")
		}, "what flowed is not what its samples say: sent: the report says 8, the evidence 9"},
		{"a claim's text edited", func(t *testing.T, dir string) {
			edit(t, dir, reportFile, "2 objects the same", "9 objects the same")
		}, `the claims about the path do not follow from the evidence: stages[1].claims[0].detail: the report says "9 objects the same, byte for byte", the evidence "2 objects the same, byte for byte"`},
		{"a claim's verdict edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Path.Stages[2].Claims[0].Verdict = verdicts.Failed })
		}, `stages[2].claims[0].verdict: the report says "failed", the evidence "passed"`},
		{"a claim dropped", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Path.Stages[2].Claims = r.Path.Stages[2].Claims[:1] })
		}, "stages[2].claims[1]: the report says nothing"},
		{"a count edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Path.Stages[0].Objects = 99 })
		}, "stages[0].objects: the report says 99, the evidence 2"},
		{"a stage deleted", func(t *testing.T, dir string) { removeFile(t, dir, someStage) }, someStage + ": is missing"},
		{"a stage deleted, from the list too", func(t *testing.T, dir string) {
			removeFile(t, dir, someStage)
			rewrite(t, dir, func(r *ConformanceReport) { delete(r.Files, someStage) })
		}, "the outcome does not follow from the results"},
		{"a stage replaced by another's, digest too", func(t *testing.T, dir string) {
			put(t, dir, someStage, content(t, dir, "path/1-1.37-gate-off.json"))
			mend(t, dir, someStage)
		}, someStage + ": is not the evidence of stage 3-1.37-gate-off"},
		{"a stage broken, digest too", func(t *testing.T, dir string) {
			put(t, dir, someStage, "{")
			mend(t, dir, someStage)
		}, someStage + ": is not the evidence of stage"},
		{"a stage added", func(t *testing.T, dir string) { put(t, dir, "path/4-moon.json", "{}") }, "path/4-moon.json: is not a file of the report"},
		{"stages in another order", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { l := r.Path.Stages; l[0], l[2] = l[2], l[0] })
		}, "the claims about the path do not follow from the evidence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := writtenPath(t, dir, nil)
			c.change(t, dir)
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("got:\n%s\nwant: %s", all, c.want)
			}
		})
	}
}

// Every byte of a stage's file counts.
func TestVerifyFindsAnyEditedByteOfALeg(t *testing.T) {
	dir := t.TempDir()
	writtenPath(t, dir, nil)
	whole := content(t, dir, someStage)
	for at := 0; at < len(whole); at += 29 {
		edited := []byte(whole)
		edited[at] ^= 1
		put(t, dir, someStage, string(edited))
		v, err := Verify(dir, VerifyOptions{})
		if err != nil || v.OK() || !strings.HasPrefix(v.Differences[0], someStage+": was changed") {
			t.Fatalf("byte %d: %v, %+v", at, err, v)
		}
	}
}

func removeFile(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
		t.Fatal(err)
	}
}
