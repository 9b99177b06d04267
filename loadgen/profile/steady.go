package profile

import (
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
)

// SettleTime is how long agents have to ask in a random schedule until the counts no longer show that it began with a
// server that remembered nothing of them: twice as long as a check is remembered.
const SettleTime = 2 * CacheLife

// webhookLife is how long, by default, an API server remembers what a webhook has not allowed.
const webhookLife = 30 * time.Second

// Cycle returns how long it takes until an agent that asks at an interval is checked again. What it asks within
// CacheLife after a check is remembered, and does not make the server remember longer. 0 is the cycle of agents that
// ask once.
func Cycle(every time.Duration) time.Duration {
	if every <= 0 {
		return 0
	}
	requests := int64(CacheLife/every) + 1 // all but the first are remembered
	return time.Duration(requests * int64(every))
}

// Steady reports whether the reviews per request that are counted in a block after its first Settle are those of the
// steady state. A fraction of a cycle would count too many checks, or too few.
func (p *Profile) Steady() bool {
	countedTime := p.Block - p.Settle
	switch {
	case p.Once(), p.Reflectors, p.Arrivals.Opening, p.Event.Kind != NoEvent:
		return false
	case p.Authorizer.Cache && p.Settle < 2*webhookLife:
		return false
	case p.isRegular():
		return countedTime%Cycle(p.Arrivals.Every) == 0
	case p.Arrivals.Kind == pacer.Periodic:
		return p.Settle >= SettleTime && countedTime%p.Arrivals.Every == 0
	}
	return p.Settle >= SettleTime
}

// isRegular reports whether each agent asks at equal intervals.
func (p *Profile) isRegular() bool {
	periodic := p.Arrivals.Kind == pacer.Periodic || p.Arrivals.Kind == pacer.Constant
	return periodic && p.Arrivals.Jitter == 0
}

// fitBlock lengthens a block that is counted after Settle so that it is steady in its schedule.
func (p *Profile) fitBlock() {
	unit := p.Arrivals.Every
	if p.isRegular() {
		unit = Cycle(unit)
	}
	if p.Settle == 0 || unit <= 0 {
		return
	}
	countedTime := max(CacheLife, p.Block-p.Settle)
	for step := unit; ; step += unit {
		p.Block = p.Settle + step
		if step >= countedTime && p.Block%CacheLife == 0 {
			return
		}
		if step > maxBlock { // which is refused
			return
		}
	}
}

// checkSettle finds a block that claims to be counted in the steady state but is not.
func (p *Profile) checkSettle(c *checker) {
	if p.Settle == 0 {
		return
	}
	c.ok(
		p.Settle >= SettleTime && p.Settle < p.Block,
		"$.settle",
		"settle %s: expected %s, twice the life of a cached check, to less than the block's %s",
		p.Settle,
		SettleTime,
		p.Block,
	)
	if c.err == nil && !p.Steady() {
		fitting := *p
		fitting.fitBlock()
		c.ok(
			false,
			"$.settle",
			"what is counted after %s in a block of %s is not a steady state: expected arrivals at a rate without an event, and whole cycles of agents that ask every %s (a block of %s)",
			p.Settle,
			p.Block,
			p.Arrivals.Every,
			fitting.Block,
		)
	}
}
