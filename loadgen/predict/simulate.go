package predict

import (
	"math"
	"slices"
	"time"
)

// maxSimulated is how many requests a simulation may have, which take some seconds of processor time.
const maxSimulated = 15_000_000

// simulated is what a simulation found for one situation.
type simulated struct {
	steady                          []rates
	first, restart, rollout, expiry amount
	// seconds are the seconds after the restart.
	seconds []Second
}

// longest returns how long anything is remembered, and the longest time until somebody repeats a request.
func (p *Plan) longest() (life, round time.Duration) {
	life = time.Duration(p.Memory)
	hasWebhook := p.Authorizer.Chain == WebhookFirst || p.Authorizer.Chain == WebhookLast
	if hasWebhook && p.Authorizer.Cache {
		life = max(life, time.Duration(p.Authorizer.Denied))
		if p.Authorizer.Answers == AnswerAllow {
			life = max(life, time.Duration(p.Authorizer.Allowed))
		}
	}
	for _, w := range p.Workloads {
		round = max(round, time.Duration(w.Every)*time.Duration(w.Requests))
	}
	return life, round
}

// These are the smallest and the largest number of renewals that are watched. More give better figures if they are not
// at even distances.
const (
	fewestRenewals = 2
	mostRenewals   = 40
	// lightRequests is how many requests a simulation may have and still take hardly any time.
	lightRequests = 100_000
)

// spans returns how long a simulation warms up, and how long it is watched after that.
func (p *Plan) spans() (warm, watched time.Duration) {
	life, round := p.longest()
	renewal := life + 2*round
	renewals := int64(lightRequests / (p.rate() * renewal.Seconds()))
	return roundUp(2*life + round), roundUp(time.Duration(max(fewestRenewals, min(mostRenewals, renewals))) * renewal)
}

// rate returns how many requests a second there are.
func (p *Plan) rate() (sum float64) {
	for _, w := range p.Workloads {
		sum += w.Rate()
	}
	return sum
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// countRequests returns how many requests the simulation of one situation has.
func (p *Plan) countRequests() float64 {
	warm, watched := p.spans()
	life, round := p.longest()
	return p.rate() * (warm + watched + life + 2*round).Seconds()
}

// simulate simulates one situation.
func simulate(p *Plan, scripts []script) simulated {
	var n numbers
	var groups []*group
	for i, w := range p.Workloads {
		groups = append(groups, newGroup(i, w, scripts[i], p.APIServers, &n))
	}
	s := newSimulation(p, groups, n)
	out := simulated{first: s.runFirst()}
	out.steady = s.runSteady()
	s.endRenewals()
	out.restart, out.expiry, out.seconds = s.clone().runRestart()
	out.rollout = s.runRollout()
	return out
}

// watch begins a new tally.
func (s *simulation) watch(from time.Duration) *tally {
	s.tally = newTally(from, len(s.groups))
	return s.tally
}

// perSecond returns the mean of a sum over some seconds.
func perSecond(sum Second, seconds int) amount {
	return amount{float64(sum.Requests), float64(sum.Checks), float64(sum.Reviews)}.times(1 / float64(seconds))
}

// runFirst runs the time for which a success is remembered, from the start of all servers on.
func (s *simulation) runFirst() amount {
	length := roundUp(time.Duration(s.plan.Memory))
	t := s.watch(0)
	s.run(length)
	seconds := int(length / time.Second)
	return perSecond(t.sumBetween(0, seconds), seconds)
}

// runSteady runs until everything that is remembered was forgotten twice, and then watches how often it is asked again.
func (s *simulation) runSteady() (list []rates) {
	warm, watched := s.spans()
	s.run(warm)
	t := s.watch(warm)
	s.beginRenewals()
	s.run(warm + watched)
	for i, g := range s.groups {
		list = append(list, s.steadyOf(g, &t.groups[i], watched))
	}
	return list
}

func (s *simulation) spans() (warm, watched time.Duration) { return s.plan.spans() }

// steadyOf returns what a workload leads to in the long run.
func (s *simulation) steadyOf(g *group, t *groupTally, watched time.Duration) rates {
	r := rates{requests: g.Rate()}
	for _, kind := range []CheckKind{TryCheck, LegacyCheck, RequestCheck} {
		r.checks[kind] = float64(t.checks[kind]) / float64(t.requests) * g.Rate()
	}
	for _, server := range s.servers {
		r.checks[ActionCheck] += float64(len(g.action)) * sumRates(server.checks, g.outer, g.countOf(ofUnitRequest), watched)
		if g.isConstrained() {
			r.checks[IdentityCheck] += float64(len(g.identity)) * sumRates(server.checks, g.inner, g.countOf(g.innerScope()), watched)
		}
		if s.plan.Authorizer.Cache {
			for _, st := range g.asks {
				r.reviews[st.kind] += sumRates(server.reviews, st.first, g.countOf(st.scope), watched)
			}
		}
	}
	if s.plan.Authorizer.Cache {
		return r
	}
	for kind := range kindCount { // the webhook is asked as often as there are checks
		if t.checks[kind] > 0 {
			r.reviews[kind] = r.checks[kind] * float64(t.reviews[kind]) / float64(t.checks[kind])
		}
	}
	return r
}

// eventSeconds returns how many seconds an event takes.
func (p *Plan) eventSeconds() int { return max(1, int(math.Ceil(time.Duration(p.Within).Seconds()))) }

// runRestart restarts the first server. Everybody who was connected to it asks at once, that server or, if there are
// any, the others, and goes on in their own time.
func (s *simulation) runRestart() (restart, expiry amount, seconds []Second) {
	begin := s.now()
	s.servers[0].restart()
	s.ask(begin, func(u *unit) bool {
		if u.server != 0 {
			return false
		}
		if others := int32(len(s.servers) - 1); others > 0 {
			u.server = 1 + (u.place/int32(len(s.servers)))%others
		}
		return true
	})
	life, round := s.plan.longest()
	t, event := s.watch(begin), s.plan.eventSeconds()
	end := roundUp(begin + time.Duration(s.plan.Within) + life + 2*round)
	s.run(end)
	expiry = perSecond(t.peakBetween(event, int((end-begin)/time.Second)), 1)
	return perSecond(t.sumBetween(0, event), event), expiry, t.seconds
}

// runRollout gives the first DaemonSet of each workload, or all deputies, new tokens, with which all of them ask at
// once.
func (s *simulation) runRollout() amount {
	begin := s.now()
	s.ask(begin, func(u *unit) bool {
		if u.daemonSet == 0 {
			u.token = 1
		}
		return u.daemonSet == 0
	})
	t, event := s.watch(begin), s.plan.eventSeconds()
	s.run(begin + time.Duration(event)*time.Second)
	return perSecond(t.sumBetween(0, event), event)
}

// now returns the end of the simulated time.
func (s *simulation) now() time.Duration {
	warm, watched := s.spans()
	return warm + watched
}

// ask makes the units that an event is about ask within its time, at even distances, and for all workloads at the same
// time.
func (s *simulation) ask(begin time.Duration, isMeant func(*unit) bool) {
	for _, g := range s.groups {
		var meant []int32
		for _, index := range g.order {
			if isMeant(&g.units[index]) {
				meant = append(meant, index)
			}
		}
		for i, index := range meant {
			at := begin + time.Duration(float64(s.plan.Within)*float64(i)/float64(len(meant)))
			s.extra = append(s.extra, extraArrival{at, g, index})
		}
	}
	slices.SortStableFunc(s.extra, func(a, b extraArrival) int { return int(min(1, max(-1, a.at-b.at))) })
}
