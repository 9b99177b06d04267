package profile

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/scenarios"
)

const good = `apiVersion: authzconf.dev/v1alpha1
kind: LoadProfile
name: test
nodes: 240
arrivals: {kind: poisson, every: 12s}
mix: {list: 1}
block: 20s
pairs: 2
comparisons:
- name: aa
  a: {variant: none, server: gate-on}
  b: {variant: none, server: gate-on-2}
- name: cold
  a: {variant: legacy-gate-off, server: gate-off}
  b: {variant: associated-node-cold, server: gate-on}
  margins: {p50: 0.1}
- name: warm
  a: {variant: legacy-gate-off, server: gate-off}
  b: {variant: associated-node, server: gate-on}
thresholds:
- {variant: associated-node-cold, reviewsPerRequest: 3, p99: 1s, errorRate: 0}
coldShare: 0.6
`

func TestParse(t *testing.T) {
	p, err := Parse("p.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if p.Block != 20*time.Second || p.PodsPerNode != 30 || *p.Thresholds[0].P99 != time.Second || p.Comparisons[1].Margins.P50 != 0.1 {
		t.Errorf("read %+v", p)
	}
	if got := p.Used(); !slices.Equal(got, []string{"none", "legacy-gate-off", "associated-node-cold", "associated-node"}) {
		t.Errorf("variants %v", got)
	}
	if p.Length() != 2*2*3*20*time.Second+2*3*10*time.Second || p.Declared != (DeclaredSample{2, 2}) || p.Connections() != 240 ||
		len(p.Servers()) != 3 {
		t.Errorf("%s, %d connections, servers %v", p.Length(), p.Connections(), p.Servers())
	}
	if p.Identities() != 240 || p.Accounts() != 1 || p.Plan(0).Rate != 20 || p.Minted() != 4*241 {
		t.Errorf("%d identities with %d accounts, %v requests/s, %d tokens", p.Identities(), p.Accounts(), p.Plan(0).Rate, p.Minted())
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"an unknown field", "pairs: 2", "pears: 2", `p.yaml:8:1: unknown field "pears"`},
		{"never", "every: 12s", "every: 0s", "p.yaml:5:34: every 0s: expected how often each agent asks, 1ms to 1h"},
		{"too often for all of them", "every: 12s", "every: 1ms", "p.yaml:5:34: 240 agents that ask every 1ms send 240000 requests/s: expected at most 100000"},
		{"nothing about how often", "{kind: poisson, every: 12s}", "{kind: poisson}", "p.yaml:5:12: every 0s: expected"},
		{"a rate of all agents", "every: 12s", "rate: 20", `p.yaml:5:27: unknown field "rate"`},
		{"agents, which were nodes", "nodes: 240", "agents: 240", `p.yaml:4:1: unknown field "agents"`},
		{"more agents than can be", "nodes: 240", "nodes: 1001\ndaemonSets: 100", "p.yaml:5:13: 100 DaemonSets on 1001 nodes are 100100 agents: expected at most 100000"},
		{"accounts of another kind", "pairs: 2", "serviceAccounts: own", `p.yaml:8:18: serviceAccounts "own": expected shared (one for each DaemonSet) or perAgent`},
		{"requestors beside DaemonSets", "pairs: 2", "daemonSets: 2\nrequestors: 4", "p.yaml:9:13: requestors send for all agents, and the pods of 2 DaemonSets send for themselves"},
		{"more tokens than may be minted", "pairs: 2", "tokensPerAgent: 100\ndaemonSets: 5", "p.yaml:8:17: 4 variants, 1200 pods that send and 100 tokens each are 480400 tokens to mint: expected at most 200000"},
		{"unknown arrivals", "poisson", "normal", `p.yaml:5:18: arrivals "normal": expected one of`},
		{"jitter of a Poisson process", "every: 12s", "every: 12s, jitter: 0.1", "p.yaml:5:47: jitter is for periodic"},
		{"reconnect without a burst", "pairs: 2", "reconnect: true", "p.yaml:8:12: reconnect is for bursts and waves"},
		{"a block of 15 s", "block: 20s", "block: 15s", "p.yaml:7:8: block 15s: expected a multiple of 10s"},
		{"no nodes", "nodes: 240", "nodes: 0", "p.yaml:4:8: nodes 0: expected 1 to 100000"},
		{"no requests", "{list: 1}", "{list: 0}", "p.yaml:6:7: the mix has no requests"},
		{"a cold variant that is warm", "every: 12s", "every: 5s", "p.yaml:15:16: the variant associated-node-cold asks every 5s per agent, and a cached check lives 10s: 39.4 % of the requests"},
		{"a cold variant with shared requestors", "pairs: 2", "requestors: 3", "p.yaml:15:16: the variant associated-node-cold with 3 requestors"},
		{"a variant on the wrong server", "server: gate-off}\n  b: {variant: associated-node-cold", "server: gate-on}\n  b: {variant: associated-node-cold", "p.yaml:14:41: the variant legacy-gate-off on server gate-on: expected server gate-off"},
		{"an unknown variant", "variant: none, server: gate-on}\n  b", "variant: nine, server: gate-on}\n  b", `p.yaml:11:16: variant "nine": expected one of none,`},
		{"an unknown server", "{variant: none, server: gate-on}\n  b", "{variant: none, server: on}\n  b", `p.yaml:11:30: server "on": expected one of [gate-on gate-off gate-on-2 gate-off-2]`},
		{"no A/A pair", "b: {variant: none, server: gate-on-2}", "b: {variant: none, server: gate-off}", "p.yaml:10:1: 0 comparisons have the same variant"},
		{"an A/A pair of one process", "b: {variant: none, server: gate-on-2}", "b: {variant: none, server: gate-on}", "p.yaml:12:30: gate-on on both sides: expected gate-on and gate-on-2"},
		{"a margin of 1", "margins: {p50: 0.1}", "margins: {p50: 1}", "p.yaml:16:13: margin 1 of p50: expected 0 to less than 1"},
		{"more starts than pairs", "pairs: 2", "starts: 21", "p.yaml:8:9: 21 starts of the servers for 20 pairs: expected"},
		{"a comparison twice", "name: warm", "name: cold", `p.yaml:17:9: the comparison "cold" is there twice`},
		{"a threshold of a variant that is not there", "- {variant: associated-node-cold, rev", "- {variant: denied, rev", `p.yaml:21:13: variant "denied": expected one that is compared`},
		{"a threshold of nothing", ", reviewsPerRequest: 3, p99: 1s, errorRate: 0}", "}", "p.yaml:21:4: the threshold asks for nothing"},
		{"a restart that nobody comes back from", "pairs: 2", "event: {kind: restart, after: 5s}", "p.yaml:8:9: the agents would not come back after a restart: expected reflectors"},
		{"a restart after the block", "pairs: 2", "event: {kind: restart, after: 20s}", "p.yaml:8:9: after 20s: expected 1s to less than"},
		{"a time of no event", "pairs: 2", "event: {after: 5s}", "p.yaml:8:16: after is for an event"},
		{"reflectors with a mix", "pairs: 2", "reflectors: true", "p.yaml:6:7: reflectors list and watch: expected no mix"},
		{"a watch of nobody who comes back", "pairs: 2", "watchList: true", "p.yaml:8:12: watchList is how reflectors begin: expected reflectors"},
		{"a wave of no size", "{kind: poisson, every: 12s}", "{kind: waves, every: 1s}", "p.yaml:5:12: maxUnavailable 0: expected more than 0"},
		{"waves that take too long", "{kind: poisson, every: 12s}", "{kind: waves, every: 5s, maxUnavailable: 0.1}", "p.yaml:7:8: the waves are not over after 20s: expected a longer block"},
		{"a delay of no webhook", "pairs: 2", "authorizer: {kind: rbac, cache: true}", "p.yaml:8:14: RBAC alone has no webhook: expected no cache"},
		{"no delay that varies", "pairs: 2", "authorizer: {sigma: 1}", "p.yaml:8:14: answers that take no time neither vary nor wait"},
		{"a level without seats", "pairs: 2", "priorityLevel: {concurrencyShares: 0}", "p.yaml:8:17: expected concurrencyShares of 1"},
		{"a setting that nothing uses", "pairs: 2", "maxLate: 0.01", `p.yaml:8:1: unknown field "maxLate"`},
		{"a margin of 1", "p50: 0.1", "p50: 1", "p.yaml:16:13: margin 1 of p50: expected 0 to less than 1"},
		{"a claim of more cold requests than there are", "coldShare: 0.6", "coldShare: 0.7", "p.yaml:15:16: the variant associated-node-cold asks every 12s"},
		{"a Poisson process that is all cold", "coldShare: 0.6", "", "p.yaml:15:16: the variant associated-node-cold asks every 12s"},
		{"a share of nothing", "associated-node-cold", "legacy-gate-on", "p.yaml:22:12: coldShare is for cold variants"},
		{"another format", "v1alpha1", "v2", "p.yaml:1:13: apiVersion"},
		{"a delay of a minute", "pairs: 2", "webhookDelay: 1m", "p.yaml:8:15: webhookDelay 1m0s: expected 0s to 5s"},
		{"more requests than memory", "{kind: poisson, every: 12s}\nmix: {list: 1}\nblock: 20s", "{kind: poisson, every: 3ms}\nmix: {list: 1}\nblock: 1h", "p.yaml:7:8: a block amounts to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if c.name == "a share of nothing" {
				text = strings.ReplaceAll(good, c.old, c.new)
			}
			if text == good {
				t.Fatal("nothing was replaced")
			}
			_, err := Parse("p.yaml", []byte(text))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
			if !strings.Contains(err.Error(), "expected") && !strings.Contains(err.Error(), "unknown field") {
				t.Errorf("does not say what is expected: %v", err)
			}
		})
	}
}

func TestAdjusted(t *testing.T) {
	p, err := Parse("p.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	const ten = 10 * time.Second
	given := func(flags ...string) func(string) bool {
		return func(flag string) bool { return slices.Contains(flags, flag) }
	}
	if _, err := p.Adjusted(Adjust{}, given("every")); err == nil || !strings.HasPrefix(err.Error(), "--every: every 0s: expected") {
		t.Errorf("every 0 s: %v", err)
	}
	_, err = p.Adjusted(Adjust{Every: 5 * time.Second}, given("every"))
	if err == nil || !strings.Contains(err.Error(), "asks every 5s per agent") {
		t.Errorf("every 5 s: %v", err)
	}
	q, err := p.Adjusted(Adjust{
		Nodes:           100,
		DaemonSets:      20,
		ServiceAccounts: string(PerAgent),
		Every:           time.Minute,
		Block:           ten,
		Pairs:           7,
		Variants:        []string{"legacy-gate-off", "associated-node-cold"},
	}, given("nodes", "daemonsets", "service-accounts", "every", "duration"))
	if err != nil {
		t.Fatal(err)
	}
	if q.Agents() != 2000 || q.Accounts() != 2000 || q.Plan(0).Rate != 2000.0/60 || q.Block != ten || q.Pairs != p.Pairs ||
		len(q.Comparisons) != 2 ||
		!q.Comparisons[0].AA() ||
		q.Comparisons[0].A.Variant != "legacy-gate-off" {
		t.Errorf("adjusted to %+v", q)
	}
	if p.Agents() != 240 || len(p.Comparisons) != 3 {
		t.Error("the profile itself changed")
	}
	fewer, err := p.Adjusted(Adjust{Pairs: 1}, given("pairs"))
	if err != nil || fewer.Pairs != 1 || fewer.Starts != 1 || fewer.Declared != p.Declared {
		t.Errorf("one pair: %v, %+v", err, fewer)
	}
	if aa := q.Comparisons[0]; aa.A.Server != GateOffServer || aa.B.Server != "gate-off-2" {
		t.Errorf("the A/A pair is of %+v", aa)
	}
	_, err = p.Adjusted(Adjust{Variants: []string{"denied"}}, given("variants"))
	if err == nil || !strings.HasPrefix(err.Error(), "--variants denied: the profile test has none,") {
		t.Errorf("a variant that is not there: %v", err)
	}
	if _, err := p.Adjusted(Adjust{Variants: []string{"none", "associated-node"}}, given("variants")); err == nil {
		t.Error("variants that are not compared were accepted")
	}
}

// TestCounts checks that nothing about latency is left, nor the claim that goes with it.
func TestCounts(t *testing.T) {
	p, err := Parse("p.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Adjusted(Adjust{Counts: true, Pairs: 2}, func(flag string) bool { return flag == "pairs" })
	if err != nil {
		t.Fatal(err)
	}
	if got.Declared != (DeclaredSample{2, 1}) || got.Starts != 1 || len(got.Comparisons) != len(p.Comparisons)-1 {
		t.Errorf("%+v, %d comparisons", got.Declared, len(got.Comparisons))
	}
	for _, c := range got.Comparisons {
		if c.AA() || c.Margins != (Margins{}) {
			t.Errorf("%+v", c)
		}
	}
	if p.Comparisons[0].AA() != true ||
		p.Comparisons[2].Margins == (Margins{}) && p.Comparisons[1].Margins == (Margins{}) {
		t.Error("the profile itself was changed")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	for _, change := range [][2]string{{"12s}", "1e309}"}, {"20s", "-20s"}, {"poisson", "burst"}, {"2\n", "-1\n"}, {"240", "99999999999999999999"}, {"list: 1", "list: -1, get: 5"}} {
		f.Add([]byte(strings.Replace(good, change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("p.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "p.yaml:") || strings.Contains(err.Error(), "\n") {
				t.Errorf("no place, or more than a line: %q", err)
			}
			return
		}
		// What is accepted can be run.
		if plan := p.Plan(1); plan.Agents < 1 || plan.Length <= 0 || plan.Jitter < 0 || plan.Jitter >= 0.5 || plan.Every < 0 ||
			plan.Arrivals == pacer.Waves && plan.AtOnce < 1 ||
			!plan.Scheduled() &&
				(!(plan.Rate > 0) || math.IsInf(plan.Rate, 0)) {
			t.Errorf("accepted, and the plan is %+v", plan)
		}
		for _, name := range p.Used() {
			if _, err := VariantNamed(name); err != nil {
				t.Error(err)
			}
		}
		if n := p.Identities(); n < 1 || n > p.Agents() || p.Accounts() < 1 || p.AccountOf(n-1) != p.Accounts()-1 {
			t.Errorf("%d identities, %d accounts", n, p.Accounts())
		}
		if p.Length() <= 0 || fmt.Sprint(p.Servers()) == "[]" {
			t.Error("nothing to run")
		}
	})
}

// TestShareCold compares the computed share with the arrivals themselves: a request is cold if CacheLife has passed
// since the last cold one of its agent.
func TestShareCold(t *testing.T) {
	for _, c := range []struct {
		arrivals Arrivals
		block    time.Duration
	}{
		{Arrivals{Kind: "poisson", Every: 12 * time.Second}, 20 * time.Second},
		{Arrivals{Kind: "poisson", Every: 800 * time.Millisecond}, 60 * time.Second},
		{Arrivals{Kind: "poisson", Every: time.Minute}, 10 * time.Second},
		{Arrivals{Kind: "periodic", Every: 12 * time.Second, Jitter: 0.05}, 60 * time.Second},
		{Arrivals{Kind: "constant", Every: 12 * time.Second}, 60 * time.Second},
	} {
		p := Defaults()
		p.Nodes, p.Arrivals, p.Block, p.Mix.List = 2400, c.arrivals, c.block, 1
		last, cold := map[int32]time.Duration{}, 0
		schedule := p.Plan(7).Stripe(0, 1)
		for _, send := range schedule {
			if at, asked := last[send.Agent]; !asked || send.At-at >= CacheLife {
				last[send.Agent], cold = send.At, cold+1
			}
		}
		if share := float64(cold) / float64(len(schedule)); math.Abs(share-p.shareCold()) > 0.02 {
			t.Errorf("%+v in %s: %.3f of the requests are cold, and %.3f are claimed", p.Arrivals, c.block, share, p.shareCold())
		}
	}
	for _, warm := range []Arrivals{{Kind: "periodic", Every: 12 * time.Second, Jitter: 0.1}} {
		p := Defaults()
		p.Nodes, p.Arrivals, p.Block = 240, warm, 60*time.Second
		if share := p.shareCold(); share != 0 {
			t.Errorf("%+v: %v are sure to be cold", warm, share)
		}
	}
}

// TestDeniedWithoutACount checks that a server with the gate off and only RBAC has no count of what it refuses.
func TestDeniedWithoutACount(t *testing.T) {
	const text = `apiVersion: authzconf.dev/v1alpha1
kind: LoadProfile
name: refused
nodes: 10
arrivals: {kind: constant, every: 5s}
mix: {list: 1}
block: 30s
pairs: 2
authorizer: {kind: KIND}
comparisons:
- name: denied
  a: {variant: none, server: SERVER}
  b: {variant: denied, server: SERVER}
`
	for _, c := range []struct{ authorizer, server, why string }{
		{"rbac", "gate-off", "p.yaml:13:16: the variant denied on gate-off with RBAC alone: an API server with the gate off does not count checks that it refuses"},
		{"rbac", "gate-on", ""},
		{"webhook", "gate-off", ""},
	} {
		_, err := Parse("p.yaml", []byte(strings.NewReplacer("KIND", c.authorizer, "SERVER", c.server).Replace(text)))
		if (err == nil) != (c.why == "") {
			t.Errorf("%s on %s: %v", c.authorizer, c.server, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s on %s: %v, want %s", c.authorizer, c.server, err, c.why)
		}
	}
}

func TestWithGate(t *testing.T) {
	p, err := Load("before-and-after", os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.WithGate(scenarios.GateOff).Servers(); len(got) != 1 || got[0] != GateOffServer {
		t.Errorf("before-and-after on a cluster with the gate off has the servers %v", got)
	}
	if p, err = Load("one-cluster", os.ReadFile); err != nil {
		t.Fatal(err)
	}
	if got := p.WithGate(scenarios.GateOff).Servers(); len(got) != 1 || got[0] != GateOnServer {
		t.Errorf("one-cluster needs the gate, and has the servers %v", got)
	}
}
