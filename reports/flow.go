package reports

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// FlowEvidence is what became of requests that were sent all the time, while API servers were replaced.
type FlowEvidence struct {
	// Sent is how many were sent, Unanswered how many of them got no answer: the connection was refused or broke.
	Sent       int `json:"sent"`
	Unanswered int `json:"unanswered"`
	// Errors counts the unanswered ones by what the client saw.
	Errors map[string]int `json:"errors,omitempty"`
	// Early is how many were answered by an API server that was not ready yet; clients only get there without a
	// balancer. EarlyWrong of them were answered wrongly: permissions that have not been read from etcd yet are
	// not there. It is reported, and is not a failure.
	Early      int          `json:"early,omitempty"`
	EarlyWrong int          `json:"earlyWrong,omitempty"`
	Answers    []FlowAnswer `json:"answers"` // the kinds of answers
	// Windows are the times in which requests were not answered, or wrongly.
	Windows []Window `json:"windows,omitempty"`

	// Samples are the requests, in the order of sending; all that is above follows from them (Judge).
	Samples []FlowSample `json:"samples"`
	// Servers are the stays of each API server, Suffixes what made the names of each setup unique.
	Servers  [][]FlowStay      `json:"servers"`
	Suffixes map[string]string `json:"suffixes"`
}

// FlowSample is one request with its answer.
type FlowSample struct {
	Setup string `json:"setup"`
	Error string `json:"error,omitempty"` // what the client saw in place of an answer
	// Server is the index of the API server that wrote the request's audit event, -1 if none did.
	Server int                  `json:"server"`
	Seen   verdicts.Observation `json:"seen"`
}

// FlowStay is when an API server was that of one cell: from when it was ready to its end. A zero time is open.
type FlowStay struct {
	Cell  string    `json:"cell"`
	Ready time.Time `json:"ready"`
	Ended time.Time `json:"ended,omitzero"`
}

// FlowAnswer is one kind of answer.
type FlowAnswer struct {
	Cell     string `json:"cell"`     // what the API server that answered was at that moment
	Scenario string `json:"scenario"` // the one of the request's setup that is for that server
	// Verdict is by outcome, code, message, resulting user and audit event; not by access reviews, as servers have caches.
	Verdict verdicts.Verdict      `json:"verdict"`
	Reason  string                `json:"reason,omitempty"`
	Count   int                   `json:"count"` // how many answers were of this kind, Example the first
	Example *verdicts.Observation `json:"example,omitempty"`
}

// Window is a time of exposure.
type Window struct {
	What string `json:"what"` // unanswered or wrong
	// Start is when the first such request was sent, Milliseconds the time until the next that was answered rightly.
	Start        time.Time `json:"start"`
	Milliseconds float64   `json:"milliseconds"`
	Requests     int       `json:"requests"` // how many there were
}

// judgeAnswer judges one answer by the scenario that is for the API server that gave it, which was that of a cell.
func judgeAnswer(s *scenarios.Scenario, cell verdicts.Cell, suffix string, seen *verdicts.Observation) verdicts.Result {
	_, names := s.Bind(suffix)
	return verdicts.Judge(s, &verdicts.Evidence{
		Scenario: s.ID, Digest: s.Digest, Cell: cell,
		Capabilities: []scenarios.Capability{scenarios.Audit}, Suffix: suffix, Names: names,
		Started: seen.Sent, Ended: seen.Answered, Steps: []verdicts.Observation{*seen},
	})
}

// ScenarioFor is the scenario of a setup that is for a cell, and the cell; nil if there is none.
type ScenarioFor func(cell, setup string) (*scenarios.Scenario, verdicts.Cell)

// Judge derives from the samples everything else.
func (f *FlowEvidence) Judge(scenario ScenarioFor) {
	*f = FlowEvidence{
		Sent: len(f.Samples), Errors: map[string]int{}, Answers: []FlowAnswer{},
		Samples: f.Samples, Servers: f.Servers, Suffixes: f.Suffixes,
	}
	windows := map[string]*Window{}
	for i := range f.Samples {
		s := &f.Samples[i]
		what := ""
		switch answers, early := f.answer(s, scenario); {
		case s.Error != "":
			f.Unanswered++
			f.Errors[s.Error]++
			what = "unanswered"
		case s.Seen.Response.Code >= http.StatusInternalServerError:
			// It decided nothing, so it decided nothing wrong.
			f.Unanswered++
			f.Errors["HTTP "+strconv.Itoa(s.Seen.Response.Code)]++
			what = "unanswered"
		case early:
			f.Early++
			if a := best(answers); a.Verdict != verdicts.Passed {
				f.EarlyWrong++
				what = "wrong, before the API server was ready"
			}
		default:
			a := best(answers)
			if a.Verdict != verdicts.Passed {
				what = "wrong"
			}
			// Of each kind the first is kept.
			entry(&f.Answers, func(b FlowAnswer) bool {
				return b.Cell == a.Cell && b.Scenario == a.Scenario && b.Verdict == a.Verdict && b.Reason == a.Reason
			}, a).Count++
		}
		expose(f, windows, what, s.Seen.Sent)
	}
	if n := len(f.Samples); n > 0 {
		closeWindows(f, windows, f.Samples[n-1].Seen.Sent) // what lasted to the end
	}
}

// expose opens the window of what went wrong, or, after a right answer, closes all of them.
func expose(f *FlowEvidence, open map[string]*Window, what string, at time.Time) {
	if what == "" {
		closeWindows(f, open, at)
		return
	}
	open[what] = cmp.Or(open[what], &Window{What: what, Start: at})
	open[what].Requests++
}

func closeWindows(f *FlowEvidence, open map[string]*Window, at time.Time) {
	for _, name := range slices.Sorted(maps.Keys(open)) {
		w := open[name]
		w.Milliseconds = float64(at.Sub(w.Start).Microseconds()) / 1000
		f.Windows = append(f.Windows, *w)
	}
	clear(open)
}

// answer judges an answer by what its API server may have been when it gave it.
func (f *FlowEvidence) answer(s *FlowSample, scenario ScenarioFor) (answers []FlowAnswer, early bool) {
	if s.Server >= 0 && s.Server < len(f.Servers) {
		next := "" // the first that was not ready yet
		for _, stay := range f.Servers[s.Server] {
			switch {
			case !stay.Ended.IsZero() && s.Seen.Sent.After(stay.Ended):
			case s.Seen.Answered.Before(stay.Ready):
				next = cmp.Or(next, stay.Cell)
			default:
				answers = append(answers, f.judgeBy(stay.Cell, s, scenario))
			}
		}
		if len(answers) == 0 && next != "" {
			return append(answers, f.judgeBy(next, s, scenario)), true
		}
	}
	if len(answers) == 0 {
		answers = []FlowAnswer{{
			Cell: "unknown", Verdict: verdicts.Invalid,
			Reason: "it cannot be told which API server gave the answer", Example: &s.Seen,
		}}
	}
	return answers, false
}

func (f *FlowEvidence) judgeBy(name string, s *FlowSample, scenario ScenarioFor) FlowAnswer {
	a := FlowAnswer{Cell: name, Example: &s.Seen, Verdict: verdicts.Invalid}
	one, cell := scenario(name, s.Setup)
	if one == nil {
		a.Reason = "no scenario of the setup " + s.Setup + " is for this stage"
		return a
	}
	result := judgeAnswer(one, cell, f.Suffixes[s.Setup], &s.Seen)
	a.Scenario, a.Verdict, a.Reason = one.ID, result.Verdict, result.Reason
	return a
}

func best(answers []FlowAnswer) FlowAnswer {
	return answers[max(0, slices.IndexFunc(answers, func(a FlowAnswer) bool { return a.Verdict == verdicts.Passed }))]
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
	return f.Early + seq.Sum(f.Answers, func(a FlowAnswer) int { return a.Count })
}

// verdict is passed if every answer is right. No answer is not a wrong one; without a single one nothing is known.
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

func (f *FlowEvidence) Describe() string {
	n, first := f.of(verdicts.Failed)
	unknown, why := f.of(verdicts.Invalid)
	text := fmt.Sprintf("%s, %d wrong answers, %d without an answer", Plural(f.Sent, "request"), n, f.Unanswered)
	if f.Early > 0 {
		text += fmt.Sprintf(", %d answered before the API server was ready (%d of them wrongly)", f.Early, f.EarlyWrong)
	}
	if len(f.Windows) > 0 {
		longest := slices.Max(seq.Map(f.Windows, func(w Window) float64 { return w.Milliseconds }))
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
