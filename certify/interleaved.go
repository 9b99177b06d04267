package certify

import (
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// maxSameAnswers is after how many questions with the same right answer a question with another right answer is inserted. An
// outage that gives everything the same answer shows only in answers that it makes wrong.
const maxSameAnswers = 40

// interleave returns questions, and repeats others of the plan between them wherever the same answer would be right
// for long.
func (r *runner) interleave(questions []Question) (out []Question) {
	kinds := []*interleaved{r.newInterleaved(scenarios.Allow), r.newInterleaved(scenarios.NoOpinion)}
	for _, v := range questions {
		out = append(out, v)
		for _, s := range kinds {
			if s.isDue(v) {
				out = append(out, s.next())
			}
		}
	}
	return out
}

// interleaved has the questions with one right answer that are inserted between those with another.
type interleaved struct {
	expect scenarios.Decision
	all    []Question
	// asked is how many questions have been inserted. since is how many questions ago the last one with this answer
	// was.
	asked, since int
}

// newInterleaved returns the questions with an answer that can be inserted between others.
func (r *runner) newInterleaved(expect scenarios.Decision) *interleaved {
	return &interleaved{expect: expect, all: seq.Filter(r.Plan.all, func(v Question) bool {
		isPlain := v.Paired && v.Form == "" && v.Expect == expect
		isTried := slices.Contains(r.Levels, v.Level) && r.tries(partOfQuestion(v))
		return isPlain && isTried
	})}
}

// isDue reports whether a question has to be inserted after the given one.
func (s *interleaved) isDue(after Question) bool {
	if s.since++; after.Expect == s.expect {
		s.since = 0
	}
	return s.since >= maxSameAnswers && len(s.all) > 0
}

// next returns the next question to insert.
func (s *interleaved) next() Question {
	s.asked++
	s.since = 0
	return spreadOut(s.all, s.asked)
}
