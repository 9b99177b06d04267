package predict

import (
	"math"
	"slices"
	"time"

	"github.com/authzconf/authzconf/oracle"
)

// server is what one API server remembers.
type server struct {
	modes   *answerCache // by service account, the mode that succeeded last
	lives   []life       // the successes of constrained modes
	answers *answerCache // of the webhook
	// checks and reviews are the times at which they were made, by the number of what is remembered and of the
	// question.
	checks, reviews []renewal
}

// life is the time in which something is remembered.
type life struct{ from, until time.Duration }

func newServer(p *Plan, n numbers) *server {
	return &server{
		modes: newAnswerCache(p.Modes, int(n.accounts)), lives: make([]life, n.remembered),
		answers: newAnswerCache(p.Authorizer.Size, int(n.questions)),
	}
}

// restart forgets everything.
func (s *server) restart() {
	s.modes.forget()
	s.answers.forget()
	clear(s.lives)
}

func (s *server) clone() *server {
	return &server{modes: s.modes.clone(), lives: slices.Clone(s.lives), answers: s.answers.clone()}
}

func (s *server) recalls(number int32, at time.Duration) bool {
	l := s.lives[number]
	return at >= l.from && at < l.until
}

func (s *server) remember(number int32, from, until time.Duration) {
	l := &s.lives[number]
	if from < l.from || l.until <= from {
		l.from = from
	}
	l.until = max(l.until, until)
}

// forever is later than every time.
const forever = time.Duration(math.MaxInt64)

// exchange is one request on its way through an API server.
type exchange struct {
	*simulation
	server  *server
	group   *group
	unit    *unit
	index   int32
	request int32
	arrival time.Duration
	// clock is the time at which the checks so far are answered.
	clock time.Duration
}

// serve serves a request of a unit that arrives at a time.
func (s *simulation) serve(g *group, index int32, arrival time.Duration) {
	u := &g.units[index]
	x := exchange{simulation: s, server: s.servers[u.server], group: g, unit: u, index: index, arrival: arrival, clock: arrival}
	x.request = u.turn
	if u.turn++; u.turn == int32(g.Requests) {
		u.turn = 0
	}
	s.tally.addRequest(g.number, arrival)
	x.impersonate()
}

// impersonate does what the filter does: it tries the mode that succeeded last first, and then the others
// (getImpersonatedUser).
func (x *exchange) impersonate() {
	g := x.group
	account := g.accounts + x.unit.account
	isKnown := x.server.modes.recall(account, x.clock)
	if !isKnown {
		x.ask(TryCheck)
	}
	if g.mode == "" {
		return
	}
	if g.isConstrained() {
		x.constrain()
	} else {
		x.ask(LegacyCheck)
	}
	if !isKnown {
		x.server.modes.remember(account, x.clock, forever)
	}
	x.ask(RequestCheck)
}

// constrain does what a constrained mode does (constrainedImpersonationModeState.check, impersonationModeState.check).
func (x *exchange) constrain() {
	g, byToken := x.group, x.group.mode != oracle.AssociatedNode
	outer := g.outer + g.numberIn(ofUnitRequest, x.index, x.unit, x.request, byToken)
	if x.server.recalls(outer, x.clock) {
		return
	}
	x.renewCheck(outer)
	x.ask(ActionCheck)
	inner := g.inner + g.numberIn(g.innerScope(), x.index, x.unit, x.request, byToken)
	life := time.Duration(x.plan.Memory)
	if !x.server.recalls(inner, x.clock) {
		x.renewCheck(inner)
		x.ask(IdentityCheck)
		x.server.remember(inner, x.clock, x.clock+life)
	}
	x.server.remember(outer, x.clock, x.clock+life)
}

// ask makes the checks of a kind, one after the other.
func (x *exchange) ask(kind CheckKind) {
	for _, st := range x.group.asks {
		if st.kind != kind {
			continue
		}
		x.tally.addCheck(x.group.number, kind, x.arrival)
		x.review(st)
		x.clock += x.takes
	}
}

// review asks the webhook, if the check reaches it and the answer is not remembered.
func (x *exchange) review(st numbered) {
	reaches, life := x.plan.Authorizer.review(st.step)
	if !reaches {
		return
	}
	question := st.first + x.group.numberIn(st.scope, x.index, x.unit, x.request, st.byToken)
	if life > 0 {
		if x.server.answers.recall(question, x.clock) {
			return
		}
		answerTime := x.clock + x.takes
		x.server.answers.remember(question, answerTime, answerTime+life)
	}
	x.renewReview(question)
	x.tally.addReview(x.group.number, st.kind, x.arrival)
}

// review reports whether a check reaches the webhook, and how long its answer is remembered.
func (a Authorizer) review(st step) (reaches bool, life time.Duration) {
	life = time.Duration(a.Denied)
	if st.allowed && a.Answers == AnswerAllow {
		life = time.Duration(a.Allowed)
	}
	if !a.Cache {
		life = 0
	}
	switch a.Chain {
	case WebhookFirst:
		return true, life
	case WebhookLast:
		isDecidedBefore := st.isOfNode || a.Answers == AnswerNoOpinion
		return !st.allowed || !isDecidedBefore, life
	}
	return false, life
}
