package ga

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// OtherGate returns the gate that a report is about, if that is not ConstrainedImpersonation, or "".
func (s Source) OtherGate() string {
	if s.Report == nil {
		return ""
	}
	for _, g := range s.Report.Groups {
		if g.Cell != nil && g.Cell.FeatureGate.Name != "" {
			return g.Cell.FeatureGate.Name
		}
	}
	return ""
}

// listGates returns the other gates that reports are about, each once.
func listGates(sources []Source) (names []string) {
	for _, s := range sources {
		if name := s.OtherGate(); name != "" {
			names = seq.AppendMissing(names, name)
		}
	}
	return names
}

// Switch is an answer to a question about turning a gate off or on again.
type Switch struct{ Question, Answer string }

// These are the questions of the production readiness review about turning a feature off and on again, in its own
// words.
const (
	canDisable = "Can the feature be disabled once it has been enabled (i.e. can we roll back the enablement)?"
	reenable   = "What happens if we reenable the feature if it was previously rolled back?"
)

// Switches answers, from a path about another gate, what happened when the gate was turned off and on again.
func (s Source) Switches() (answers []Switch) {
	if s.OtherGate() == "" {
		return nil
	}
	var off, again []string
	wasOn, wasOff := false, false
	for _, g := range s.Report.Groups {
		isOn := g.Target != nil && g.Target.FeatureGates[s.OtherGate()] == scenarios.GateOn
		switch {
		case isOn && wasOff:
			again = append(again, describeStage(g))
		case wasOn && !isOn:
			off = append(off, describeStage(g))
			wasOff = true
		}
		wasOn = wasOn || isOn
	}
	if len(off) > 0 {
		answers = append(answers, Switch{canDisable, strings.Join(off, " ")})
	}
	if len(again) > 0 {
		answers = append(answers, Switch{reenable, strings.Join(again, " ")})
	}
	return answers
}

// describeStage returns in words how many of a stage's cases passed.
func describeStage(g reports.Group) string {
	executed := seq.Filter(g.Cases, func(r reports.Result) bool { return reports.Executed(r.Verdict) })
	passed := seq.Count(executed, func(r reports.Result) bool { return r.Verdict == verdicts.Passed })
	version := "an API server that was not reached"
	if g.Witness != nil {
		version = g.Witness.GitVersion
	}
	how := "the gate was set"
	if g.Cell.FeatureGate.Gate == scenarios.GateDefault {
		how = "the gate was left as this version has it"
	}
	return fmt.Sprintf("On stage %s (%s, %s), %d of %d cases passed.", g.Name, version, how, passed, len(executed))
}
