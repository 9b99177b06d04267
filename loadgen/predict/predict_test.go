package predict

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// newPlan returns a plan of one workload, checked.
func newPlan(t testing.TB, change func(p *Plan, w *Workload)) *Plan {
	t.Helper()
	p, w := Defaults(), DefaultWorkload()
	w.Name = "agents"
	change(&p, &w)
	w.Complete(0)
	p.Workloads = append([]Workload{w}, p.Workloads...)
	if err := p.Check(func(path string) string { return path }); err != nil {
		t.Fatal(err)
	}
	return &p
}

// situation returns what is predicted for one situation.
func situation(t testing.TB, p *Plan, gate scenarios.Gate, rbac RBAC) Outcome {
	t.Helper()
	p.Gate, p.RBAC = gate, rbac
	out, err := Predict(p)
	if err != nil {
		t.Fatal(err)
	}
	return out.Situations[0]
}

// isNear reports whether both figures are the wanted one, within a part of it.
func isNear(f Figure, want, part float64) bool {
	isClose := func(got float64) bool { return math.Abs(got-want) <= part*want }
	return isClose(f.ClosedForm) && isClose(f.Value())
}

// TestSteadyState compares with the table in closed form that follows from the documents: checks per second of N nodes
// and M DaemonSets that ask every p on H servers.
func TestSteadyState(t *testing.T) {
	for _, c := range []struct {
		nodes, sets, servers                   int
		every                                  time.Duration
		gateOff, associated, arbitrary, denied float64
	}{
		{1000, 1, 1, 4 * time.Second, 500, 333.4, 416.7, 750},
		{5000, 1, 3, 30 * time.Second, 333.3, 333.6, 500, 500},
		{5000, 20, 3, 30 * time.Second, 6667, 6673, 10_000, 10_000},
		{15_000, 1, 3, 30 * time.Second, 1000, 1000.3, 1500, 1500},
		{15_000, 5, 3, time.Minute, 2500, 2501.5, 3750, 3750},
	} {
		plan := func(mode oracle.Mode) *Plan {
			return newPlan(t, func(p *Plan, w *Workload) {
				w.Mode, w.Nodes, w.DaemonSets, w.Every, w.NameAlone = mode, c.nodes, c.sets, scenarios.Duration(c.every), true
				p.APIServers, p.Authorizer.Chain = c.servers, RBACAlone
			})
		}
		for _, want := range []struct {
			mode   oracle.Mode
			gate   scenarios.Gate
			rbac   RBAC
			checks float64
		}{
			{oracle.AssociatedNode, scenarios.GateOff, LegacyRBAC, c.gateOff},
			{oracle.AssociatedNode, scenarios.GateOn, LegacyRBAC, c.gateOff},
			{oracle.AssociatedNode, scenarios.GateOn, ConstrainedRBAC, c.associated},
			{oracle.ArbitraryNode, scenarios.GateOn, ConstrainedRBAC, c.arbitrary},
			{oracle.AssociatedNode, scenarios.GateOff, NoRBAC, c.denied / 3},
			{oracle.AssociatedNode, scenarios.GateOn, NoRBAC, c.denied},
		} {
			got := situation(t, plan(want.mode), want.gate, want.rbac)
			if !isNear(got.Steady.Checks, want.checks, 0.001) || got.Steady.Reviews.Value() != 0 {
				t.Errorf(
					"%d nodes, %d DaemonSets, %s, %s: %v checks, want %v",
					c.nodes,
					c.sets,
					want.mode,
					got.Name,
					got.Steady.Checks,
					want.checks,
				)
			}
		}
	}
}

// TestCostOfARequest checks how many reviews a request costs in the steady state behind a webhook whose answers are not
// remembered.
func TestCostOfARequest(t *testing.T) {
	deputy := func(mode oracle.Mode, groups, extras int) func(*Plan, *Workload) {
		return func(_ *Plan, w *Workload) { w.Mode, w.Users, w.Groups, w.Extras = mode, 100, groups, extras }
	}
	agent := func(mode oracle.Mode, nameAlone bool) func(*Plan, *Workload) {
		return func(_ *Plan, w *Workload) { w.Mode, w.Nodes, w.NameAlone = mode, 100, nameAlone }
	}
	for _, c := range []struct {
		name   string
		change func(*Plan, *Workload)
		gate   scenarios.Gate
		rbac   RBAC
		want   float64
		level  string
	}{
		{"a node by its name", agent(oracle.AssociatedNode, true), scenarios.GateOff, LegacyRBAC, 2, "global-default"},
		{"a node in system:nodes", agent(oracle.AssociatedNode, false), scenarios.GateOff, LegacyRBAC, 3, "system"},
		{"a node in system:nodes, gate on", agent(oracle.AssociatedNode, false), scenarios.GateOn, LegacyRBAC, 3, "system"},
		{"the agent's node", agent(oracle.AssociatedNode, false), scenarios.GateOn, ConstrainedRBAC, 2 + 0.1/(100.0/30), "system"},
		{"any node", agent(oracle.ArbitraryNode, false), scenarios.GateOn, ConstrainedRBAC, 3, "system"},
		{"a deputy by legacy impersonation", deputy(oracle.UserInfo, 2, 1), scenarios.GateOff, LegacyRBAC, 5, "global-default"},
		{"a deputy", deputy(oracle.UserInfo, 2, 1), scenarios.GateOn, ConstrainedRBAC, 6, "global-default"},
		{"four groups, one by one after all of them", deputy(oracle.UserInfo, 4, 0), scenarios.GateOn, ConstrainedRBAC, 1 + 1 + 1 + 4 + 1, "global-default"},
		{"legacy for good", deputy(oracle.Legacy, 2, 1), scenarios.GateOn, ConstrainedRBAC, 5, "global-default"},
		{"a service account", deputy(oracle.ServiceAccount, 0, 0), scenarios.GateOn, ConstrainedRBAC, 3, "workload-low"},
		{"refused", deputy(oracle.UserInfo, 2, 1), scenarios.GateOn, NoRBAC, 2, ""},
		{"refused, gate on and permissions of the future", agent(oracle.AssociatedNode, false), scenarios.GateOff, ConstrainedRBAC, 1, ""},
	} {
		got := situation(t, newPlan(t, func(p *Plan, w *Workload) {
			p.Authorizer.Cache = false
			c.change(p, w)
		}), c.gate, c.rbac)
		if reviews := got.Steady.Reviews; !isNear(reviews, c.want*got.Requests, 0.005) ||
			!isNear(got.Steady.Checks, c.want*got.Requests, 0.005) {
			t.Errorf(
				"%s: %v and %v reviews of %v requests a second, want %v each",
				c.name,
				reviews.ClosedForm,
				reviews.Value(),
				got.Requests,
				c.want,
			)
		}
		if level := got.Levels[len(got.Levels)-1].Level; level != c.level {
			t.Errorf("%s: dispatched in %q, want %q", c.name, level, c.level)
		}
	}
}

// TestAnswersThatFit checks that an API server, which remembers 8,192 answers, remembers all answers of agents that ask
// in turn, or none. The answers are those of a legacy request by name (2 questions for each node), or of an agent of
// the mode arbitrary-node (3).
func TestAnswersThatFit(t *testing.T) {
	for _, c := range []struct {
		mode  oracle.Mode
		gate  scenarios.Gate
		rbac  RBAC
		nodes int
		want  float64 // reviews of a request
	}{
		// An answer that is remembered for 30 s and asked for every 10 s is missing once in four times.
		{oracle.AssociatedNode, scenarios.GateOff, LegacyRBAC, 4096, 2.0 / 4},
		{oracle.AssociatedNode, scenarios.GateOff, LegacyRBAC, 4097, 2},
		{oracle.AssociatedNode, scenarios.GateOff, LegacyRBAC, 5000, 2},
	} {
		got := situation(t, newPlan(t, func(_ *Plan, w *Workload) {
			w.Mode, w.Nodes, w.Every, w.NameAlone = c.mode, c.nodes, scenarios.Duration(10*time.Second), true
		}), c.gate, c.rbac)
		if f := got.Steady.Reviews; !isNear(f, c.want*got.Requests, 0.001) {
			t.Errorf(
				"%d nodes, %s: %v and %v reviews of %v requests, want %v each",
				c.nodes,
				got.Name,
				f.ClosedForm,
				f.Value(),
				got.Requests,
				c.want,
			)
		}
	}
	// Three checks of each agent have questions of their own, which are asked every 30 s and allowed for 5 min, so one
	// in eleven is missing.
	for nodes, want := range map[int]float64{2730: 3.0 / 11, 2731: 3} {
		got := situation(t, newPlan(t, func(p *Plan, w *Workload) {
			w.Mode, w.Nodes, p.Authorizer.Answers = oracle.ArbitraryNode, nodes, AnswerAllow
		}), scenarios.GateOn, ConstrainedRBAC)
		if f := got.Steady.Reviews; !isNear(f, want*got.Requests, 0.001) {
			t.Errorf("%d nodes: %v and %v reviews of %v requests, want %v each", nodes, f.ClosedForm, f.Value(), got.Requests, want)
		}
	}
}

// TestWebhookLast checks that only what Node and RBAC do not allow reaches a webhook after them.
func TestWebhookLast(t *testing.T) {
	plan := func(answers WebhookReply) *Plan {
		return newPlan(t, func(p *Plan, w *Workload) {
			w.Nodes, p.Authorizer.Chain, p.Authorizer.Answers, p.Authorizer.Cache = 100, WebhookLast, answers, false
		})
	}
	for _, c := range []struct {
		answers WebhookReply
		rbac    RBAC
		want    float64 // reviews of a request
	}{
		{AnswerNoOpinion, ConstrainedRBAC, 0}, {AnswerNoOpinion, NoRBAC, 3},
		{AnswerAllow, ConstrainedRBAC, 1.03}, {AnswerAllow, LegacyRBAC, 2}, // the Node authorizer allows the request itself
	} {
		got := situation(t, plan(c.answers), scenarios.GateOn, c.rbac)
		if f := got.Steady.Reviews; !isNear(f, c.want*got.Requests, 0.005) {
			t.Errorf("%s, %s: %v and %v of %v requests, want %v each", c.answers, got.Name, f.ClosedForm, f.Value(), got.Requests, c.want)
		}
	}
}

// TestOnlyTheGate checks that turning the gate on with unchanged RBAC costs two checks for each account and start of an
// API server, and those of requests that are open at the time.
func TestOnlyTheGate(t *testing.T) {
	plan := newPlan(t, func(p *Plan, w *Workload) {
		w.Nodes, w.DaemonSets, w.NameAlone, p.APIServers, p.Authorizer.Cache = 300, 5, true, 3, false
	})
	off, on := situation(t, plan, scenarios.GateOff, LegacyRBAC), situation(t, plan, scenarios.GateOn, LegacyRBAC)
	more := on.First.Checks.Value() - off.First.Checks.Value()
	if want := 2.0 * 5 * 3 / 10; math.Abs(more-want) > 1e-9 || off.Steady.Checks.Value() != on.Steady.Checks.Value() {
		t.Errorf("%v more checks a second in the first ten, want %v", more, want)
	}
}

// TestMoreNames checks that more names than the API server remembers modes for cost the checks of the other modes in
// each request.
func TestMoreNames(t *testing.T) {
	for accounts, want := range map[int]float64{10_000: 2, 10_001: 4} {
		got := situation(t, newPlan(t, func(p *Plan, w *Workload) {
			w.Nodes, w.NameAlone, w.ServiceAccounts, p.Authorizer.Chain = accounts, true, profile.PerAgent, RBACAlone
		}), scenarios.GateOn, LegacyRBAC)
		if !isNear(got.Steady.Checks, want*got.Requests, 0.001) {
			t.Errorf("%d accounts: %+v checks of %v requests", accounts, got.Steady.Checks, got.Requests)
		}
	}
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// plans returns how many plans a test makes. It makes fewer in a short run.
func plans(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// randomPlan returns a random plan in which nothing happens at the edge of a time: no period divides a time to live,
// and the webhook's answers all fit, or none does.
func randomPlan(t testing.TB, r *rand.Rand) *Plan {
	return newPlan(t, func(p *Plan, w *Workload) {
		w.Mode, w.ServiceAccounts = pick(r, oracle.Modes()...), pick(r, profile.Shared, profile.PerAgent)
		w.Every = scenarios.Duration(time.Duration(500+r.IntN(60_000)) * 997 * time.Microsecond)
		w.Requests, p.APIServers = pick(r, 1, 1, 2, 3), 1+r.IntN(4)
		switch w.Mode {
		case oracle.AssociatedNode, oracle.ArbitraryNode:
			w.Nodes, w.DaemonSets, w.NameAlone = 1+r.IntN(200), 1+r.IntN(4), r.IntN(2) == 0
		default:
			w.Deputies = p.APIServers * (1 + r.IntN(3))
			w.Users = w.Deputies * (1 + r.IntN(30))
		}
		if w.Mode == oracle.UserInfo {
			w.Groups, w.Extras = r.IntN(6), r.IntN(6)
		}
		if w.DaemonSets > 1 {
			w.Requests = 1
		}
		a := &p.Authorizer
		a.Chain, a.Answers, a.Cache = pick(r, chains()...), pick(r, AnswerAllow, AnswerNoOpinion), r.IntN(3) > 0
		a.Takes = scenarios.Duration(pick(r, 100*time.Microsecond, time.Millisecond))
		a.Denied = scenarios.Duration(pick(r, 10*time.Second, 30*time.Second, 60*time.Second))
		a.Allowed = scenarios.Duration(pick(r, 30*time.Second, 2*time.Minute, 5*time.Minute))
		if a.Size = pick(r, 1, 1_000_000); a.Size == 1 {
			w.Requests = 1
		}
	})
}

// TestClosedFormIsSimulated checks that closed form and simulation agree within 0.1 % if nothing is random.
func TestClosedFormIsSimulated(t *testing.T) {
	r := rand.New(rand.NewPCG(5284, 0))
	for range plans(80) {
		p := randomPlan(t, r)
		out, err := Predict(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range out.Situations {
			for name, f := range map[string]Figure{"checks": o.Steady.Checks, "reviews": o.Steady.Reviews} {
				if !isNear(f, f.ClosedForm, 0.001) {
					t.Errorf("%s: %v %s in closed form, %v simulated: %+v", o.Name, f.ClosedForm, name, f.Value(), *p)
				}
			}
		}
	}
}

// TestEvents checks that both ways predict the same cost of events within a tenth, for a cluster with many agents.
func TestEvents(t *testing.T) {
	for _, servers := range []int{1, 3} {
		for _, every := range []time.Duration{4 * time.Second, 30 * time.Second} {
			p := newPlan(t, func(p *Plan, w *Workload) {
				w.Nodes, w.Every, p.APIServers, p.Authorizer.Cache = 900, scenarios.Duration(every), servers, false
			})
			out, err := Predict(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range out.Situations {
				for name, f := range map[string]Figures{"first": o.First, "restart": o.Restart, "rollout": o.Rollout, "expiry": o.Expiry} {
					part := 0.1
					if name == "rollout" {
						part = 0.3 // it depends on when those who ask every 4 s have last asked
					}
					if !isNear(f.Checks, f.Checks.ClosedForm, part) || !isNear(f.Reviews, f.Reviews.ClosedForm, part) {
						t.Errorf("%d servers, every %s, %s, %s: %v and %v checks, %v and %v reviews", servers, every, o.Name, name,
							f.Checks.ClosedForm, f.Checks.Value(), f.Reviews.ClosedForm, f.Reviews.Value())
					}
				}
				if o.Peak.Checks.Value() < o.Restart.Checks.Value() || o.PeakAt == "steady state" {
					t.Errorf("%s: the peak is %v at %s", o.Name, o.Peak.Checks.Value(), o.PeakAt)
				}
			}
		}
	}
}

// TestNotSimulated checks that a plan that would take long to simulate has only the closed form, and says so.
func TestNotSimulated(t *testing.T) {
	p := newPlan(t, func(_ *Plan, w *Workload) { w.Nodes, w.Every = 100_000, scenarios.Duration(10*time.Millisecond) })
	out, err := Predict(p)
	if err != nil || out.NotSimulated == "" || out.Situations[0].Steady.Checks.Simulation != nil ||
		out.Situations[0].Steady.Checks.Value() == 0 {
		t.Errorf("%v, %q", err, out.NotSimulated)
	}
}
