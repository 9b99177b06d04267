package certify

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/verdicts"
)

// one says whether a line of the evidence is one thing: an answer, a stage, what was seen, or the versions that were
// asked. What is two could be counted as the one and judged as the other.
func (a Answer) one() bool {
	line := Answer{Check: a.Check, Vector: a.Vector, Control: a.Control, Stage: a.Stage, Seen: a.Seen}
	if a.Seen != nil {
		line.Millis = a.Millis
	}
	answer := a.Stage == nil && a.Seen == nil && a.Check != versionsCheck
	return answer || (a.Stage == nil || a.Seen == nil && a.Vector == "") && reflect.DeepEqual(a, line)
}

// possible says whether a stage is one that the harness has: of a rate it keeps up what it was meant to for its time, the
// control for less than a second too.
func (s *Stage) possible(check string, control bool) bool {
	amount := check == volume || check == idle
	if sound := s.Planned > 0 && min(s.Dropped, s.Right, s.Planned-s.Right) >= 0; amount || !sound {
		return sound && s.Rate == 0 && s.Dropped == 0
	}
	return s.Right == 0 && s.Rate > 0 && (check == soak || check == fmt.Sprintf("%s%d", loadCheck, s.Rate)) &&
		(control || s.Planned >= s.Rate) && s.Micros+1000 >= int64(s.Planned-1)*1e6/int64(s.Rate)
}

// holdLines says where the evidence is not what asking leaves behind: lines of known checks, and of load one stage for each
// rate, with the answers to its questions behind it, in their order, until all have come.
func (b *Plan) holdLines(answers []Answer) error {
	if err := b.cellOf(answers); err != nil {
		return err
	}
	known, repeatable := b.askedAgain(), b.repeatable()
	known[plain] = nil
	stages, next, left, last := map[string]*Stage{}, map[string]int{}, map[string]int{}, map[string]int64{}
	for i, a := range answers {
		_, fits := known[a.Check]
		s := stages[a.Check]
		switch {
		case a.Stage != nil:
			if fits = isLoad(a.Check) && (s == nil || a.Control) && a.Stage.possible(a.Check, a.Control); !a.Control {
				stages[a.Check], left[a.Check] = a.Stage, a.Stage.Planned-a.Stage.Right-a.Stage.Dropped
			}
		case a.Control, a.Check == versionsCheck:
			fits = true
		case a.Seen != nil:
			fits = b.fits(a.Vector, a.Seen.Scenario)
		case isLoad(a.Check):
			is := func(n int) bool { return apart(b.Scenario, n).ID == a.Vector }
			if a.Check == volume || a.Check == idle {
				is = func(n int) bool { return apart(repeatable, n).ID == a.Vector }
			}
			n := next[a.Check]
			for s != nil && n < s.Planned && !is(n) {
				n++
			}
			next[a.Check], last[a.Check] = n+1, max(last[a.Check], a.Micros)
			left[a.Check]--
			fits = s != nil && n < s.Planned && left[a.Check] >= 0
		}
		if !fits || !a.one() {
			return fmt.Errorf("line %d of the evidence, of the check %q, is not one that asking leaves behind", i+1, word(a.Check))
		}
	}
	for check, s := range stages {
		if s.Rate > 0 && s.Micros > int64(s.Planned)*1e6/int64(s.Rate)+last[check]+1e6 {
			return fmt.Errorf("the evidence of %s is of another rate: %d reviews in %d µs", check, s.Planned, s.Micros)
		}
	}
	return nil
}

// fits says whether a scenario was seen under its own names, on the API server of all others, which shows everything; where
// its gate was off, against what was asked for, everything that it shows then.
func (b *Plan) fits(vector string, e *verdicts.Evidence) bool {
	if e == nil || len(e.Problems) > 0 {
		return true
	}
	s, cell := b.clusterChecks()[vector].Scenario, b.cell
	if e.Cell.Gate == string(server.AskOff) {
		cell.Gate = e.Cell.Gate
	}
	return s != nil && e.Cell == cell && e.Authorizer && e.Suffix == b.suffixOf(s) && e.Digest == s.Digest &&
		slices.Equal(e.Capabilities, server.ExpectedFacts(server.Options{Cell: cell}).Capabilities)
}
