package certify

import (
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// unwatched is after how many questions with the same right answer a question with another right answer is inserted. An
// outage that gives everything the same answer shows only in answers that it makes wrong.
const unwatched = 40

// withSentries returns questions, and repeats others of the plan between them wherever the same answer would be right
// for long.
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

// sentry has the questions with one right answer that are inserted between those with another.
type sentry struct {
	expect scenarios.Decision
	all    []Question
	// asked is how many questions have been inserted. since is how many questions ago the last one with this answer
	// was.
	asked, since int
}

// sentry returns the questions with an answer that can be inserted between others.
func (r *runner) sentry(expect scenarios.Decision) *sentry {
	return &sentry{expect: expect, all: seq.Filter(r.Plan.all, func(v Question) bool {
		isPlain := v.Paired && v.Form == "" && v.Expect == expect
		isTried := slices.Contains(r.Levels, v.Level) && r.tries(partOfQuestion(v))
		return isPlain && isTried
	})}
}

// isDue reports whether a question has to be inserted after the given one.
func (s *sentry) isDue(after Question) bool {
	if s.since++; after.Expect == s.expect {
		s.since = 0
	}
	return s.since >= unwatched && len(s.all) > 0
}

// next returns the next question to insert.
func (s *sentry) next() Question {
	s.asked++
	s.since = 0
	return apart(s.all, s.asked)
}
