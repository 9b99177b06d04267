package explore

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
)

// A server remembers what it was asked since it started, and nothing of what another one was asked. So the requests of a
// walk that goes to two API servers are parts, one of each server from one start to the next, and every part is a scenario
// with all changes of permissions and its own requests: the model predicts it by itself, and it is judged, run alone and
// made small like any other. They are sent in the order of the walk.

// place is where a part of a walk is sent: a server, from a start to the next. Every second start the gate is the other.
type place struct{ server, start int }

// path returns the place as a part of IDs and file names, empty for the only server that most cases have.
func (at place) path() string {
	if at == (place{}) {
		return ""
	}
	return fmt.Sprintf("server-%d-start-%d", at.server+1, at.start+1)
}

func (at place) String() string {
	if at == (place{}) {
		return ""
	}
	return fmt.Sprintf(", the requests to server %d since start %d", at.server+1, at.start+1)
}

// walk is a case as it is sent, with its parts.
type walk struct {
	turns []turn
	next  int
	parts []*preparedCase
}

// turn is a step of a part. Where there is no part something comes first that is about the whole batch. fresh means that
// the request has a new connection.
type turn struct {
	part  *preparedCase
	step  int
	fresh bool
}

func (w *walk) ended() bool { return w.next == len(w.turns) }

// flips is how often the gate of the second server is switched.
const flips = 2

// placesOf returns where the requests of a batch are sent.
func placesOf(special string) []place {
	switch special {
	case besideSuffix, balancedSuffix:
		return []place{{}, {server: 1}}
	case flippedSuffix:
		return []place{{}, {server: 1}, {server: 1, start: 1}, {server: 1, start: 2}}
	}
	return []place{{}}
}

// walk puts the steps of a case in the order of sending.
func (s *sequence) walk(c cases.Case, b *batch) *walk {
	w := &walker{
		walk:  &walk{},
		batch: b,
		all:   countRequests(c.Scenario),
		rng:   rand.New(rand.NewPCG(uint64(s.cell.plan.o.Seed), uint64(c.Number))),
	}
	for _, at := range placesOf(b.special) {
		part := *c.Scenario
		part.Steps = nil
		if at != (place{}) {
			part.ID += "/" + at.path()
		}
		w.parts = append(w.parts, &preparedCase{at: at, askedTarget: flip(s.cell.options, at).AskedTarget(), scenario: &part})
	}
	for i, st := range c.Scenario.Steps {
		w.add(st, i == len(c.Scenario.Steps)-1)
	}
	w.parts = slices.DeleteFunc(w.parts, func(p *preparedCase) bool { return countRequests(p.scenario) == 0 })
	return w.walk
}

// walker makes a walk.
type walker struct {
	*walk
	batch *batch
	rng   *rand.Rand
	// added is how many of all requests have been added, and phase how often something came first that is about the whole batch.
	added, all, phase int
}

// add adds a step.
func (w *walker) add(st scenarios.Step, isLast bool) {
	w.addPause(st, isLast)
	if st.Request != nil {
		p, isFresh := w.choosePart(st.Request)
		p.scenario.Steps = append(p.scenario.Steps, st)
		w.turns = append(w.turns, turn{p, len(p.scenario.Steps) - 1, isFresh})
		return
	}
	for _, p := range w.parts {
		p.scenario.Steps = append(p.scenario.Steps, st)
	}
	if len(w.parts) == 1 { // It may have a role, which several servers do not have.
		p := w.parts[0]
		w.turns = append(w.turns, turn{p, len(p.scenario.Steps) - 1, false})
	}
}

// addPause adds a turn without a part where something comes first that is about the whole batch: a restart of the second
// server, a wait, or a reload.
func (w *walker) addPause(st scenarios.Step, isLast bool) {
	special := w.batch.special
	isFlip := special == flippedSuffix && st.Request != nil && w.added*(flips+1)/w.all > w.phase
	switch {
	case isFlip:
		w.phase++
		w.turns = append(w.turns, turn{})
		first := w.parts[0].scenario
		first.Steps = append(first.Steps, scenarios.Step{Wait: scenarios.Duration(expiry)})
	case st.Wait > 0, special == reloaded && isLast:
		w.turns = append(w.turns, turn{})
	}
}

// choosePart returns the part that a request is of, and whether the request has a new connection.
func (w *walker) choosePart(r *scenarios.Request) (p *preparedCase, isFresh bool) {
	w.added++
	if w.batch.special == balancedSuffix {
		isFresh = w.batch.takeTurn(w.rng, r)
		return w.parts[(w.batch.turns-1)%len(w.parts)], isFresh
	}
	if len(w.parts) > 1 && w.rng.IntN(2) == 1 {
		return w.parts[1+w.phase], false
	}
	return w.parts[0], false
}

// takeTurn reports whether a request has a connection of its own, which the balancer gives to the next server: the first
// one has, the one behind a watch, for a connection ends with it, and of the others every third.
func (b *batch) takeTurn(rng *rand.Rand, r *scenarios.Request) (isFresh bool) {
	isFresh = b.turns == 0 || b.lastWasWatch || rng.IntN(3) == 0
	if isFresh {
		b.turns++
	}
	b.lastWasWatch = r.Verb == "watch"
	return isFresh
}

// nameAt returns how the server of a place is called and started: one that stands beside the cell's has a name of its own, so
// that it can be given another program.
func nameAt(o server.Options, at place) server.Options {
	if at.server > 0 {
		o.Cell.Name += "-beside"
	}
	return flip(o, at)
}

// flip returns the cell of a place. Where the gate is switched it is the other one: off if it was on, and the other way
// round, if the version has it.
func flip(o server.Options, at place) server.Options {
	if at.start%2 == 0 {
		return o
	}
	o.Cell.Name += "-flipped"
	switch version := o.Effective(); {
	case server.EffectiveGate(version, o.Cell.Gate) == scenarios.GateOn:
		o.Cell.Gate = scenarios.GateOff
	case server.HasGate(version):
		o.Cell.Gate = scenarios.GateOn
	}
	return o
}
