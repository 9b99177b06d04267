package certify

import (
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// Observation is how long an authorizer was observed, and how long an outage could last without being seen.
type Observation struct {
	// Duration is the time from the first question to the last one.
	Duration time.Duration
	// AllowGap is the longest time without an answer that would have shown that everything is allowed. DenyGap is the
	// longest time without one that would have shown that nothing is. A longer outage is found; a shorter one is found
	// only by chance.
	AllowGap, DenyGap time.Duration
}

// observe returns how closely the authorizer was observed while everything was asked once.
func (b *Plan) observe(answers []Answer) (o Observation) {
	var begin, opens, closes int64
	count := 0
	for _, a := range answers {
		v, isKnown := b.findQuestion(a.Vector)
		isOnce := isKnown && a.Check == plainCheck && a.undecidedReason() == ""
		if !isOnce {
			continue
		}
		at := a.AtMs + a.Millis
		if count++; count == 1 {
			begin, opens, closes = at, at, at
		}
		switch v.Expect {
		case scenarios.Allow:
			o.DenyGap, closes = max(o.DenyGap, milliDuration(at-closes)), at
		case scenarios.NoOpinion:
			o.AllowGap, opens = max(o.AllowGap, milliDuration(at-opens)), at
		}
		o.Duration = milliDuration(at - begin)
	}
	return o
}

func milliDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
