package certify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/policy"
)

// part is what one case of a report is about: the questions of a level that look for one kind of mistake, or a check
// that asks some of them again in other circumstances.
type part struct {
	level CertificationLevel
	name  string
}

// id returns the ID of the case in a report.
func (p part) id() string { return string(p.level) + "/" + p.name }

// partOf returns the part that the answer to a question in a check belongs to.
func partOf(check string, v Question) part {
	switch {
	case check == plainCheck || check == firstCheck:
		return partOfQuestion(v)
	case isLoadCheck(check):
		return partOfLoad(check)
	case v.Level == Safe:
		return part{Safe, check}
	}
	return part{Robust, check}
}

// partOfQuestion returns the part of a question, which is named after the mistake that it looks for. For each way to
// compare two strings wrongly, all attributes are in one part.
func partOfQuestion(v Question) part {
	class := policy.Class(v.Reason)
	if class == "" || v.Level == Core {
		return part{v.Level, v.Reason}
	}
	return part{v.Level, class}
}

// partOfLoad returns the part of a check under load.
func partOfLoad(check string) part {
	name := strings.TrimPrefix(check, loadPrefix)
	if check != volumeCheck && check != idleCheck {
		name += "-per-second"
	}
	return part{Load, name}
}

// partOfObservation returns the part that an answer with something seen through an API server belongs to.
func (b *Plan) partOfObservation(a Answer) part {
	if a.Check == revocation {
		return part{Revocation, a.Vector}
	}
	return b.clusterChecks()[a.Vector].part()
}

// part returns the part that a check in a cluster belongs to: its subject, in one place of the chain.
func (c clusterCheck) part() part {
	subject := "decisions"
	switch {
	case c.Scenario != nil:
		subject = "impersonation"
	case c.Phase == phaseDown || c.Phase == phaseRestored:
		subject = "outage"
	}
	return part{InCluster, fmt.Sprintf("%s/%s", c.Place, subject)}
}

// tally counts the answers of each part.
type tally struct {
	// parts are in the order in which they were planned.
	parts  []part
	counts map[part]*count
}

type count struct{ planned, answered int }

func newTally() *tally { return &tally{counts: map[part]*count{}} }

// countOf returns the count of a part.
func (t *tally) countOf(p part) *count {
	if t.counts[p] == nil {
		t.counts[p] = &count{}
		t.parts = append(t.parts, p)
	}
	return t.counts[p]
}

// sumLevel returns the sum of the counts of a level's parts, and reports whether each part is complete.
func (t *tally) sumLevel(level CertificationLevel) (sum count, complete bool) {
	complete = true
	for _, p := range t.parts {
		if p.level != level {
			continue
		}
		n := t.counts[p]
		sum.planned += n.planned
		sum.answered += n.answered
		complete = complete && n.answered >= n.planned
	}
	return sum, complete
}

// partsOf returns the parts of a level in their order.
func (t *tally) partsOf(level CertificationLevel) []part {
	return slices.DeleteFunc(slices.Clone(t.parts), func(p part) bool { return p.level != level })
}

// planTally returns how much direct mode asks of each part.
func (b *Plan) planTally() *tally {
	t := newTally()
	for _, v := range b.All() {
		if !b.leavesOut(v) {
			t.countOf(partOfQuestion(v)).planned++
		}
	}
	repetitions := b.repeatedQuestions()
	for _, check := range b.repeatChecks() {
		for _, v := range repetitions[check] {
			t.countOf(partOf(check, v)).planned++
		}
	}
	return t
}

// clusterTally returns how much is checked in the chain of an API server, by part.
func (b *Plan) clusterTally() *tally {
	t := newTally()
	for _, check := range b.clusterPlan() {
		t.countOf(check.part()).planned++
	}
	return t
}

// addAnswers adds the answers of direct mode. Among the questions that are asked once, each counts once. A question
// that is asked again counts only at its place in the order, because an answer to another question might otherwise
// replace one that was wrong.
func (t *tally) addAnswers(b *Plan, answers []Answer) {
	isCounted, next, repetitions := map[string]bool{}, map[string]int{}, b.repeatedQuestions()
	for _, a := range answers {
		isDirect := a.ClusterObservation == nil && !isLoadCheck(a.Check)
		if a.Control || !isDirect {
			continue
		}
		v, isKnown := b.findQuestion(a.Vector)
		if !isKnown {
			continue
		}
		switch all, n := repetitions[a.Check], next[a.Check]; {
		case a.Check != plainCheck:
			if n < len(all) && all[n].ID == a.Vector {
				next[a.Check]++
				t.countOf(partOf(a.Check, v)).answered++
			}
		case !isCounted[a.Vector]:
			isCounted[a.Vector] = true
			t.countOf(partOfQuestion(v)).answered++
		}
	}
}
