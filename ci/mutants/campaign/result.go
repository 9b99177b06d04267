// Package campaign runs the suite against each mutant of a kube-apiserver.
package campaign

import (
	"strings"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

// Status is what became of a mutant.
type Status string

const (
	// Killed: a scenario failed, every time it was run.
	Killed Status = "killed"
	// Noticed: a scenario could not be judged, any time it was run: the recorder and
	// the API server's own counts disagree, an audit event is missing, an answer
	// broke off.
	Noticed Status = "noticed"
	// Refused: the API server did not start, or the witness found it to be another
	// one than was asked for.
	Refused Status = "refused"
	// Survived: every scenario that comes by the change passed.
	Survived Status = "survived"
	// Unreached: no scenario comes by the change.
	Unreached Status = "unreached"
	// Equivalent: argued to be no change that a client can see.
	Equivalent Status = "equivalent"
)

// Caught says whether the suite noticed the mutant.
func (s Status) Caught() bool { return s == Killed || s == Noticed || s == Refused }

// Result is what became of one mutant.
type Result struct {
	mutate.Mutant
	Status Status `json:"status"`
	// Cell and Scenario are where it was caught.
	Cell     string `json:"cell,omitempty"`
	Scenario string `json:"scenario,omitempty"`
	// Difference is the first one that was seen, or what broke.
	Difference string `json:"difference,omitempty"`
	// Blame is the blame of the failure.
	Blame string `json:"blame,omitempty"`
	// Unsteady are scenarios that did not pass, and then did. They do not count.
	Unsteady []string `json:"unsteady,omitempty"`
	// Tried is the number of scenarios that were run.
	Tried int `json:"tried"`
	// Took is the time in seconds, starting control planes included.
	Took float64 `json:"seconds"`
	// Reason is why the mutant is equivalent.
	Reason string `json:"reason,omitempty"`
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// lineLimit is how much is kept of what was seen.
const lineLimit = 300

// firstLine is the first line of a text, cut if it is very long.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > lineLimit {
		return string(runes[:lineLimit]) + "…"
	}
	return line
}
