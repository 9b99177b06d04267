package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// judgeWorkloads judges whether everybody who worked before a stage was entered goes on working on it: each workload was
// answered rightly by the stage's API server. Its permissions may lead to a refusal there, which is right then. Of a workload
// that did not come to this API server nothing is known: on a busy machine there may not have been the time.
func (f *flowJudgement) judgeWorkloads(stage *StagePlan) (v verdicts.Verdict, detail string) {
	all := reports.Plural(len(stage.Workloads), "workload")
	waiting := seq.Filter(stage.Workloads, func(setup string) bool { return !f.wasAnswered(setup, stage.Name(), verdicts.Passed) })
	stopped := seq.Filter(waiting, func(setup string) bool {
		return f.wasAnswered(setup, stage.Name(), verdicts.Failed) || f.wasIgnored(setup, stage.Name())
	})
	switch {
	case len(stopped) > 0:
		return verdicts.Failed, fmt.Sprintf(
			"%d of %s had no right answer of this API server: %s",
			len(stopped),
			all,
			strings.Join(stopped, ", "),
		)
	case len(waiting) > 0:
		return verdicts.Invalid, fmt.Sprintf("%d of %s did not come to this API server: %s", len(waiting), all, strings.Join(waiting, ", "))
	}
	return verdicts.Passed, fmt.Sprintf("%s that worked before it, and on this API server: %s", all, strings.Join(stage.Workloads, ", "))
}

// wasAnswered reports whether the API server of a cell gave a workload an answer with this verdict.
func (f *flowJudgement) wasAnswered(setup, cell string, v verdicts.Verdict) bool {
	return slices.ContainsFunc(f.Answers, func(a flowAnswer) bool { return a.Setup == setup && a.Cell == cell && a.Verdict == v })
}

// ignoredRequests are how many requests without an answer show that a workload is not answered: where API servers are replaced
// one after the other, single ones go to the one that is ending.
const ignoredRequests = 3

// wasIgnored reports whether a workload sent several requests while the API server of a cell was there, and nobody answered them.
func (f *flowJudgement) wasIgnored(setup, cell string) bool {
	stay := f.stayOf(cell)
	ignored := seq.Filter(f.record.Samples, func(s FlowSample) bool {
		wasThere := s.Seen.Sent.After(stay.Ready) && stay.endsAfter(s.Seen.Sent)
		return s.Setup == setup && wasThere && s.isUnanswered()
	})
	return len(ignored) >= ignoredRequests
}

// stayOf returns when an API server was that of a cell; the zero stay if none was.
func (f *flowJudgement) stayOf(cell string) FlowStay {
	for _, stays := range f.record.Servers {
		for _, stay := range stays {
			if stay.Cell == cell {
				return stay
			}
		}
	}
	return FlowStay{}
}

// endsAfter reports whether the stay is not over yet at a time.
func (s FlowStay) endsAfter(t time.Time) bool { return s.Ended.IsZero() || t.Before(s.Ended) }
