package upgrade

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

// answers are so many right ones, and wrong ones of two kinds.
func answers(right, wrong, other int) []flowAnswer {
	all := []flowAnswer{{Cell: "1-a", Scenario: "s/on", Verdict: verdicts.Passed, Count: right}}
	if wrong > 0 {
		all = append(all,
			flowAnswer{Cell: "2-a", Scenario: "s/off", Verdict: verdicts.Failed, Reason: "code: want 403, got 200", Count: wrong},
		)
	}
	if other > 0 {
		all = append(all,
			flowAnswer{Cell: "2-b", Scenario: "s/off", Verdict: verdicts.Failed, Reason: "outcome: want allowed", Count: other},
		)
	}
	return all
}

func TestFlow(t *testing.T) {
	for _, c := range []struct {
		name   string
		flow   flowJudgement
		want   verdicts.Verdict
		detail string
	}{
		{"all right", flowJudgement{Sent: 9, Answers: answers(9, 0, 0)}, verdicts.Passed, "9 requests, 0 wrong answers, 0 without an answer"},
		{
			"unanswered is not wrong",
			flowJudgement{Sent: 9, Unanswered: 2, Errors: map[string]int{"connection refused": 2}, Answers: answers(7, 0, 0)},
			verdicts.Passed,
			"9 requests, 0 wrong answers, 2 without an answer",
		},
		{"one wrong", flowJudgement{Sent: 9, Answers: answers(8, 1, 0)}, verdicts.Failed, "9 requests, 1 wrong answers, 0 without an answer; the first wrong one: s/off on 2-a: code: want 403, got 200"},
		{"two kinds of wrong", flowJudgement{Sent: 9, Answers: answers(2, 3, 4)}, verdicts.Failed, "9 requests, 7 wrong answers, 0 without an answer; the first wrong one: s/off on 2-a: code: want 403, got 200"},
		{"wrong, and the counts do not add up", flowJudgement{Sent: 99, Answers: answers(8, 1, 0)}, verdicts.Failed, "99 requests, 1 wrong answers"},
		{"early ones are not judged", flowJudgement{Sent: 9, Early: 2, EarlyWrong: 1, Answers: answers(7, 0, 0)}, verdicts.Passed, "9 requests, 0 wrong answers, 0 without an answer, 2 answered before the API server was ready (1 of them wrongly)"},
		{"none was sent", flowJudgement{}, verdicts.Invalid, "0 requests"},
		{"none was answered", flowJudgement{Sent: 3, Unanswered: 3}, verdicts.Invalid, "3 requests, 0 wrong answers, 3 without an answer"},
		{"none was judged", flowJudgement{Sent: 3, Early: 2, Unanswered: 1}, verdicts.Invalid, "3 requests"},
		{"an answer is missing", flowJudgement{Sent: 9, Unanswered: 1, Answers: answers(7, 0, 0)}, verdicts.Invalid, "9 requests"},
		{"an answer too many", flowJudgement{Sent: 9, Unanswered: 1, Answers: answers(9, 0, 0)}, verdicts.Invalid, "9 requests"},
		{
			"windows",
			flowJudgement{Sent: 9, Answers: answers(9, 0, 0), Windows: []window{{What: "unanswered", Milliseconds: 12.3}, {What: "unanswered", Milliseconds: 801.6}}},
			verdicts.Passed,
			"9 requests, 0 wrong answers, 0 without an answer; 2 windows of exposure, the longest 802 ms",
		},
		{"one window", flowJudgement{Sent: 1, Answers: answers(1, 0, 0), Windows: []window{{Milliseconds: 5}}}, verdicts.Passed, "1 request, 0 wrong answers, 0 without an answer; 1 window of exposure, the longest 5 ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.flow.verdict(); got != c.want {
				t.Errorf("verdict %s, want %s", got, c.want)
			}
			if got := c.flow.describe(); !strings.HasPrefix(got, c.detail) {
				t.Errorf("got  %s\nwant %s", got, c.detail)
			}
		})
	}
}

// unanswered is a request of a workload whose connection was refused.
func unanswered(setup string, sent time.Time) FlowSample {
	return FlowSample{Setup: setup, Error: "connection refused", Server: -1, Seen: verdicts.Observation{Sent: sent}}
}

func TestWorkloads(t *testing.T) {
	p := offOnOff(t)
	stage := p.stages[1]
	if len(stage.Workloads) < 3 {
		t.Fatalf("workloads %v", stage.Workloads)
	}
	ready := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sound := func() *flowJudgement {
		f := &flowJudgement{record: &FlowRecord{Servers: [][]FlowStay{{{Cell: stage.Name(), Ready: ready}}}}}
		for _, setup := range stage.Workloads {
			f.Answers = append(f.Answers, flowAnswer{Cell: stage.Name(), Setup: setup, Verdict: verdicts.Passed, Count: 1})
		}
		return f
	}
	last := len(stage.Workloads) - 1
	for _, c := range []struct {
		name   string
		spoil  func(f *flowJudgement)
		want   verdicts.Verdict
		detail string
	}{
		{"all go on", func(*flowJudgement) {}, verdicts.Passed, stage.Workloads[last]},
		{"one had wrong answers", func(f *flowJudgement) { f.Answers[0].Verdict = verdicts.Failed }, verdicts.Failed, "no right answer of this API server: " + stage.Workloads[0]},
		{"one was ignored", func(f *flowJudgement) {
			f.Answers = f.Answers[:last]
			for range ignoredRequests {
				f.record.Samples = append(f.record.Samples, unanswered(stage.Workloads[last], ready.Add(time.Second)))
			}
		}, verdicts.Failed, "no right answer of this API server: " + stage.Workloads[last]},
		{"one was ignored before", func(f *flowJudgement) {
			f.Answers = f.Answers[:last]
			for range ignoredRequests {
				f.record.Samples = append(f.record.Samples, unanswered(stage.Workloads[last], ready.Add(-time.Second)))
			}
		}, verdicts.Invalid, "did not come to this API server: " + stage.Workloads[last]},
		{"one had no answer", func(f *flowJudgement) { f.Answers = f.Answers[:last] }, verdicts.Invalid, "did not come to this API server: " + stage.Workloads[last]},
		{"one had answers of the server before", func(f *flowJudgement) { f.Answers[0].Cell = p.stages[0].Name() }, verdicts.Invalid, stage.Workloads[0]},
		{"one had an answer that could not be judged", func(f *flowJudgement) { f.Answers[0].Verdict = verdicts.Invalid }, verdicts.Invalid, stage.Workloads[0]},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := sound()
			c.spoil(f)
			if got, detail := f.judgeWorkloads(stage); got != c.want || !strings.Contains(detail, c.detail) {
				t.Errorf("%s: %s, want %s: %s", got, detail, c.want, c.detail)
			}
		})
	}
}
