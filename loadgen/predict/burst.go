package predict

import (
	"math"
	"time"
)

// burst is what is asked when everybody in a part asks once within some time, or what is asked in the beginning. Its
// closed form leaves out most effects of requests that are open at the same time. It only considers that they ask for
// the same identity, and for the mode of the same name.
type burst struct {
	*part
	// units is how many ask in all, some of them several times, over some seconds.
	units  int
	asks   float64
	length float64
	idle   float64
	// isCold means that the server remembers nothing. Otherwise what service accounts share is remembered.
	isCold bool
	// isHome means that the server knows the units already.
	isHome bool
	// forgotten is the part of the units for which the server remembers no success.
	forgotten float64
}

// cost returns what the burst leads to.
func (b burst) cost() (a amount) {
	a.requests = b.asks
	for _, st := range b.steps() {
		checks := b.checks(st)
		a.checks += checks
		if reaches, life := b.plan.Authorizer.review(st); reaches {
			a.reviews += b.reviews(st, checks, life)
		}
	}
	return a
}

// distinct returns how many different requests of different units there are.
func (b burst) distinct() float64 { return min(b.asks, float64(b.units*b.Requests)) }

// checks returns how many checks of a step there are.
func (b burst) checks(st step) float64 {
	gap := b.length / (b.asks / float64(b.accounts))
	switch st.kind {
	case TryCheck:
		isAlways := b.mode == "" || b.isUnknown
		if isAlways {
			return b.asks
		}
		if b.isShared() && !b.isCold {
			return 0
		}
		until := b.takes * float64(len(b.tries)+len(b.action)+len(b.identity))
		return b.atOnce(until, gap)
	case ActionCheck:
		return b.distinct() * b.forgotten
	case IdentityCheck:
		if b.requestors() == b.part.units {
			return min(b.asks, float64(b.units)) * b.forgotten
		}
		if !b.isCold {
			return 0
		}
		return b.atOnce(b.takes*float64(len(b.identity)), gap)
	}
	return b.asks
}

// isShared reports whether several units have one account, so that another one has asked before.
func (b burst) isShared() bool { return b.perAccount > 1 }

// atOnce returns how many requests ask at the same time for what each account needs once and what takes some time.
func (b burst) atOnce(takes, gap float64) float64 {
	each := max(1, math.Ceil(takes/gap-tiny))
	return min(b.asks, float64(b.accounts)*each)
}

// reviews returns about how many of the checks of a step the webhook is asked. Its answers are remembered for the given
// time.
func (b burst) reviews(st step, checks float64, life time.Duration) float64 {
	if life == 0 || checks == 0 {
		return checks
	}
	count, c := b.questionsOf(st)
	if c.gap >= b.idle {
		return checks
	}
	if b.isHome && !st.byToken {
		q := question{step: st, count: count, times: c, life: life.Seconds()}
		since := 0.0
		if st.kind == ActionCheck {
			since = time.Duration(b.plan.Memory).Seconds()
		}
		return checks * (1 - q.knownPart(b.part, b.idle, since))
	}
	switch {
	case st.scope == ofSubjectRequest && b.isOfNodes():
		return min(checks, b.subjects())
	case st.scope == ofDeputyRequest, st.scope == ofDeputy:
		return min(checks, float64(count))
	}
	return min(checks, b.distinct())
}

// subjects returns how many different requests of different nodes there are.
func (b burst) subjects() float64 {
	return min(b.asks, float64(b.nodes*b.Requests))
}

// first returns what the first seconds cost on servers that have all just started, with agents that keep their times.
func (c *closedForm) first(seconds float64) (a amount) {
	for server, parts := range c.servers {
		for _, p := range parts {
			asks := p.rate() * seconds
			units := int(min(float64(p.units), math.Ceil(asks)))
			a = a.plus(burst{part: p, units: units, asks: asks, length: seconds, idle: c.idle[server], isCold: true, forgotten: 1}.cost())
		}
	}
	return a
}

// restart returns what the units of the first server cost when they come back: to that server or, if there are several,
// to the others, which know their accounts.
func (c *closedForm) restart(seconds float64) (a amount) {
	for _, p := range c.servers[0] {
		a = a.plus(burst{
			part: p, units: p.units, asks: float64(p.units), length: seconds, idle: c.idle[0],
			isCold: c.plan.APIServers == 1, forgotten: 1,
		}.cost())
	}
	return a
}

// rollout returns what it costs if all pods of the first DaemonSet of each workload, or all pods of deputies, are new.
// For associated-node the server knows those that have asked for the last time before it forgets.
func (c *closedForm) rollout(seconds float64) (a amount) {
	for server, parts := range c.servers {
		for _, p := range parts {
			b := burst{part: p, units: p.units, length: seconds, idle: c.idle[server], isHome: true, forgotten: 1}
			if p.isOfNodes() {
				b.units = p.nodes
			}
			if b.asks = float64(b.units); !p.isTokenAsked() {
				b.forgotten = p.forgottenPart()
			}
			a = a.plus(b.cost())
		}
	}
	return a
}

// isTokenAsked reports whether a success is forgotten with the token.
func (p *part) isTokenAsked() bool {
	return len(p.action) == 0 || p.action[0].byToken
}

// forgottenPart returns the part of the units whose last success is forgotten at some time.
func (p *part) forgottenPart() float64 {
	life := time.Duration(p.plan.Memory).Seconds()
	return max(0, 1-life/(p.period*float64(p.Requests*p.actions)))
}

// expiry returns the most that there can be in a second in which everybody asks in their own time. It assumes that
// everything that is remembered, successes or answers of the webhook, is forgotten at once.
func (c *closedForm) expiry() (a amount) {
	for server, parts := range c.servers {
		for _, p := range parts {
			a = a.plus(amount{p.rate(), p.forgottenChecks(), p.forgottenReviews(c.idle[server])})
		}
	}
	return a
}

// forgottenChecks returns how many checks a second the part makes when all its successes are forgotten.
func (p *part) forgottenChecks() (sum float64) {
	for _, st := range p.steps() {
		sum += p.forgottenCheck(st)
	}
	return sum
}

// forgottenCheck returns how many checks of a step there are in a second when all successes are forgotten.
func (p *part) forgottenCheck(st step) float64 {
	switch {
	case st.kind == ActionCheck:
		return p.rate()
	case st.kind == IdentityCheck && p.requestors() == p.units:
		// Requests of one unit that are all different share the identity.
		inLife := int(time.Duration(p.plan.Memory).Seconds() / p.period)
		return p.rate() / float64(max(1, min(p.Requests, inLife)))
	}
	return p.checkRate(st)
}

// forgottenReviews returns how many reviews a second the part leads to when all answers are forgotten.
func (p *part) forgottenReviews(idle float64) (sum float64) {
	for _, q := range p.answers {
		if q.life == 0 {
			sum += p.forgottenCheck(q.step)
			continue
		}
		again := float64(q.count) * q.concurrency / max(q.times.gap, 1)
		sum += max(q.reviewRate(p, idle), again)
	}
	return sum
}

// knownPart returns the part of the time in which the answer to a question is remembered that was last asked longer
// than since ago, in seconds.
func (q question) knownPart(p *part, idle, since float64) float64 {
	cycle := 1 / q.times.findMisses(memory{pending: p.takes, life: q.life, idle: idle}).rate
	lifetime := min(q.life, cycle)
	if q.times.gap >= idle {
		lifetime = min(lifetime, idle)
	}
	return max(0, lifetime-since) / max(cycle-since, tiny)
}
