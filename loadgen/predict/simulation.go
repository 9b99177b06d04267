package predict

import (
	"slices"
	"time"
)

// simulation is a cluster in time, with agents that ask and API servers that remember.
type simulation struct {
	plan    *Plan
	takes   time.Duration
	groups  []*group
	servers []*server
	tally   *tally
	// renews records when checks and reviews were made, for their figures in the long run.
	renews bool
	next   []arrival
	extra  []extraArrival
}

// arrival is the next request of a group in its own time: its place in the order, and its period.
type arrival struct {
	at    int
	begin time.Duration
}

// extraArrival is a request that an event causes.
type extraArrival struct {
	at    time.Duration
	group *group
	index int32
}

func newSimulation(p *Plan, groups []*group, n numbers) *simulation {
	s := &simulation{plan: p, takes: time.Duration(p.Authorizer.Takes), groups: groups, next: make([]arrival, len(groups))}
	for range p.APIServers {
		s.servers = append(s.servers, newServer(p, n))
	}
	return s
}

// clone returns a copy of the simulation, to continue in another way.
func (s *simulation) clone() *simulation {
	out := *s
	out.groups, out.servers, out.next = nil, nil, slices.Clone(s.next)
	for _, g := range s.groups {
		copied := *g
		copied.units = slices.Clone(g.units)
		out.groups = append(out.groups, &copied)
	}
	for _, server := range s.servers {
		out.servers = append(out.servers, server.clone())
	}
	return &out
}

// run lets everybody ask until a time.
func (s *simulation) run(until time.Duration) {
	for {
		g, at := s.earliest()
		if len(s.extra) > 0 && s.extra[0].at <= at && s.extra[0].at < until {
			e := s.extra[0]
			s.extra = s.extra[1:]
			s.serve(e.group, e.index, e.at)
			continue
		}
		if g < 0 || at >= until {
			return
		}
		group, next := s.groups[g], &s.next[g]
		s.serve(group, group.order[next.at], at)
		if next.at++; next.at == len(group.order) {
			next.at, next.begin = 0, next.begin+group.every
		}
	}
}

// earliest returns the group that asks next, and when.
func (s *simulation) earliest() (group int, at time.Duration) {
	group, at = none, forever
	for i, g := range s.groups {
		if t := s.next[i].begin + g.units[g.order[s.next[i].at]].phase; t < at {
			group, at = i, t
		}
	}
	return group, at
}

// renewal is a time at which something was asked again. Questions that follow one another at once, from requests that
// are open at the same time, are one renewal.
type renewal struct {
	first, last time.Duration
	// before is how many were asked before the last renewal, and count is how many were asked in all.
	before, count int32
}

func (r *renewal) add(at, overlap time.Duration) {
	switch {
	case r.count == 0:
		r.first, r.last = at, at
	case at-r.last > overlap:
		r.last, r.before = at, r.count
	}
	r.count++
}

// overlapTime returns how long requests may be under way at once.
func (s *simulation) overlapTime() time.Duration { return 20 * s.takes }

func (x *exchange) renewCheck(number int32) {
	if x.renews {
		x.server.checks[number].add(x.arrival, x.overlapTime())
	}
}

func (x *exchange) renewReview(question int32) {
	if x.renews {
		x.server.reviews[question].add(x.arrival, x.overlapTime())
	}
}

// beginRenewals begins to record when checks and reviews are made.
func (s *simulation) beginRenewals() {
	s.renews = true
	for _, server := range s.servers {
		server.checks = make([]renewal, len(server.lives))
		server.reviews = make([]renewal, len(server.answers.entries))
	}
}

// endRenewals discards the record.
func (s *simulation) endRenewals() {
	s.renews = false
	for _, server := range s.servers {
		server.checks, server.reviews = nil, nil
	}
}

// sumRates returns how many there are per second of the things with the numbers from first on. Each is counted between
// its first and its last renewal. A thing that was not asked twice in the watched time is counted over that time.
func sumRates(list []renewal, first, count int32, watched time.Duration) (rate float64) {
	for _, r := range list[first : first+count] {
		if r.before > 0 {
			rate += float64(r.before) / (r.last - r.first).Seconds()
		} else {
			rate += float64(r.count) / watched.Seconds()
		}
	}
	return rate
}
