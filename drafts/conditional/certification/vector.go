package certification

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/verdicts"
)

// JudgeVector returns the result of a vector that follows from its exchanges, in one revision of the wire. Advice does
// not make a vector fail.
func (b *Plan) JudgeVector(exchanges []Exchange) (vectors.Result, error) {
	r := vectors.Result{Verdict: verdicts.Passed}
	certification, err := b.Judge(exchanges)
	if err != nil {
		return r, err
	}
	for _, f := range certification.Findings {
		means := "the text advises against it"
		if !f.Advice {
			r.Verdict, means = verdicts.Failed, "the text demands otherwise"
		}
		r.Why = append(r.Why, f.Reason+": "+means+"\n  "+strings.Join(f.Examples, "\n  "))
	}
	isWhole := slices.ContainsFunc(certification.Results, func(l certify.LevelResult) bool { return l.Reviews == 1 })
	if r.Verdict == verdicts.Passed && !isWhole {
		r.Verdict = verdicts.Invalid
		r.Why = append([]string{"it was not asked, or not all of it: the authorizer had ended the run before"}, r.Why...)
	}
	return r, nil
}
