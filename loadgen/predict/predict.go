package predict

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
)

// Predict returns what a plan leads to. The plan must have been checked.
func Predict(p *Plan) (*Prediction, error) {
	out := &Prediction{Plan: *p, Assumes: p.listAssumptions()}
	if n := p.countRequests(); n > maxSimulated {
		out.NotSimulated = fmt.Sprintf(
			"a simulation would take %.0f million requests, and %d million are the most",
			n/1e6,
			int(maxSimulated/1e6),
		)
	}
	known := &outcomes{plan: p, simulates: out.NotSimulated == ""}
	for _, situation := range p.Situations() {
		o, err := known.predict(situation)
		if err != nil {
			return nil, err
		}
		out.Situations = append(out.Situations, o)
	}
	var err error
	out.Answers, err = out.answerQuestions()
	return out, err
}

// outcomes are the outcomes of a plan so far. Situations in which everybody asks the same have the same one.
type outcomes struct {
	plan      *Plan
	simulates bool
	scripts   [][]script
	list      []Outcome
}

// predict returns the outcome of a situation.
func (k *outcomes) predict(situation Situation) (Outcome, error) {
	scripts := make([]script, len(k.plan.Workloads))
	for i, w := range k.plan.Workloads {
		s, err := newScript(w, situation, k.plan.Authorizer.Chain)
		if err != nil {
			return Outcome{}, err
		}
		scripts[i] = s
	}
	same := slices.IndexFunc(k.scripts, func(s []script) bool { return reflect.DeepEqual(s, scripts) })
	var o Outcome
	if same >= 0 {
		o = k.list[same]
	} else {
		o = k.newOutcome(scripts)
	}
	o.Situation, o.Name = situation, situation.describe()
	k.scripts, k.list = append(k.scripts, scripts), append(k.list, o)
	return o, nil
}

func (k *outcomes) newOutcome(scripts []script) Outcome {
	o := Outcome{Modes: map[string]oracle.Mode{}}
	for i, w := range k.plan.Workloads {
		o.Modes[w.Name] = scripts[i].mode
	}
	var simulation *simulated
	if k.simulates {
		simulation = new(simulate(k.plan, scripts))
	}
	o.fill(k.plan, scripts, newClosedForm(k.plan, scripts), simulation)
	return o
}

// describe returns the situation in words.
func (s Situation) describe() string {
	permissions := map[RBAC]string{
		LegacyRBAC: "RBAC as it is", ConstrainedRBAC: "RBAC as it will be", NoRBAC: "no permission",
	}[s.RBAC]
	return "gate " + string(s.Gate) + ", " + permissions
}

// fill puts the figures of closed form and simulation together. simulation is nil if nothing was simulated.
func (o *Outcome) fill(p *Plan, scripts []script, c *closedForm, simulation *simulated) {
	closed := c.steady()
	base, event := sumOf(closed).total(), float64(p.eventSeconds())
	o.Requests = base.requests
	var rates []rates
	var first, restart, rollout, expiry, steady *amount
	if simulation != nil {
		rates, o.Seconds = simulation.steady, simulation.seconds
		total := sumOf(rates).total()
		steady, first, restart, rollout, expiry = &total, &simulation.first, &simulation.restart, &simulation.rollout, &simulation.expiry
	}
	memory := time.Duration(p.Memory).Seconds()
	o.Steady = newFigures(base, steady)
	o.First = newFigures(c.first(memory).times(1/memory), first)
	o.Restart = newFigures(base.plus(c.restart(time.Duration(p.Within).Seconds()).times(1/event)), restart)
	o.Rollout = newFigures(base.plus(c.rollout(time.Duration(p.Within).Seconds()).times(1/event)), rollout)
	o.Expiry = newFigures(c.expiry(), expiry)
	o.Questions = c.mostQuestions()
	o.fillKinds(closed, rates)
	o.fillLevels(scripts, closed, rates)
	o.findPeak()
}

func (o *Outcome) fillKinds(closed, simulated []rates) {
	sum, found := sumOf(closed), sumOf(simulated)
	for kind := range kindCount {
		f := newFigures(
			amount{0, sum.checks[kind], sum.reviews[kind]},
			optionalAmount(simulated, amount{0, found.checks[kind], found.reviews[kind]}),
		)
		if f.Checks.ClosedForm > 0 || f.Checks.Value() > 0 {
			o.Kinds = append(o.Kinds, KindFigures{kind, f})
		}
	}
}

// optionalAmount returns a simulated amount, or nil if nothing was simulated.
func optionalAmount(simulated []rates, a amount) *amount {
	if simulated == nil {
		return nil
	}
	return &a
}

// fillLevels adds the figures of each priority level, preceded by those of what comes before priority and fairness.
func (o *Outcome) fillLevels(scripts []script, closed, simulated []rates) {
	levels := []string{""}
	levels = seq.AppendMissing(levels, seq.Map(scripts, func(s script) string { return s.level })...)
	slices.Sort(levels)
	for _, level := range levels {
		isIn := func(i int) bool { return scripts[i].level == level }
		if level == "" {
			isIn = func(int) bool { return true }
		}
		sum := sumLevel(closed, level, isIn)
		f := newFigures(sum, optionalAmount(simulated, sumLevel(simulated, level, isIn)))
		o.Levels = append(o.Levels, LevelFigures{level, sum.requests, f})
	}
}

// sumLevel returns the sum for a priority level or, if that is empty, for the impersonation of all requests.
func sumLevel(list []rates, level string, isIn func(workload int) bool) (a amount) {
	for i, r := range list {
		if !isIn(i) {
			continue
		}
		for kind := range kindCount {
			if (kind == RequestCheck) == (level != "") {
				a = a.plus(amount{0, r.checks[kind], r.reviews[kind]})
			}
		}
		a.requests += r.requests
	}
	return a
}

// findPeak finds the highest figures, and when the most checks are made.
func (o *Outcome) findPeak() {
	o.Peak, o.PeakAt = o.Steady, "steady state"
	for _, event := range []struct {
		name string
		Figures
	}{
		{"first ten seconds", o.First}, {"restart of an API server", o.Restart}, {"rollout of a DaemonSet", o.Rollout},
		{"expiry after a restart", o.Expiry},
	} {
		if event.Checks.Value() > o.Peak.Checks.Value() {
			o.PeakAt = event.name
		}
		o.Peak = o.Peak.most(event.Figures)
	}
}

// listAssumptions returns the assumptions of the figures.
func (p *Plan) listAssumptions() []string {
	list := []string{
		"kube-apiserver " + newest() + ": a success of a constrained mode is remembered for " + time.Duration(p.Memory).String() +
			", legacy impersonation and denials never, and of " + fmt.Sprint(p.Modes) + " names the mode that succeeded last",
		"everybody asks in even time, and all have begun within one period; on each API server the agents of a DaemonSet are spread evenly over it, and so are those of a node",
		"nodes and deputies are spread over the API servers, and stay; the pods of a node are connected to the same one",
		"everybody who asks the same server asks it anew if what another one asks is not answered yet: a check takes " + time.Duration(p.Authorizer.Takes).
			String(),
		"after a restart, and in a rollout, all come within " + time.Duration(p.Within).
			String() +
			"; if there are several API servers, who was connected to the one that restarts comes to the others",
		"where the webhook's answers are pushed out before they are asked again, the closed form is as if everybody asked in even time; where agents ask together after something was forgotten, the simulation counts",
		"priority levels are those of the FlowSchemas that every API server makes; who is throttled asks again, and each time its impersonation is checked again",
	}
	isOfUsers := func(w Workload) bool { return !w.isOfNodes() }
	if slices.ContainsFunc(p.Workloads, Workload.isOfNodes) {
		list = append(list, "all agents of a node ask the same about their node")
	}
	if slices.ContainsFunc(p.Workloads, isOfUsers) {
		list = append(list,
			"a user stays with one pod of a deputy; all users ask the same, and no two of them have a group or a value of extra in common; groups and values are granted one by one",
		)
	}
	return append(list, p.Authorizer.describe())
}

// describe returns in words what the chain decides.
func (a Authorizer) describe() string {
	memory := "it remembers no answer of the webhook"
	if a.Cache {
		memory = fmt.Sprintf(
			"it remembers that the webhook allowed for %s, and every other answer for %s, and %d answers in all",
			time.Duration(a.Allowed),
			time.Duration(a.Denied),
			a.Size,
		)
	}
	has := "RBAC has the permissions, and the webhook has no opinion"
	if a.Answers == AnswerAllow {
		has = "the webhook has the permissions, and RBAC none"
	}
	switch a.Chain {
	case WebhookFirst:
		return "every check reaches the webhook, which is before Node and RBAC; " + has + "; " + memory
	case WebhookLast:
		return "the webhook is asked what Node and RBAC do not allow; " + has + "; " + memory
	case NoAuthorizer:
		return "everything is allowed (AlwaysAllow), so that the first mode that applies succeeds"
	}
	return "Node and RBAC decide, and there is no webhook"
}
