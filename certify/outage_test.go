package certify

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// TestOutageIsOneFinding judges answers with several wrong ones in a row. When asked again they are right, or not.
func TestOutageIsOneFinding(t *testing.T) {
	b := plan(t, smallSeed)
	decide := func(v Question, d scenarios.Decision, check string, at int) Answer {
		a := Answer{Check: check, Vector: v.ID, HTTP: 200, Protocol: 2, AtMs: int64(at)}
		a.keepBody(reference.Answer(v.apiVersion(), d), v)
		return a
	}
	answers := func(isRightAgain bool) (out []Answer) {
		wrong := 0
		for i, v := range b.All() {
			if v.Form != "" || v.Expect == "" {
				continue
			}
			d := v.Expect
			if i > 100 && wrong < 9 {
				if d = scenarios.Allow; v.Expect != d {
					wrong++
				}
			}
			out = append(out, decide(v, d, plainCheck, i))
		}
		for _, v := range b.suspects(out) {
			d := v.Expect
			if !isRightAgain {
				d = scenarios.Allow
			}
			out = append(out, decide(v, d, retryCheck, len(out)))
		}
		return out
	}
	judged, err := b.Judge(answers(true))
	if err != nil {
		t.Fatal(err)
	}
	if len(judged.Findings) != 1 || judged.Findings[0].Reason != reasonTransient ||
		!strings.Contains(judged.Findings[0].Examples[0], "from 0.1") {
		t.Errorf("an outage is %+v", judged.Findings)
	}
	judged, err = b.Judge(answers(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range judged.Findings {
		if f.Reason == reasonTransient {
			t.Errorf("what is wrong again is %+v", f)
		}
	}
	if o := judged.Observation; o.Duration == 0 || o.AllowGap == 0 || o.DenyGap == 0 || o.AllowGap > o.Duration {
		t.Errorf("observed %+v", o)
	}
}
