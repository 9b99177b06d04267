package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// flowWorkers is how many requests are under way at once.
	flowWorkers = 4
	// flowPause is between two requests of a worker: some hundred a second leave
	// the processors to the API servers that start meanwhile.
	flowPause = 10 * time.Millisecond
	// flowTimeout ends a request that nobody answers.
	flowTimeout = 10 * time.Second
)

// flow sends the requests of setups, one setup after the other, all the time.
type flow struct {
	host  string
	setup []flowSetup

	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	samples []sample
}

// flowSetup is a setup whose request is sent.
type flowSetup struct {
	scenario *scenarios.Scenario // any of the setup: the request is the same
	kept     *replay.Kept
}

// sample is one request with its answer.
type sample struct {
	setup string
	seen  verdicts.Observation
	err   error
}

// startFlow sends requests to host until stop is called or ctx ends.
func startFlow(ctx context.Context, run *replay.Replayer, host string, setups []flowSetup) *flow {
	ctx, cancel := context.WithCancel(ctx)
	f := &flow{host: host, setup: setups, cancel: cancel}
	for w := range flowWorkers {
		f.workers.Go(func() { f.work(ctx, run, w) })
	}
	return f
}

func (f *flow) work(ctx context.Context, run *replay.Replayer, first int) {
	for i := first; ctx.Err() == nil; i++ {
		s := f.setup[i%len(f.setup)]
		// The request is not cut off when the flow ends: its answer counts.
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), flowTimeout)
		o, err := run.Send(one, s.scenario, s.kept, f.host)
		cancel()
		f.mu.Lock()
		f.samples = append(f.samples, sample{setup: s.scenario.Setup, seen: o, err: err})
		f.mu.Unlock()
		select {
		case <-time.After(flowPause):
		case <-ctx.Done():
		}
	}
}

// stop ends the flow and returns what was sent, in the order of sending.
func (f *flow) stop() []sample {
	f.cancel()
	f.workers.Wait()
	slices.SortStableFunc(f.samples, func(a, b sample) int { return a.seen.Sent.Compare(b.seen.Sent) })
	return f.samples
}

// errorClass is what the client saw, without ports and addresses.
func errorClass(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	parts := strings.Split(err.Error(), ": ")
	return parts[len(parts)-1]
}

// server is what one API server was, for attributing answers.
type server interface {
	// TakeEvent returns the audit event of an answer if this server wrote it.
	TakeEvent(auditID string) (json.RawMessage, bool)
}

// stay is a time in which a server was one stage: from when it was ready until it had ended. A zero time is open.
type stay struct {
	stage        *Stage
	ready, ended time.Time
}

// judge makes evidence of samples. histories are the stays of each server.
type judge struct {
	suffix    map[string]string // by setup
	servers   []server
	histories [][]stay
}

func (j judge) evidence(samples []sample) *reports.FlowEvidence {
	f := &reports.FlowEvidence{Sent: len(samples), Errors: map[string]int{}, Answers: []reports.FlowAnswer{}}
	kinds := map[string]int{}
	windows := map[string]*reports.Window{}
	for _, s := range samples {
		what := ""
		switch answers, early := j.answer(s); {
		case s.err != nil:
			f.Unanswered++
			f.Errors[errorClass(s.err)]++
			what = "unanswered"
		case s.seen.Response.Code >= http.StatusInternalServerError:
			// It decided nothing, so it decided nothing wrong.
			f.Unanswered++
			f.Errors["HTTP "+strconv.Itoa(s.seen.Response.Code)]++
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
			countAnswer(f, kinds, a)
		}
		expose(f, windows, what, s.seen.Sent)
	}
	if n := len(samples); n > 0 {
		closeWindows(f, windows, samples[n-1].seen.Sent) // what lasted to the end
	}
	return f
}

// expose opens the window of what went wrong, or, after a right answer, closes all of them.
func expose(f *reports.FlowEvidence, open map[string]*reports.Window, what string, at time.Time) {
	if what == "" {
		closeWindows(f, open, at)
		return
	}
	if open[what] == nil {
		open[what] = &reports.Window{What: what, Start: at}
	}
	open[what].Requests++
}

func closeWindows(f *reports.FlowEvidence, open map[string]*reports.Window, at time.Time) {
	for _, name := range slices.Sorted(maps.Keys(open)) {
		w := open[name]
		w.Milliseconds = float64(at.Sub(w.Start).Microseconds()) / 1000
		f.Windows = append(f.Windows, *w)
	}
	clear(open)
}

// answer judges an answer by each stage that may have given it.
func (j judge) answer(s sample) (answers []reports.FlowAnswer, early bool) {
	if s.err != nil {
		return nil, false
	}
	for i, srv := range j.servers {
		raw, ok := srv.TakeEvent(s.seen.Response.AuditID)
		if !ok {
			continue
		}
		s.seen.Audit = raw
		var next *Stage // the first that was not ready yet
		for _, stay := range j.histories[i] {
			switch {
			case !stay.ended.IsZero() && s.seen.Sent.After(stay.ended):
			case s.seen.Answered.Before(stay.ready):
				if next == nil {
					next = stay.stage
				}
			default:
				answers = append(answers, j.judgeBy(stay.stage, s))
			}
		}
		if len(answers) == 0 && next != nil {
			return append(answers, j.judgeBy(next, s)), true
		}
		if len(answers) > 0 {
			return answers, false
		}
		break
	}
	return []reports.FlowAnswer{{
		Cell: "unknown", Verdict: verdicts.Invalid, Count: 1,
		Reason: "it cannot be told which API server gave the answer", Example: &s.seen,
	}}, false
}

// judgeBy judges an answer by the scenario that is for a stage.
func (j judge) judgeBy(stage *Stage, s sample) reports.FlowAnswer {
	a := reports.FlowAnswer{Cell: stage.Plan.Target.Cell.Name, Count: 1, Example: &s.seen, Verdict: verdicts.Invalid}
	for _, item := range stage.Plan.Items {
		if item.Scenario.Setup != s.setup || item.Fate != session.Run {
			continue
		}
		a.Suffix = j.suffix[s.setup]
		result := reports.JudgeAnswer(item.Scenario, stage.Plan.Target.Cell, a.Suffix, &s.seen)
		a.Scenario, a.Verdict, a.Reason = item.Scenario.ID, result.Verdict, result.Reason
		return a
	}
	a.Reason = "no scenario of the setup " + s.setup + " is for this stage"
	return a
}

// best is the first answer that passed, or else the first.
func best(answers []reports.FlowAnswer) reports.FlowAnswer {
	for _, a := range answers {
		if a.Verdict == verdicts.Passed {
			return a
		}
	}
	return answers[0]
}

// countAnswer adds an answer to those of its kind, of which the first is kept.
func countAnswer(f *reports.FlowEvidence, kinds map[string]int, a reports.FlowAnswer) {
	key := strings.Join([]string{a.Cell, a.Scenario, string(a.Verdict), a.Reason}, "|")
	i, known := kinds[key]
	if known {
		f.Answers[i].Count++
		return
	}
	kinds[key] = len(f.Answers)
	f.Answers = append(f.Answers, a)
}
