package predict

import (
	"math"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
)

// part is the part of a workload that one API server has, as the closed form sees it.
type part struct {
	Workload
	script
	plan *Plan
	// number is the number of the workload.
	number int
	// units is the number of its agents or users, and nodes that of their nodes.
	units, nodes int
	// accounts is the number of its service accounts, and perAccount how many units share one. deputies and perDeputy
	// mean the same for deputies.
	accounts, perAccount int
	deputies, perDeputy  int
	// isUnknown means that there are more names than the API server remembers modes for.
	isUnknown bool
	// period is every, and takes is how long a check takes, both in seconds.
	period, takes float64
	// actions is the step of the rounds of requests in which a unit is asked for the action: one in so many.
	actions int
	// lookups are the times at which the identity of one requestor is looked for. identities is how often it is then
	// asked for.
	lookups    periodicTimes
	identities misses
	answers    []question
}

// question is a kind of question to the webhook. There are count different questions of the kind, which are asked in
// the same way.
type question struct {
	step
	count int
	times periodicTimes
	// concurrency is how many requests ask it at the same time.
	concurrency float64
	life        float64
}

// newPart returns the part of a workload that a server has.
func newPart(p *Plan, w Workload, s script, server int) *part {
	out := &part{
		Workload: w, script: s, plan: p, period: time.Duration(w.Every).Seconds(), takes: time.Duration(p.Authorizer.Takes).Seconds(),
	}
	if w.isOfNodes() {
		out.nodes = share(w.Nodes, p.APIServers, server)
		out.units = out.nodes * w.DaemonSets
		out.accounts, out.perAccount = w.DaemonSets, out.nodes
		if w.ServiceAccounts == profile.PerAgent {
			out.accounts, out.perAccount = out.units, 1
		}
	} else {
		out.units = usersOf(w, p.APIServers)[server]
		out.deputies = share(min(w.Deputies, w.Users), p.APIServers, server)
		if out.deputies > 0 {
			out.perDeputy = max(1, out.units/out.deputies)
		}
		out.accounts, out.perAccount = 1, out.units
		if w.ServiceAccounts == profile.PerAgent {
			out.accounts, out.perAccount = out.deputies, out.perDeputy
		}
	}
	if out.units > 0 && s.isConstrained() {
		out.findIdentities()
	}
	return out
}

// findIdentities computes how often the checks of a constrained mode are asked for.
func (p *part) findIdentities() {
	life := time.Duration(p.plan.Memory).Seconds()
	sharers, stored := 1, p.takes*float64(1+len(p.identity))
	if p.mode == oracle.AssociatedNode {
		sharers = p.perAccount
	}
	if sharers > 1 {
		stored = p.takes
	}
	round := p.period * float64(p.Requests)
	p.actions = max(1, int(math.Ceil((life+stored)/round-tiny)))
	p.lookups = newPeriodicTimes(sharers, p.period, p.period)
	if p.actions > 1 {
		p.lookups = periodicTimes{count: sharers * p.Requests, gap: p.period / float64(sharers), period: round * float64(p.actions)}
	}
	p.identities = p.lookups.findMisses(memory{pending: p.takes * float64(len(p.identity)), life: life, idle: math.Inf(1)})
}

// requestors returns how many different ones are looked for in the memory of identities.
func (p *part) requestors() int {
	if p.mode == oracle.AssociatedNode {
		return p.accounts
	}
	return p.units
}

// rate returns how many requests a second there are.
func (p *part) rate() float64 { return float64(p.units) / p.period }

// checkRate returns how many checks of a step there are in a second.
func (p *part) checkRate(st step) float64 {
	switch st.kind {
	case TryCheck:
		isAsked := p.mode == "" || p.isUnknown
		if !isAsked {
			return 0
		}
	case ActionCheck:
		return p.rate() / float64(p.actions)
	case IdentityCheck:
		return p.identities.rate * float64(p.requestors())
	}
	return p.rate()
}

// findQuestions computes what the webhook is asked.
func (p *part) findQuestions() {
	for _, st := range p.steps() {
		reaches, life := p.plan.Authorizer.review(st)
		if !reaches || p.checkRate(st) == 0 {
			continue
		}
		q := question{step: st, life: life.Seconds(), concurrency: 1}
		q.count, q.times = p.questionsOf(st)
		if st.kind == IdentityCheck {
			q.concurrency = p.identities.together
		}
		p.answers = append(p.answers, q)
	}
}

// questionsOf returns how many different questions a step asks, and when each of them is asked.
func (p *part) questionsOf(st step) (count int, c periodicTimes) {
	round := p.period * float64(p.Requests)
	switch {
	case st.kind == IdentityCheck && st.scope == ofDeputy:
		return p.deputies, newPeriodicTimes(p.perDeputy, p.period, 1/p.identities.rate)
	case st.kind == IdentityCheck:
		return p.requestors(), newSingle(p.identities.together / p.identities.rate)
	case st.kind == ActionCheck:
		round *= float64(p.actions)
	}
	switch st.scope {
	case ofUnitRequest:
		return p.units * p.Requests, newSingle(round)
	case ofAccount:
		return p.accounts, newPeriodicTimes(p.perAccount, p.period, p.period)
	case ofDeputyRequest:
		return p.deputies * p.Requests, newPeriodicTimes(p.perDeputy, p.period, round)
	case ofSubjectRequest:
		if p.isOfNodes() {
			return p.nodes * p.Requests, newPeriodicTimes(p.DaemonSets, p.period, round)
		}
		return p.units * p.Requests, newSingle(round)
	}
	return p.units, newSingle(p.period)
}

// idleTime returns how long an answer stays in an LRU cache of a size if nobody asks for it: until as many others were
// asked for as fit. It is infinite if all answers fit.
func idleTime(questions []question, size int) float64 {
	countTouched := func(time float64) (sum float64) {
		for _, q := range questions {
			sum += float64(q.count) * q.times.touchedPart(time)
		}
		return sum
	}
	longest := 0.0
	for _, q := range questions {
		longest = max(longest, q.times.period)
	}
	if countTouched(longest) <= float64(size) {
		return math.Inf(1)
	}
	low, high := 0.0, longest
	for range 100 {
		if middle := (low + high) / 2; countTouched(middle) > float64(size) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// reviewRate returns how many reviews of a question there are in a second.
func (q question) reviewRate(p *part, idle float64) float64 {
	if q.life == 0 {
		return p.checkRate(q.step)
	}
	m := q.times.findMisses(memory{pending: p.takes, life: q.life, idle: idle})
	return m.rate * float64(q.count) * q.concurrency
}

// closedForm is the whole cluster in closed form: the parts of all workloads on each of the servers.
type closedForm struct {
	plan    *Plan
	servers [][]*part
	// idle is how long each server keeps an answer that nobody asks for, in seconds.
	idle []float64
}

func newClosedForm(p *Plan, scripts []script) *closedForm {
	c := &closedForm{plan: p}
	for server := range p.APIServers {
		var parts []*part
		var names, questions []question
		for i, w := range p.Workloads {
			one := newPart(p, w, scripts[i], server)
			one.number = i
			if one.units == 0 {
				continue
			}
			parts = append(parts, one)
			names = append(names, question{count: one.accounts, times: one.names()})
		}
		known := idleTime(names, p.Modes)
		for _, one := range parts {
			one.isUnknown = one.names().gap >= known
			one.findQuestions()
			questions = append(questions, one.answers...)
		}
		c.servers, c.idle = append(c.servers, parts), append(c.idle, idleTime(questions, p.Authorizer.Size))
	}
	return c
}

// mostQuestions returns how many different questions the server asks that asks most of them.
func (c *closedForm) mostQuestions() (most int) {
	for _, parts := range c.servers {
		count := 0
		for _, p := range parts {
			count += seq.Sum(p.answers, func(q question) int { return q.count })
		}
		most = max(most, count)
	}
	return most
}

// names returns when the mode of a service account is looked for.
func (p *part) names() periodicTimes { return newPeriodicTimes(p.perAccount, p.period, p.period) }

// rates are requests, checks and reviews per second, by kind.
type rates struct {
	requests        float64
	checks, reviews [kindCount]float64
}

func (r *rates) add(more rates) {
	r.requests += more.requests
	for kind := range kindCount {
		r.checks[kind] += more.checks[kind]
		r.reviews[kind] += more.reviews[kind]
	}
}

// steady returns the long run by workload.
func (c *closedForm) steady() []rates {
	list := make([]rates, len(c.plan.Workloads))
	for server, parts := range c.servers {
		for _, p := range parts {
			list[p.number].add(p.steady(c.idle[server]))
		}
	}
	return list
}

// steady returns what the part leads to in the long run.
func (p *part) steady(idle float64) rates {
	r := rates{requests: p.rate()}
	for _, st := range p.steps() {
		r.checks[st.kind] += p.checkRate(st)
	}
	for _, q := range p.answers {
		r.reviews[q.kind] += q.reviewRate(p, idle)
	}
	return r
}

func sumOf(list []rates) (sum rates) {
	for _, r := range list {
		sum.add(r)
	}
	return sum
}

// total returns the checks and reviews of all kinds.
func (r rates) total() amount {
	out := amount{requests: r.requests}
	for kind := range kindCount {
		out.checks += r.checks[kind]
		out.reviews += r.reviews[kind]
	}
	return out
}

// amount is how many requests, checks and reviews there are.
type amount struct{ requests, checks, reviews float64 }

func (a amount) plus(b amount) amount {
	return amount{a.requests + b.requests, a.checks + b.checks, a.reviews + b.reviews}
}

func (a amount) times(factor float64) amount {
	return amount{a.requests * factor, a.checks * factor, a.reviews * factor}
}
