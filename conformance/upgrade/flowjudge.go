package upgrade

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// flowJudgement is what became of requests that were sent all the time, while API servers were replaced.
type flowJudgement struct {
	// Sent is how many were sent, Unanswered how many of them got no answer: the connection was refused or broke.
	Sent       int
	Unanswered int
	// Errors counts the unanswered ones by what the client saw.
	Errors map[string]int
	// Early is how many were answered by an API server that was not ready yet; clients only get there without a
	// balancer. EarlyWrong of them were answered wrongly: permissions that have not been read from etcd yet are
	// not there. It is reported, and is not a failure.
	Early      int
	EarlyWrong int
	// Answers are the kinds of answers.
	Answers []flowAnswer
	// Windows are the times in which requests were not answered, or wrongly.
	Windows []window

	record *FlowRecord
	find   findScenario
}

// flowAnswer is one kind of answer.
type flowAnswer struct {
	// Cell is what the API server that answered was at that moment, Scenario the one of the request's setup that is for it.
	Cell     string
	Setup    string
	Scenario string
	// Verdict is by outcome, code, message, resulting user and audit event; not by access reviews, as servers have caches.
	Verdict verdicts.Verdict
	Reason  string
	Count   int // how many answers were of this kind
}

// window is a time of exposure.
type window struct {
	What string // unanswered or wrong
	// Start is when the first such request was sent, Milliseconds the time until the next that was answered rightly.
	Start        time.Time
	Milliseconds float64
	Requests     int // how many there were
}

// findScenario returns the scenario of a setup that is for a cell, and the cell; nil if there is none.
type findScenario func(cell, setup string) (*scenarios.Scenario, verdicts.Cell)

// judgeFlow judges the requests that flowed on the way to a stage.
func (p *Plan) judgeFlow(e *StageRecord) *flowJudgement {
	if e.Flow == nil {
		return &flowJudgement{record: &FlowRecord{}}
	}
	return judgeSamples(e.Flow, p.findScenario)
}

// findScenario returns the scenario of a setup that is for a cell, and the cell; nil if there is none.
func (p *Plan) findScenario(cell, setup string) (*scenarios.Scenario, verdicts.Cell) {
	for _, stage := range p.stages {
		if stage.Name() == cell {
			return stage.scenario[setup], stage.Target.Cell
		}
	}
	return nil, verdicts.Cell{}
}

// judgeSamples judges each request by the scenario that is for the API server that answered it.
func judgeSamples(record *FlowRecord, find findScenario) *flowJudgement {
	f := &flowJudgement{Sent: len(record.Samples), Errors: map[string]int{}, record: record, find: find}
	open := map[string]*window{}
	for i := range record.Samples {
		s := &record.Samples[i]
		f.expose(open, f.add(s), s.Seen.Sent)
	}
	if n := len(record.Samples); n > 0 {
		f.closeWindows(open, record.Samples[n-1].Seen.Sent) // what lasted to the end
	}
	return f
}

// isUnanswered reports whether no API server gave an answer that decides something.
func (s FlowSample) isUnanswered() bool {
	return s.Error != "" || s.Seen.Response.Code >= http.StatusInternalServerError
}

// add counts a request, and returns what is wrong with it.
func (f *flowJudgement) add(s *FlowSample) (wrong string) {
	if s.isUnanswered() {
		f.Unanswered++
		f.Errors[cmp.Or(s.Error, "HTTP "+strconv.Itoa(s.Seen.Response.Code))]++
		return "unanswered"
	}
	answers, isEarly := f.answer(s)
	a := best(answers)
	if isEarly {
		f.Early++
		if a.Verdict == verdicts.Passed {
			return ""
		}
		f.EarlyWrong++
		return "wrong, before the API server was ready"
	}
	f.count(a)
	if a.Verdict == verdicts.Passed {
		return ""
	}
	return "wrong"
}

// count counts an answer with those of its kind.
func (f *flowJudgement) count(a flowAnswer) {
	i := slices.IndexFunc(f.Answers, func(b flowAnswer) bool {
		b.Count = 0
		return a == b
	})
	if i < 0 {
		i = len(f.Answers)
		f.Answers = append(f.Answers, a)
	}
	f.Answers[i].Count++
}

// expose opens the window of what went wrong, or, after a right answer, closes all of them.
func (f *flowJudgement) expose(open map[string]*window, what string, at time.Time) {
	if what == "" {
		f.closeWindows(open, at)
		return
	}
	if open[what] == nil {
		open[what] = &window{What: what, Start: at}
	}
	open[what].Requests++
}

func (f *flowJudgement) closeWindows(open map[string]*window, at time.Time) {
	for _, name := range slices.Sorted(maps.Keys(open)) {
		w := open[name]
		w.Milliseconds = float64(at.Sub(w.Start).Microseconds()) / 1000
		f.Windows = append(f.Windows, *w)
	}
	clear(open)
}

// answer judges an answer by what its API server may have been when it gave it.
func (f *flowJudgement) answer(s *FlowSample) (answers []flowAnswer, isEarly bool) {
	next := "" // the first that was not ready yet
	if s.Server >= 0 && s.Server < len(f.record.Servers) {
		for _, stay := range f.record.Servers[s.Server] {
			switch {
			case !stay.endsAfter(s.Seen.Sent):
			case s.Seen.Answered.Before(stay.Ready):
				next = cmp.Or(next, stay.Cell)
			default:
				answers = append(answers, f.judge(stay.Cell, s))
			}
		}
	}
	switch {
	case len(answers) > 0:
		return answers, false
	case next != "":
		return []flowAnswer{f.judge(next, s)}, true
	}
	return []flowAnswer{{Cell: "unknown", Verdict: verdicts.Invalid, Reason: "it cannot be told which API server gave the answer"}}, false
}

// judge judges an answer by the scenario that is for the API server that gave it, which was that of a cell.
func (f *flowJudgement) judge(name string, s *FlowSample) flowAnswer {
	a := flowAnswer{Cell: name, Setup: s.Setup, Verdict: verdicts.Invalid}
	scenario, cell := f.find(name, s.Setup)
	if scenario == nil {
		a.Reason = "no scenario of the setup " + s.Setup + " is for this stage"
		return a
	}
	suffix := f.record.Suffixes[s.Setup]
	_, names := scenario.Bind(suffix)
	result := verdicts.Judge(scenario, &verdicts.Evidence{
		Scenario: scenario.ID, Digest: scenario.Digest, Cell: cell,
		Capabilities: []scenarios.Capability{scenarios.Audit}, Suffix: suffix, Names: names,
		Started: s.Seen.Sent, Ended: s.Seen.Answered, Steps: []verdicts.Observation{s.Seen},
	})
	a.Scenario, a.Verdict, a.Reason = scenario.ID, result.Verdict, result.Reason
	return a
}

// best returns an answer that is right, or the first if none is.
func best(answers []flowAnswer) flowAnswer {
	return answers[max(0, slices.IndexFunc(answers, func(a flowAnswer) bool { return a.Verdict == verdicts.Passed }))]
}

// countVerdict counts the answers with a verdict, and words the first.
func (f *flowJudgement) countVerdict(v verdicts.Verdict) (n int, first string) {
	for _, a := range f.Answers {
		if a.Verdict != v {
			continue
		}
		if n == 0 {
			first = fmt.Sprintf("%s on %s: %s", a.Scenario, a.Cell, a.Reason)
		}
		n += a.Count
	}
	return n, first
}

// verdict is passed if every answer is right. No answer is not a wrong one; without a single one nothing is known.
func (f *flowJudgement) verdict() verdicts.Verdict {
	wrong, _ := f.countVerdict(verdicts.Failed)
	unknown, _ := f.countVerdict(verdicts.Invalid)
	answers := seq.Sum(f.Answers, func(a flowAnswer) int { return a.Count })
	allCounted := f.Early+answers+f.Unanswered == f.Sent
	switch {
	case wrong > 0:
		return verdicts.Failed
	case unknown > 0, answers == 0, !allCounted:
		return verdicts.Invalid
	}
	return verdicts.Passed
}

// describe says what became of the requests.
func (f *flowJudgement) describe() string {
	n, first := f.countVerdict(verdicts.Failed)
	unknown, why := f.countVerdict(verdicts.Invalid)
	text := fmt.Sprintf("%s, %d wrong answers, %d without an answer", reports.Plural(f.Sent, "request"), n, f.Unanswered)
	if f.Early > 0 {
		text += fmt.Sprintf(", %d answered before the API server was ready (%d of them wrongly)", f.Early, f.EarlyWrong)
	}
	if len(f.Windows) > 0 {
		longest := slices.Max(seq.Map(f.Windows, func(w window) float64 { return w.Milliseconds }))
		text += fmt.Sprintf("; %s of exposure, the longest %.0f ms", reports.Plural(len(f.Windows), "window"), longest)
	}
	if first != "" {
		text += "; the first wrong one: " + first
	}
	if unknown > 0 {
		text += fmt.Sprintf("; %d that could not be judged, the first: %s", unknown, why)
	}
	return text
}
