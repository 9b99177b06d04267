package record

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/authzconf/authzconf/verdicts"
)

// TestRedactedAsRead checks that what is judged and shown is what a reader of the report has: without a monotonic
// clock, with which durations may differ, and without bytes that JSON cannot have.
func TestRedactedAsRead(t *testing.T) {
	now := time.Now()
	steps := func() []verdicts.Observation {
		return []verdicts.Observation{{Sent: now, Answered: now, Reviews: []verdicts.Review{{At: now}}, Requests: []verdicts.Observation{{Sent: now, Reviews: []verdicts.Review{{At: now}}}}}}
	}
	for _, scenario := range []string{"plain", "Bearer " + secretOpaque, "no \xff text"} {
		clean, err := RedactedCopy(
			&verdicts.Evidence{
				Scenario: scenario,
				Started:  now,
				Ended:    now,
				Steps:    steps(),
				Control:  &verdicts.Evidence{Started: now, Ended: now, Steps: steps()},
			},
			"the evidence",
		)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v %+v", *clean, *clean.Control)
		if strings.Contains(text, " m=") || !utf8.ValidString(text) || !clean.Control.Steps[0].Requests[0].Reviews[0].At.Equal(now) {
			t.Errorf("%s: %q", scenario, text)
		}
	}
}
