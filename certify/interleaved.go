package certify

import (
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// maxSameAnswers is after how many questions with the same right answer a question with another right answer is
// inserted. An outage that gives everything the same answer shows only in answers that it makes wrong.
const maxSameAnswers = 40

// interleave returns questions, and repeats others of the plan between them wherever the same answer would be right
// for long.
func (r *runner) interleave(questions []Question) (out []Question) {
	kinds := []*inserter{r.newInserter(scenarios.Allow), r.newInserter(scenarios.NoOpinion)}
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

// inserter inserts questions that have one right answer between those that have another.
type inserter struct {
	expect scenarios.Decision
	all    []Question
	// inserted is how many questions have been inserted. sinceLast is how many questions ago the last one with this
	// answer was.
	inserted, sinceLast int
}

// newInserter returns the questions with an answer that can be inserted between others.
func (r *runner) newInserter(expect scenarios.Decision) *inserter {
	return &inserter{expect: expect, all: seq.Filter(r.Plan.all, func(v Question) bool {
		isPlain := v.Paired && v.Form == "" && v.Expect == expect
		isTried := slices.Contains(r.Levels, v.Level) && r.isTried(partOfQuestion(v))
		return isPlain && isTried
	})}
}

// isDue reports whether a question has to be inserted after the given one.
func (s *inserter) isDue(after Question) bool {
	if s.sinceLast++; after.Expect == s.expect {
		s.sinceLast = 0
	}
	return s.sinceLast >= maxSameAnswers && len(s.all) > 0
}

// next returns the next question to insert.
func (s *inserter) next() Question {
	s.inserted++
	s.sinceLast = 0
	return scatteredQuestion(s.all, s.inserted)
}
