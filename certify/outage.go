package certify

import "fmt"

const (
	// minOutage is how many wrong answers in a row count as an outage if they are right when the questions are asked
	// again.
	minOutage = 3
	// retriesPerOutage is how many questions of a suspected outage are asked again. maxSuspectedOutages is how many
	// outages this is done for.
	retriesPerOutage, maxSuspectedOutages = 40, 10
)

// outage is a time in which all answers had the same outcome, which was wrong for some of them.
type outage struct {
	outcome string
	// wrong are the indexes of the wrong answers.
	wrong []int
}

// outcome returns the outcome of a question in a word.
func (a Answer) outcome() string {
	if why := a.undecidedReason(); why != "" {
		return why
	}
	return string(a.decision())
}

// outages returns the times in which all answers were the same and several were wrong, among the questions that were
// asked once and in order.
func (b *Plan) outages(answers []Answer) (out []outage) {
	var now outage
	end := func() {
		if len(now.wrong) >= minOutage {
			out = append(out, now)
		}
	}
	for i, a := range answers {
		if a.Check != plainCheck || a.Control {
			continue
		}
		v, isKnown := b.findQuestion(a.Vector)
		if !isKnown {
			continue
		}
		if outcome := a.outcome(); outcome != now.outcome {
			end()
			now = outage{outcome: outcome}
		}
		if len(judge(v, a)) > 0 {
			now.wrong = append(now.wrong, i)
		}
	}
	end()
	return out
}

// suspects returns the questions that are asked again to find out whether they were wrong only for a while.
func (b *Plan) suspects(answers []Answer) (out []Question) {
	all := b.outages(answers)
	for _, o := range all[:min(len(all), maxSuspectedOutages)] {
		step := max(1, len(o.wrong)/retriesPerOutage)
		for i := 0; i < len(o.wrong); i += step {
			if v, isKnown := b.findQuestion(answers[o.wrong[i]].Vector); isKnown {
				out = append(out, v)
			}
		}
	}
	return out
}

// transientOutages returns the outages that were over when the same questions were asked again.
func (b *Plan) transientOutages(answers []Answer) (out []outage) {
	isRight := map[string]bool{} // the questions that were asked again
	for _, a := range answers {
		if a.Check == retryCheck && !a.Control {
			isRight[a.Vector] = !b.isWrong(a)
		}
	}
	if len(isRight) == 0 {
		return nil
	}
	for _, o := range b.outages(answers) {
		if o.isOver(answers, isRight) {
			out = append(out, o)
		}
	}
	return out
}

// isOver reports whether some of the wrongly answered questions were asked again and all of these were answered
// correctly.
func (o outage) isOver(answers []Answer, isRight map[string]bool) bool {
	wasRetried := false
	for _, i := range o.wrong {
		right, isRetried := isRight[answers[i].Vector]
		if isRetried && !right {
			return false
		}
		wasRetried = wasRetried || isRetried
	}
	return wasRetried
}

// describe returns from when to when an outage lasted, and an example of a wrong answer.
func (o outage) describe(b *Plan, answers []Answer) string {
	begin, end := answers[o.wrong[0]], answers[o.wrong[len(o.wrong)-1]]
	v, _ := b.findQuestion(begin.Vector)
	return fmt.Sprintf(
		"transient, from %s to %s of the run: everything got %s, %d answers of it wrong, and right when asked again; the first was %s",
		sinceBegin(begin.AtMs),
		sinceBegin(end.AtMs+end.Millis),
		o.outcome,
		len(o.wrong),
		b.describeQuestion(v, begin),
	)
}

// sinceBegin returns a time since the beginning of the run, in seconds.
func sinceBegin(ms int64) string { return fmt.Sprintf("%.3f s", float64(ms)/1000) }
