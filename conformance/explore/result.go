package explore

import (
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// tally counts what was judged.
type tally struct {
	// Cases, Requests and Reviews are how many were judged; OverRBAC of the cases had their grants as RBAC objects.
	Cases, Requests, Reviews, OverRBAC int
	// Special cases went past an expiry or reloads, or were sent before and after a restart; cases Beside went to two API
	// servers, and of Flipped the gate of one was switched twice. Crowded ones were sent side by side.
	Special, Beside, Flipped, Crowded int
	// Undecided are requests around the end of a second of the caches of which the model cannot tell what they find.
	Undecided int
	// Pairs of the AllPairs pairs of levels came up.
	Pairs, AllPairs int
	// NotConfirmed cases differed in a batch, and not alone; Recounts batches had totals that did not add up.
	NotConfirmed, Recounts int
	Disagreements          int
	// First and Last are when the first request was sent, and the last one answered.
	First, Last time.Time
}

// batchResult is what came out of a batch.
type batchResult struct {
	tally
	disagreements []disagreement
	// unconfirmed are reasons of cases that differed once and not again, recounted what did not add up.
	unconfirmed []string
	recounted   string
}

// disagreement is a case in which model and server differ, made small.
type disagreement struct {
	number int
	choice string
	reason string
	// overRBAC means that it is the same with RBAC objects as grants.
	overRBAC bool
	// once means that it was not seen again when the case was run alone.
	once        bool
	differences []verdicts.Difference
	// scenario is the smallest case as a file, with the model's expectations, and file its path in the report's folder.
	scenario, file string
}

// addCase counts a case.
func (r *batchResult) addCase(p *preparedCase, e *verdicts.Evidence) {
	for i := range e.Steps {
		o := &e.Steps[i]
		r.Reviews += len(o.Reviews)
		r.First = earliest(r.First, o.Sent)
		if o.Answered.After(r.Last) {
			r.Last = o.Answered
		}
	}
	r.Requests += len(e.Steps)
	if p.objects {
		r.OverRBAC++
	}
}

// addBatch counts the walks of a batch by what is special about them.
func (r *batchResult) addBatch(b *batch) {
	switch b.special {
	case "":
	case besideSuffix, balancedSuffix:
		r.Beside += len(b.walks)
	case flippedSuffix:
		r.Flipped += len(b.walks)
	case crowded:
		r.Crowded += len(seq.Filter(b.cases, func(p *preparedCase) bool { return p.isApart }))
	default:
		r.Special += len(b.walks)
	}
	if b.special != restarted {
		r.Cases += len(b.walks)
	}
	r.Pairs, r.AllPairs = b.pairs, b.allPairs
}

// add returns the sum of two tallies.
func (t tally) add(u tally) tally {
	t.Cases += u.Cases
	t.Requests += u.Requests
	t.Reviews += u.Reviews
	t.OverRBAC += u.OverRBAC
	t.Special += u.Special
	t.Beside += u.Beside
	t.Flipped += u.Flipped
	t.Crowded += u.Crowded
	t.Undecided += u.Undecided
	t.Pairs, t.AllPairs = max(t.Pairs, u.Pairs), max(t.AllPairs, u.AllPairs)
	t.NotConfirmed += u.NotConfirmed
	t.Recounts += u.Recounts
	t.Disagreements += u.Disagreements
	t.First = earliest(t.First, u.First)
	if u.Last.After(t.Last) {
		t.Last = u.Last
	}
	return t
}

// earliest returns the earlier of two times, of which those that are zero do not count.
func earliest(a, b time.Time) time.Time {
	switch {
	case a.IsZero():
		return b
	case b.IsZero(), a.Before(b):
		return a
	}
	return b
}

// seconds returns how long it took.
func (t tally) seconds() float64 { return t.Last.Sub(t.First).Seconds() }

// perSecond returns how many cases were judged in a second.
func (t tally) perSecond() float64 { return float64(t.Cases) / max(t.seconds(), 1e-9) }

// line says in one line what came out.
func (t tally) line() string {
	text := fmt.Sprintf(
		"%d cases, %d requests, %d reviews in %.0f s (%.0f cases/s), %d over RBAC, %d past an expiry (%d requests not decided), a reload or a restart, %d on two servers, %d with the gate switched, %d side by side; %d of %d pairs; %d disagreements",
		t.Cases,
		t.Requests,
		t.Reviews,
		t.seconds(),
		t.perSecond(),
		t.OverRBAC,
		t.Special,
		t.Undecided,
		t.Beside,
		t.Flipped,
		t.Crowded,
		t.Pairs,
		t.AllPairs,
		t.Disagreements,
	)
	if t.NotConfirmed > 0 {
		text += fmt.Sprintf("; %d differed once and not again", t.NotConfirmed)
	}
	return text
}

// describe returns how a disagreement was confirmed.
func (d disagreement) describe() string {
	if d.once {
		return "seen once, and not when it was run alone"
	}
	return fmt.Sprintf("made small, the same with RBAC objects: %t", d.overRBAC)
}

// result returns the verdict on a batch: failed if a case disagrees, invalid if something differed once and not again.
func (r *batchResult) result() reports.Result {
	out := reports.Result{Verdict: verdicts.Passed, Judged: r.Requests, Details: []string{r.line()}, Seconds: r.seconds()}
	isDoubtful := r.NotConfirmed > 0 || r.Recounts > 0
	switch {
	case len(r.disagreements) > 0:
		first := r.disagreements[0]
		out.Verdict, out.Reason = verdicts.Failed, fmt.Sprintf("case %d (%s): %s", first.number, first.choice, first.reason)
	case isDoubtful:
		out.Verdict, out.Blame = verdicts.Invalid, verdicts.BlameEnvironment
		out.Reason = fmt.Sprintf("%d cases differed once and not again, %d batches did not add up", r.NotConfirmed, r.Recounts)
	case r.Requests == 0:
		out.Verdict, out.Blame, out.Reason = verdicts.Invalid, verdicts.BlameHarness, "nothing was sent"
	}
	for _, d := range r.disagreements {
		out.Differences = append(out.Differences, d.differences...)
		if d.once { // what only happens once is no fault of the model, which knows no history
			out.Certain, out.Blame = true, verdicts.BlameAPIServer
		}
		out.Details = append(out.Details, fmt.Sprintf("case %d, %s\n%s", d.number, d.describe(), strings.TrimRight(d.scenario, "\n")))
	}
	if r.recounted != "" {
		out.Details = append(out.Details, "the batch does not add up: "+r.recounted)
	}
	out.Details = append(out.Details, r.unconfirmed...)
	return out
}
