package main

import (
	"fmt"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/reports"
)

// SummaryRow is a row of the first table: what a release lead asks, and what runs say.
type SummaryRow struct {
	Question, Answer string
	// HowMany is how many blocks, or pairs and starts, the answer rests on.
	HowMany string
	// Interval is in which the figure lies: of counts what the model predicts, of times 95 %.
	Interval string
	// Where is the run that has the figures, and Part the part that the run belongs to. Part is empty if nothing was
	// measured.
	Where, Part string
}

// change is what the gate, or the move to a constrained mode, makes of the reviews of a request.
type change struct {
	question string
	// sides are what is compared; of several the first that a run has on both sides.
	sides []sides
}

// sides are the variants that are compared: what requests are before a change, and after it.
type sides struct {
	before, after judge.VariantKey
}

// Legacy impersonation without the gate, of a node by its name and group, as node agents have to, and by its name alone.
var (
	legacyByGroup = judge.VariantKey{Variant: "legacy-node", Server: "gate-off"}
	legacyByName  = judge.VariantKey{Variant: "legacy-gate-off", Server: "gate-off"}
)

// changes are what is asked about reviews. With the gate off and on, agents send the same headers: a group of the impersonated user
// is a review more, so that other sides would differ in more than the gate.
var changes = []change{
	{"We turn the gate on, and change no permission.", []sides{
		{legacyByGroup, judge.VariantKey{Variant: "legacy-node", Server: "gate-on"}},
		{legacyByName, judge.VariantKey{Variant: "legacy-gate-on", Server: "gate-on"}},
	}},
	{"We move node agents to associated-node.", []sides{
		{legacyByGroup, judge.VariantKey{Variant: "associated-node", Server: "gate-on"}},
		{legacyByName, judge.VariantKey{Variant: "associated-node", Server: "gate-on"}},
		{legacyByGroup, judge.VariantKey{Variant: "associated-node-cold", Server: "gate-on"}},
		{legacyByName, judge.VariantKey{Variant: "associated-node-cold", Server: "gate-on"}},
	}},
	{"A requestor may not impersonate, and goes on trying.", []sides{
		{judge.VariantKey{Variant: "denied", Server: "gate-off"}, judge.VariantKey{Variant: "denied", Server: "gate-on"}},
	}},
}

// answerQuestions returns the first table: the reviews of requests, then times, then the most in one second.
func answerQuestions(parts []Part) (list []SummaryRow) {
	for _, c := range changes {
		list = append(list, c.answer(parts)...)
	}
	list = append(list, answerTimes(parts)...)
	return append(list, answerPeak(parts))
}

// answer returns a row for each way of asking that was measured in a steady state. Otherwise it returns one, for the run
// with the most agents in which all of them had asked before: a mean of all blocks has events and first requests in it.
func (c change) answer(parts []Part) (list []SummaryRow) {
	var largest, mixed *SummaryRow
	agents, mixedAgents := 0, 0
	for _, p := range parts {
		for i := range p.Columns {
			col := &p.Columns[i]
			before, after := c.measured(col)
			isMeasured := before != nil && col.Result.Counted()
			if !isMeasured {
				continue
			}
			row := newReviewsAnswer(c.question, p.Name, col, before, after)
			isSteady := before.Reviews.Of == judge.SteadyState && after.Reviews.Of == judge.SteadyState
			switch {
			case isSteady:
				list = append(list, row)
			case after.Reviews.Of == judge.AllBlocks && after.Agents > mixedAgents:
				mixed, mixedAgents = &row, after.Agents
			case after.Reviews.Of != judge.AllBlocks && after.Agents > agents:
				largest, agents = &row, after.Agents
			}
		}
	}
	switch {
	case len(list) > 0:
		return list
	case largest != nil:
		return []SummaryRow{*largest}
	case mixed != nil:
		return []SummaryRow{*mixed}
	}
	return []SummaryRow{{Question: c.question, Answer: "not measured"}}
}

// measured returns what a run has of the first sides of which it has both, nil if it has none.
func (c change) measured(run *column) (before, after *judge.Variant) {
	for _, s := range c.sides {
		before, after = run.Measured(s.before), run.Measured(s.after)
		if before != nil && after != nil {
			return before, after
		}
	}
	return nil, nil
}

func newReviewsAnswer(question, part string, c *column, before, after *judge.Variant) SummaryRow {
	a := SummaryRow{
		Question: question,
		Answer: fmt.Sprintf(
			"%.3f → %.3f reviews a request, %s",
			before.Reviews.PerRequest.Estimate,
			after.Reviews.PerRequest.Estimate,
			after.Reviews.Of,
		),
		HowMany:  fmt.Sprintf("%d and %s", before.Reviews.Blocks, reports.Plural(after.Reviews.Blocks, "block")),
		Interval: predictedOf(after.Reviews),
		Where:    fmt.Sprintf("%s and %s: %s", before.Variant, after.Variant, c.Title),
		Part:     part,
	}
	if first := after.FirstContact; first != nil {
		a.Answer += fmt.Sprintf("; %.3f at first contact", first.PerRequest.Estimate)
	}
	return a
}

// predictedOf returns what the model says of a figure.
func predictedOf(r judge.ReviewRate) string {
	if r.Predicted == nil {
		return "not predicted"
	}
	return fmt.Sprintf("predicted %s", *r.Predicted)
}

// answerTimes returns a row for each comparison with the gate on whose difference in time is known, or one that says that none is.
// The row says so if nothing follows from the difference.
func answerTimes(parts []Part) (list []SummaryRow) {
	const question = "Requests take longer, or the API server more of its processor."
	for _, p := range parts {
		for _, c := range p.MeasuredComparisons() {
			if c.AA {
				continue
			}
			answer := fmt.Sprintf("p50 %s, CPU of the API server %s", c.P50.DescribeChange(), c.CPU.DescribeChange())
			if !c.Alike {
				answer = fmt.Sprintf("not known, as %s: %s", notAlike, answer)
			}
			list = append(list, SummaryRow{
				Question: question,
				Answer:   answer,
				HowMany:  fmt.Sprintf("%s in %s", reports.Plural(c.Pairs, "pair"), reports.Plural(c.Starts, "start")),
				Interval: "95 %",
				Where:    fmt.Sprintf("%s after %s: %s", c.B, c.A, c.Title), Part: p.Name,
			})
		}
	}
	if len(list) == 0 {
		return []SummaryRow{{Question: question, Answer: "not known: no comparison has the starts that it takes"}}
	}
	return list
}

// answerPeak returns the highest second of all events.
func answerPeak(parts []Part) SummaryRow {
	const question = "An API server restarts, agents are rolled out, or what is remembered ends."
	var highest *judge.Variant
	var where, part string
	for _, p := range parts {
		for i := range p.Columns {
			col := &p.Columns[i]
			for j := range col.Result.Variants {
				v := &col.Result.Variants[j]
				isHigher := highest == nil || v.MostReviews > highest.MostReviews
				if col.Result.Counted() && v.MostReviews > 0 && isHigher {
					highest, where, part = v, col.Title, p.Name
				}
			}
		}
	}
	if highest == nil {
		return SummaryRow{Question: question, Answer: "not measured"}
	}
	return SummaryRow{
		Question: question,
		Answer:   fmt.Sprintf("at most %d reviews in one second, which is what the machine can do", highest.MostReviews),
		HowMany:  reports.Plural(highest.Blocks, "block"), Interval: "none", Where: highest.Name + ": " + where, Part: part,
	}
}
