package certify

import (
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// unwatched is after how many questions with one answer a question with another one is asked between them: an outage
// shows only by what it has wrong.
const unwatched = 40

// withSentries returns questions with others of the plan between them, again, wherever the same answer is right for long.
func (r *runner) withSentries(questions []Question) (out []Question) {
	sentries := []*sentry{r.sentry(scenarios.Allow), r.sentry(scenarios.NoOpinion)}
	for _, v := range questions {
		out = append(out, v)
		for _, s := range sentries {
			if s.isDue(v) {
				out = append(out, s.next())
			}
		}
	}
	return out
}

// sentry has the questions with one right answer that stand between those with the other one.
type sentry struct {
	expect scenarios.Decision
	all    []Question
	// asked is how many have been asked, since how many questions ago the last one with this answer was.
	asked, since int
}

// sentry returns the questions with an answer that can stand between others.
func (r *runner) sentry(expect scenarios.Decision) *sentry {
	return &sentry{expect: expect, all: seq.Filter(r.Plan.all, func(v Question) bool {
		isPlain := v.Paired && v.Form == "" && v.Expect == expect
		isTried := slices.Contains(r.Levels, v.Level) && r.tries(partOfQuestion(v))
		return isPlain && isTried
	})}
}

// isDue reports whether one has to be asked after a question.
func (s *sentry) isDue(after Question) bool {
	if s.since++; after.Expect == s.expect {
		s.since = 0
	}
	return s.since >= unwatched && len(s.all) > 0
}

// next returns the next one.
func (s *sentry) next() Question {
	s.asked++
	s.since = 0
	return apart(s.all, s.asked)
}
