package population

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// nodes is a profile of agents that list the pods of their node.
func nodes(n int, accounts profile.ServiceAccounts, variants ...string) *profile.Profile {
	p := profile.Defaults()
	p.Nodes, p.ServiceAccounts, p.Mix.List, p.Block = n, accounts, 1, 10*time.Second
	p.Arrivals = profile.Arrivals{Kind: pacer.Constant, Every: 10 * time.Second}
	for _, name := range variants {
		side := profile.Side{Variant: name, Server: profile.GateOnServer}
		p.Comparisons = append(p.Comparisons, profile.Comparison{Name: name, A: side, B: side})
	}
	return &p
}

// rounds returns requests of all agents, one after the other with a pause, and all of them again after every.
func rounds(p *profile.Profile, n int, pause, every time.Duration) (sends []pacer.Send) {
	for round := range n {
		for a := range p.Agents() {
			sends = append(sends, pacer.Send{At: time.Duration(round)*every + time.Duration(a)*pause, Agent: int32(a)})
		}
	}
	return sends
}

// predict is the prediction for a schedule on a server that has just started.
func predict(t *testing.T, h *History, variant string, start time.Time, sends []pacer.Send, slowest time.Duration) *run.Prediction {
	t.Helper()
	v, err := profile.VariantNamed(variant)
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Predict(v, start, Planned(sends, slowest))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func history(t *testing.T, p *profile.Profile) *History {
	t.Helper()
	h, err := NewHistory(p, profile.GateOnServer, "1.37")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// predictedRange returns how many reviews are predicted at least and at most: those of a mode or verb, or all.
func predictedRange(p *run.Prediction, mode, verb string) (low, high int64) {
	for _, c := range p.Checks {
		if (mode == "" || c.Mode == mode) &&
			(verb == "" || c.Verb == verb) {
			low, high = low+c.Low, high+c.High
		}
	}
	return low, high
}

const (
	identity = "impersonate:associated-node"
	second   = time.Second
	ms       = time.Millisecond
)

// TestAssociatedNode compares with what was measured by hand on 1.37.1 for 20 agents on 20 nodes, and with what follows
// for agents that go on asking.
func TestAssociatedNode(t *testing.T) {
	for _, c := range []struct {
		name       string
		p          *profile.Profile
		rounds     int
		pause      time.Duration
		every      time.Duration
		identities int64 // identity checks
		actions    int64 // action checks
	}{
		{"one account, one list each", nodes(20, profile.Shared, "associated-node"), 1, 50 * ms, 0, 1, 20},
		{"own accounts, one list each", nodes(20, profile.PerAgent, "associated-node"), 1, 50 * ms, 0, 20, 20},
		{"every 12 s, one account: an identity check every 10 s or more", nodes(20, profile.Shared, "associated-node"), 5, 600 * ms, 12 * second, 6, 100},
		{"every 12 s on 200 nodes: as many", nodes(200, profile.Shared, "associated-node"), 5, 60 * ms, 12 * second, 6, 1000},
		{"every 2 s: one list of five costs an action check", nodes(20, profile.Shared, "associated-node"), 10, 5 * ms, 2 * second, 2, 40},
		{"every 2 s, own accounts", nodes(20, profile.PerAgent, "associated-node"), 10, 5 * ms, 2 * second, 40, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := predict(t, history(t, c.p), "associated-node", time.Now(), rounds(c.p, c.rounds, c.pause, c.every), ms)
			low, high := predictedRange(got, "associated-node", identity)
			if low != c.identities || high != c.identities {
				t.Errorf("%d to %d identity checks, want %d", low, high, c.identities)
			}
			low, high = predictedRange(got, "associated-node", "impersonate-on:associated-node:list")
			if low != c.actions || high != c.actions {
				t.Errorf("%d to %d action checks, want %d", low, high, c.actions)
			}
			n := int64(c.p.Agents())
			if got.First != n || int64(got.Agents) != n || got.Most != c.rounds ||
				got.Requests != n*int64(c.rounds) {
				t.Errorf("%+v", got)
			}
			low, _ = got.Range()
			t.Logf("%.3f reviews per request", float64(low)/float64(got.Requests))
		})
	}
}

// TestSteadyState checks that a steady state has slightly more than 2.0 reviews per request for agents that ask less
// often than every 10 s, and fewer for those that ask more often, however many nodes there are.
func TestSteadyState(t *testing.T) {
	for _, c := range []struct {
		every    time.Duration
		from, to float64
	}{{30 * second, 2, 2.07}, {12 * second, 2, 2.03}, {6 * second, 1.5, 1.52}, {1100 * ms, 1.09, 1.11}, {490 * ms, 1.03, 1.06}} {
		p := nodes(50, profile.Shared, "associated-node")
		h, start := history(t, p), time.Now()
		n := int(60 * second / c.every)
		predict(t, h, "associated-node", start, rounds(p, n, c.every/50, c.every), ms)
		// A second minute continues where the first ended.
		got := predict(t, h, "associated-node", start.Add(time.Duration(n)*c.every), rounds(p, n, c.every/50, c.every), ms)
		low, high := got.Range()
		t.Logf(
			"every %s: %.4f to %.4f reviews per request",
			c.every,
			float64(low)/float64(got.Requests),
			float64(high)/float64(got.Requests),
		)
		for _, sum := range []int64{low, high} {
			if rate := float64(sum) / float64(got.Requests); rate < c.from || rate > c.to || got.First != 0 {
				t.Errorf("every %s: %v reviews per request, %d first contacts; want %v to %v, none", c.every, rate, got.First, c.from, c.to)
			}
		}
	}
}

// TestSettled checks that the settled part of a block has what the steady state has, although the block began with a
// server that knew nobody. Agents that ask every p are checked once in p·(⌊10 s/p⌋ + 1), and their account once in 10
// s.
func TestSettled(t *testing.T) {
	for every, want := range map[time.Duration]float64{4 * second: 1 + 1.0/3, 9 * second: 1.5, 30 * second: 2} {
		p := nodes(1000, profile.Shared, "associated-node")
		cycle := profile.Cycle(every)
		p.Arrivals = profile.Arrivals{Kind: pacer.Periodic, Every: every}
		p.Settle, p.Block = cycle, 6*cycle
		p.Mix.Whoami = new(int) // the agents ask only for one thing
		settled := &run.SettledPart{After: run.Duration(p.Settle)}
		v, err := profile.VariantNamed("associated-node")
		if err != nil {
			t.Fatal(err)
		}
		all, err := history(t, p).PredictSettled(v, time.Now(), Planned(p.Plan(1).Stripe(0, 1), 0), settled)
		if err != nil {
			t.Fatal(err)
		}
		low, _ := (&run.Prediction{Checks: settled.Checks}).Range()
		rate := float64(low) / float64(settled.Sent)
		if rate < want || rate > want+0.005 || settled.Sent*6 != all.Requests*5 || settled.First != 0 {
			t.Errorf(
				"every %s: %.4f reviews for each of %d requests of %d, %d first contacts; want %.4f",
				every,
				rate,
				settled.Sent,
				all.Requests,
				settled.First,
				want,
			)
		}
	}
}

// TestColdDuplicates checks that requests that are open at the same time may each ask what one of them could remember.
func TestColdDuplicates(t *testing.T) {
	p := nodes(20, profile.Shared, "associated-node", "legacy-gate-on")
	for _, c := range []struct {
		variant   string
		slowest   time.Duration
		low, high int64
	}{
		// There are 20 action checks, one to 20 identity checks, and 20 requests.
		{"associated-node", 2 * second, 41, 60},
		// In the first 95 ms there are two requests.
		{"associated-node", 95 * ms, 41, 42},
		{"associated-node", 10 * ms, 41, 41},
		// Two modes fail until legacy is remembered.
		{"legacy-gate-on", 10 * ms, 42, 42},
		{"legacy-gate-on", 95 * ms, 42, 44},
		{"legacy-gate-on", 2 * second, 42, 80},
	} {
		got := predict(t, history(t, p), c.variant, time.Now(), rounds(p, 1, 50*ms, 0), c.slowest)
		if low, high := got.Range(); low != c.low || high != c.high {
			t.Errorf("%s, %s: %d to %d reviews, want %d to %d", c.variant, c.slowest, low, high, c.low, c.high)
		}
	}
}

// TestAnswers checks that throttled requests were impersonated and not authorized, and that nothing is known of those
// without an answer.
func TestAnswers(t *testing.T) {
	p := nodes(1, profile.Shared, "legacy-gate-on")
	v, err := profile.VariantNamed("legacy-gate-on")
	if err != nil {
		t.Fatal(err)
	}
	log := []run.Request{{From: 0}, {From: second, Answer: "429"}, {From: 2 * second, Answer: "401"}, {From: 3 * second}}
	got, err := history(t, p).Predict(v, time.Now(), log)
	if err != nil {
		t.Fatal(err)
	}
	if low, high := got.Range(); low != 4+1+0+2 || high != low || got.Unsure != 0 {
		t.Errorf("%d to %d reviews, %d unsure", low, high, got.Unsure)
	}
	// The request came nowhere, or through, or was refused because RBAC was not read yet.
	got, err = history(t, p).Predict(v, time.Now(), []run.Request{{Answer: "timeout"}, {From: 20 * second}})
	if err != nil || got.Unsure != 1 {
		t.Errorf("%v, %+v", err, got)
	}
	if low, high := got.Range(); low != 2 || high != 4+3+4 {
		t.Errorf("after one that is not sure: %d to %d reviews", low, high)
	}
	// A server whose storage is not read yet has authorized what it answers with 429. If the request is sent again,
	// everything is asked again.
	got, err = history(t, p).Predict(v, time.Now(), []run.Request{{Answer: run.Unready}, {From: second, Answer: run.Unready}, {From: 2 * second}})
	if err != nil {
		t.Fatal(err)
	}
	if low, high := predictedRange(got, run.RequestMode, "list"); low != 3 || high != 3 || got.Unsure != 0 {
		t.Errorf("three lists, two of them answered by the storage: %d to %d reviews, %d unsure", low, high, got.Unsure)
	}
	// A request that was given up and sent again counts as two. The first of them may have reached the authorizer.
	got, err = history(t, p).Predict(v, time.Now(), []run.Request{{Answer: "timeout"}, {From: second, Answer: "timeout"}, {From: 2 * second}})
	if err != nil {
		t.Fatal(err)
	}
	if low, high := predictedRange(got, run.RequestMode, "list"); low != 1 || high != 3 {
		t.Errorf("three lists, two of them given up: %d to %d reviews", low, high)
	}
	if got, err = history(t, p).Predict(v, time.Now(), []run.Request{{Answer: "refused"}}); err != nil || len(got.Checks) > 0 || got.Unsure != 0 {
		t.Errorf("nobody was there: %v, %+v", err, got)
	}
}

// TestServersUnknown checks that with several servers nobody knows which one remembers, and that what is never
// remembered is still exact.
func TestServersUnknown(t *testing.T) {
	for _, c := range []struct {
		name      string
		variant   string
		change    func(*profile.Profile)
		low, high int64
	}{
		{"one", "associated-node", func(*profile.Profile) {}, 3 + 1, 3 + 1},
		{"three", "associated-node", func(p *profile.Profile) { p.APIServers = 3 }, 3 + 1, 3 + 3},
		{"restarted", "associated-node", func(p *profile.Profile) { p.Event.Kind = profile.Restart }, 3 + 1, 3 + 3},
		{"three, denied", "denied", func(p *profile.Profile) { p.APIServers = 3 }, 3 + 3, 3 + 3},
		{"three, legacy", "legacy-gate-on", func(p *profile.Profile) { p.APIServers = 3 }, 4 + 2, 4 + 4},
	} {
		p := nodes(1, profile.Shared, c.variant)
		c.change(p)
		got := predict(t, history(t, p), c.variant, time.Now(), rounds(p, 2, 0, second), ms)
		if low, high := got.Range(); low != c.low || high != c.high {
			t.Errorf("%s: %d to %d reviews, want %d to %d", c.name, low, high, c.low, c.high)
		}
	}
}

// TestWebhookRemembered checks that an API server that remembers for 30 s that the webhook had no opinion asks the same
// only once in that time.
func TestWebhookRemembered(t *testing.T) {
	for _, c := range []struct {
		gap       time.Duration
		low, high int64
	}{{second, 2, 2}, {29 * second, 2, 2}, {30*second - ms, 2, 4}, {31 * second, 4, 4}} {
		p := nodes(1, profile.Shared, "legacy-gate-off")
		p.Authorizer.Cache = true
		h, err := NewHistory(p, profile.GateOffServer, "1.37")
		if err != nil {
			t.Fatal(err)
		}
		got := predict(t, h, "legacy-gate-off", time.Now(), rounds(p, 2, 0, c.gap), 2*ms)
		if low, high := got.Range(); low != c.low || high != c.high || got.Checks[0].Decision != run.Unseen {
			t.Errorf("again after %s: %d to %d reviews, want %d to %d: %+v", c.gap, low, high, c.low, c.high, got.Checks)
		}
	}
}

// TestEdgeOfCacheLife checks that it depends on how long they take which of two requests at the edge of 10 s is
// remembered.
func TestEdgeOfCacheLife(t *testing.T) {
	p := nodes(1, profile.Shared, "associated-node")
	for _, c := range []struct {
		gap       time.Duration
		low, high int64
	}{{9 * second, 4, 4}, {9980 * ms, 4, 6}, {10010 * ms, 4, 6}, {11 * second, 6, 6}} {
		got := predict(t, history(t, p), "associated-node", time.Now(), rounds(p, 2, 0, c.gap), 30*ms)
		if low, high := got.Range(); low != c.low || high != c.high {
			t.Errorf("again after %s: %d to %d reviews, want %d to %d", c.gap, low, high, c.low, c.high)
		}
	}
}

// TestMoreNames checks that an API server, which remembers the modes of 10,000 user names, remembers none if more names
// ask in turn.
func TestMoreNames(t *testing.T) {
	for _, c := range []struct {
		nodes, sets int
		accounts    profile.ServiceAccounts
		low         int64
	}{
		{500, 20, profile.PerAgent, 2 * 10_000},
		{550, 20, profile.PerAgent, 4 * 11_000},
	} {
		p := nodes(c.nodes, c.accounts, "legacy-gate-on")
		p.DaemonSets = c.sets
		h, start := history(t, p), time.Now()
		predict(t, h, "legacy-gate-on", start, rounds(p, 1, ms, 0), 0)
		got := predict(t, h, "legacy-gate-on", start.Add(time.Minute), rounds(p, 1, ms, 0), 0)
		if low, high := got.Range(); low != c.low || high != c.low {
			t.Errorf("%d accounts: %d to %d reviews, want %d", p.Accounts(), low, high, c.low)
		}
	}
}

// TestVariants checks that each variant costs what the table of impersonation.md says, at first contact and when it is
// known.
func TestVariants(t *testing.T) {
	type cost struct {
		variant       string
		server        profile.Server
		first, steady int64
	}
	costs := []cost{
		{"none", profile.GateOffServer, 1, 1},
		{"none", profile.GateOnServer, 1, 1},
		{"legacy-gate-off", profile.GateOffServer, 2, 2},
		{"legacy-gate-on", profile.GateOnServer, 4, 2},
		{"legacy-node", profile.GateOffServer, 3, 3},
		{"legacy-node", profile.GateOnServer, 3, 3},
		{"serviceaccount", profile.GateOnServer, 3, 3},
		{"legacy-serviceaccount", profile.GateOffServer, 2, 2},
		{"legacy-serviceaccount", profile.GateOnServer, 3, 2},
		{"user-alone", profile.GateOnServer, 3, 3},
		{"user-in-groups", profile.GateOnServer, 9, 9},
		{"associated-node", profile.GateOnServer, 3, 3},
		{"associated-node-cold", profile.GateOnServer, 3, 3},
		{"arbitrary-node", profile.GateOnServer, 3, 3},
		{"denied", profile.GateOffServer, 1, 1},
		{"denied", profile.GateOnServer, 3, 3},
		{"fallback", profile.GateOnServer, 5, 2},
		{"deputy", profile.GateOnServer, 6, 6},
		{"one-user", profile.GateOnServer, 6, 6},
		{"deputy-legacy", profile.GateOffServer, 5, 5},
		{"deputy-legacy", profile.GateOnServer, 6, 5},
	}
	for _, v := range profile.AllVariants() {
		if !slices.ContainsFunc(costs, func(c cost) bool { return c.variant == v.Name }) {
			t.Errorf("nothing says what %s costs", v.Name)
		}
		for _, name := range v.Grants {
			if grants[name] == nil {
				t.Errorf("%s: grants.yaml has no %s", v.Name, name)
			}
		}
		isImpersonating := asking(nodes(1, profile.Shared), v, 0).imp != nil
		if isImpersonating == (v.As == profile.Nobody) {
			t.Errorf("%s: nobody knows whom %q is", v.Name, v.As)
		}
	}
	for _, c := range costs {
		p := nodes(1, profile.Shared, c.variant)
		h, err := NewHistory(p, c.server, "1.37")
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{c.first, c.steady} {
			got := predict(t, h, c.variant, time.Now().Add(time.Duration(i)*time.Minute), rounds(p, 1, 0, 0), 0)
			if low, high := got.Range(); low != want || high != want || got.First != int64(1-i) {
				t.Errorf(
					"%s on %s, time %d: %d to %d reviews, %d first contacts; want %d",
					c.variant,
					c.server,
					i+1,
					low,
					high,
					got.First,
					want,
				)
			}
		}
	}
}

// TestDaemonSets checks that five DaemonSets on one node are five accounts.
func TestDaemonSets(t *testing.T) {
	p := nodes(4, profile.Shared, "associated-node")
	p.DaemonSets = 5
	got := predict(t, history(t, p), "associated-node", time.Now(), rounds(p, 1, 50*ms, 0), ms)
	if low, _ := predictedRange(got, "associated-node", identity); low != 5 || got.Agents != 20 {
		t.Errorf("%d identity checks of %d agents", low, got.Agents)
	}
}

// TestTokensInTurn checks that an agent has a new credential with each token, and that its account has the same keys.
func TestTokensInTurn(t *testing.T) {
	for variant, want := range map[string]int64{"associated-node": 3 + 1, "arbitrary-node": 3 + 3} {
		p := nodes(1, profile.Shared, variant)
		p.TokensPerAgent = 2
		got := predict(t, history(t, p), variant, time.Now(), rounds(p, 2, 0, second), ms)
		if low, high := got.Range(); low != want || high != want {
			t.Errorf("%s: %d to %d reviews, want %d", variant, low, high, want)
		}
	}
}

func BenchmarkPredict(b *testing.B) {
	p := nodes(5000, profile.Shared, "associated-node")
	v, _ := profile.VariantNamed("associated-node")
	sends := rounds(p, 1, ms, 0)
	for b.Loop() {
		h, err := NewHistory(p, profile.GateOnServer, "1.37")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Predict(v, time.Now(), Planned(sends, ms)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/5000, "µs/request")
}

// TestSmallest checks that two requests of one agent are enough to show a server that forgets too early.
func TestSmallest(t *testing.T) {
	p := nodes(20, profile.PerAgent, "associated-node")
	v, err := profile.VariantNamed("associated-node")
	if err != nil {
		t.Fatal(err)
	}
	shows := func(sends []pacer.Send) bool {
		right, wrong := history(t, p), history(t, p)
		got := predict(t, right, "associated-node", time.Now(), sends, 0)
		// It takes twice the time to be old.
		var stretched []pacer.Send
		for _, send := range sends {
			stretched = append(stretched, pacer.Send{At: 2 * send.At, Agent: send.Agent})
		}
		asked, _ := predict(t, wrong, "associated-node", time.Now(), stretched, 0).Range()
		low, _ := got.Range()
		return asked != low
	}
	all := rounds(p, 3, 10*ms, 6*second)
	got := Smallest(all, 100, shows)
	if len(got) != 2 || got[0].Agent != got[1].Agent || got[1].At-got[0].At != 6*second {
		t.Errorf("%v", got)
	}
	if got := Smallest(all, 3, shows); len(got) >= len(all) || !shows(got) {
		t.Errorf("with 3 tries: %d requests", len(got))
	}
	if got := Smallest(all, 100, func([]pacer.Send) bool { return false }); len(got) != len(all) {
		t.Errorf("what does not show again became %d requests", len(got))
	}
	if text := Describe(p, v, got[1]); !strings.Contains(text, "sends list for system:node:storm-0000") {
		t.Error(text)
	}
}
