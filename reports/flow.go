package reports

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// FlowEvidence is what became of requests that were sent all the time, while API servers were replaced.
type FlowEvidence struct {
	// Sent is how many were sent, Unanswered how many of them got no answer: the connection was refused or
	// broke.
	Sent       int `json:"sent"`
	Unanswered int `json:"unanswered"`
	// Errors counts the unanswered ones by what the client saw.
	Errors map[string]int `json:"errors,omitempty"`
	// Early is how many were answered by an API server that was not ready yet; clients only get there without a
	// balancer. EarlyWrong of them were answered wrongly: permissions that have not been read from etcd yet are
	// not there. It is reported, and is not a failure.
	Early      int `json:"early,omitempty"`
	EarlyWrong int `json:"earlyWrong,omitempty"`
	// Answers are the kinds of answers.
	Answers []FlowAnswer `json:"answers"`
	// Windows are the times in which requests were not answered, or wrongly.
	Windows []Window `json:"windows,omitempty"`
}

// FlowAnswer is one kind of answer.
type FlowAnswer struct {
	// Cell is what the API server that answered was at that moment.
	Cell string `json:"cell"`
	// Scenario is the one of the request's setup that is for that server.
	Scenario string `json:"scenario"`
	// Verdict is by outcome, code, message, resulting user and audit event; not by access reviews, which depend
	// on what the server has cached.
	Verdict verdicts.Verdict `json:"verdict"`
	Reason  string           `json:"reason,omitempty"`
	// Suffix made the names of the request unique.
	Suffix string `json:"suffix,omitempty"`
	// Count is how many answers were of this kind, Example the first.
	Count   int                   `json:"count"`
	Example *verdicts.Observation `json:"example,omitempty"`
}

// Window is a time of exposure.
type Window struct {
	// What is unanswered or wrong.
	What string `json:"what"`
	// Start is when the first such request was sent, Milliseconds the time from then until the next request that
	// was answered rightly was sent.
	Start        time.Time `json:"start"`
	Milliseconds float64   `json:"milliseconds"`
	// Requests is how many there were.
	Requests int `json:"requests"`
}

// JudgeAnswer judges one answer by the scenario that is for the API server that gave it, which was that of a
// cell.
func JudgeAnswer(s *scenarios.Scenario, cell verdicts.Cell, suffix string, seen *verdicts.Observation) verdicts.Result {
	_, names := s.Bind(suffix)
	return verdicts.Judge(s, &verdicts.Evidence{
		Scenario: s.ID, Digest: s.Digest, Cell: cell,
		Capabilities: []scenarios.Capability{scenarios.Audit}, Suffix: suffix, Names: names,
		Started: seen.Sent, Ended: seen.Answered, Steps: []verdicts.Observation{*seen},
	})
}

// of counts the answers with a verdict, and words the first.
func (f *FlowEvidence) of(v verdicts.Verdict) (n int, first string) {
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

func (f *FlowEvidence) answered() int {
	n := f.Early
	for _, a := range f.Answers {
		n += a.Count
	}
	return n
}

// verdict is passed if every answer is right. Requests without an answer are not wrong answers; without a single
// one that was judged nothing is known.
func (f *FlowEvidence) verdict() verdicts.Verdict {
	wrong, _ := f.of(verdicts.Failed)
	unknown, _ := f.of(verdicts.Invalid)
	switch {
	case wrong > 0:
		return verdicts.Failed
	case unknown > 0 || f.answered() == f.Early || f.answered()+f.Unanswered != f.Sent:
		return verdicts.Invalid
	}
	return verdicts.Passed
}

// describe says it in one line.
func (f *FlowEvidence) describe() string {
	n, first := f.of(verdicts.Failed)
	unknown, why := f.of(verdicts.Invalid)
	text := fmt.Sprintf("%s, %d wrong answers, %d without an answer", Plural(f.Sent, "request"), n, f.Unanswered)
	if f.Early > 0 {
		text += fmt.Sprintf(", %d answered before the API server was ready (%d of them wrongly)", f.Early, f.EarlyWrong)
	}
	longest := 0.0
	for _, w := range f.Windows {
		longest = max(longest, w.Milliseconds)
	}
	if len(f.Windows) > 0 {
		text += fmt.Sprintf("; %s of exposure, the longest %.0f ms", Plural(len(f.Windows), "window"), longest)
	}
	if first != "" {
		text += "; the first wrong one: " + first
	}
	if unknown > 0 {
		text += fmt.Sprintf("; %d that could not be judged, the first: %s", unknown, why)
	}
	return text
}
