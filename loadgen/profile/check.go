package profile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/scenarios"
)

// These are bounds of what can be requested. They are far above what a machine can do, and keep a typing error from
// filling its memory.
const (
	maxAgents   = 100_000
	maxRate     = 100_000
	maxRequests = 20_000_000 // in a block
	maxPairs    = 1000
	maxStarts   = 100
	maxBlock    = time.Hour
	maxTokens   = 100
	maxMinted   = 200_000 // each takes a millisecond or more
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?$`)

// checker keeps the first thing that is wrong, and its place.
type checker struct {
	at  func(path string) string
	err error
}

func (c *checker) ok(holds bool, path, format string, args ...any) {
	if c.err == nil && !holds {
		c.err = fmt.Errorf("%s: %s", c.at(path), fmt.Sprintf(format, args...))
	}
}

// Check returns the first thing that is wrong with a profile. at returns the origin of a path such as $.arrivals.rate:
// a file, or a flag.
func (p *Profile) Check(at func(path string) string) error {
	c := &checker{at: at}
	c.ok(p.APIVersion == APIVersion, "$.apiVersion", "apiVersion %q: expected %s", p.APIVersion, APIVersion)
	c.ok(p.Kind == Kind, "$.kind", "kind %q: expected %s", p.Kind, Kind)
	c.ok(nameForm.MatchString(p.Name), "$.name", "name %q: expected lower-case letters, digits and -", p.Name)
	p.checkSize(c)
	p.checkEvents(c)
	p.checkArrivals(c)
	if c.err == nil {
		p.checkSettle(c)
	}
	if c.err == nil {
		p.checkComparisons(c)
	}
	if c.err == nil {
		p.checkThresholds(c)
	}
	return c.err
}

func (p *Profile) checkSize(c *checker) {
	number := func(name string, value, from, to int) {
		c.ok(value >= from && value <= to, "$."+name, "%s %d: expected %d to %d", name, value, from, to)
	}
	span := func(name string, value, from, to time.Duration) {
		c.ok(value >= from && value <= to, "$."+name, "%s %s: expected %s to %s", name, value, from, to)
	}
	number("nodes", p.Nodes, 1, maxAgents)
	number("daemonSets", p.DaemonSets, 1, 100)
	c.ok(
		p.Agents() <= maxAgents,
		"$.daemonSets",
		"%d DaemonSets on %d nodes are %d agents: expected at most %d",
		p.DaemonSets,
		p.Nodes,
		p.Agents(),
		maxAgents,
	)
	c.ok(
		p.ServiceAccounts == Shared || p.ServiceAccounts == PerAgent,
		"$.serviceAccounts",
		"serviceAccounts %q: expected %s (one for each DaemonSet) or %s",
		p.ServiceAccounts,
		Shared,
		PerAgent,
	)
	number("podsPerNode", p.PodsPerNode, 1, 250)
	number("agentsPerConnection", p.AgentsPerConnection, 1, 1000)
	number("requestors", p.Requestors, 0, maxAgents)
	number("tokensPerAgent", p.TokensPerAgent, 1, maxTokens)
	number("pairs", p.Pairs, 1, maxPairs)
	number("starts", p.Starts, 1, maxStarts)
	c.ok(p.Starts <= p.Pairs, "$.starts", "%d starts of the servers for %d pairs: expected a pair for each", p.Starts, p.Pairs)
	isEven := !p.Rounds || p.Starts < 1 || p.Pairs%p.Starts == 0
	c.ok(isEven, "$.rounds", "%d rounds (pairs) in %d starts of the servers: expected as many in each start", p.Pairs, p.Starts)
	span("webhookDelay", p.WebhookDelay, 0, 5*time.Second)
	span("lateTolerance", p.LateTolerance, time.Millisecond, time.Second)
	span("timeout", p.Timeout, 100*time.Millisecond, time.Minute)
	c.ok(p.ColdShare >= 0 && p.ColdShare <= 1, "$.coldShare", "coldShare %v: expected 0 to 1", p.ColdShare)
	c.ok(p.Block >= CacheLife && p.Block <= maxBlock && p.Block%CacheLife == 0, "$.block",
		"block %s: expected a multiple of %s, the life of a cached check, up to %s", p.Block, CacheLife, maxBlock)
	sum := 0
	for i, weight := range []int{p.Mix.List, p.Mix.Get, p.Mix.Watch, p.Mix.Review, ptr.Deref(p.Mix.Whoami, 0)} {
		c.ok(weight >= 0 && weight <= 10_000, "$.mix", "weight %d of %s: expected 0 to 10000", weight, Kinds()[i])
		sum += weight
	}
	c.ok(sum > 0 || p.Reflectors, "$.mix", "the mix has no requests: expected a weight for %s", strings.Join(Kinds(), ", "))
	c.ok(p.Requestors <= p.Agents(), "$.requestors", "%d requestors for %d agents: expected no more than agents", p.Requestors, p.Agents())
	c.ok(
		p.Requestors == 0 || p.DaemonSets == 1,
		"$.requestors",
		"requestors send for all agents, and the pods of %d DaemonSets send for themselves: expected one of both",
		p.DaemonSets,
	)
	c.ok(
		p.Minted() <= maxMinted,
		"$.tokensPerAgent",
		"%d variants, %d pods that send and %d tokens each are %d tokens to mint: expected at most %d",
		len(p.Used()),
		p.Identities(),
		p.TokensPerAgent,
		p.Minted(),
		maxMinted,
	)
}

// checkEvents finds settings of servers and agents that contradict one another, or that nothing would use.
func (p *Profile) checkEvents(c *checker) {
	e := p.Event
	inBlock := e.After >= time.Second && e.After < p.Block
	c.ok(p.APIServers >= 1 && p.APIServers <= 5, "$.apiServers", "apiServers %d: expected 1 to 5", p.APIServers)
	c.ok(
		slices.Contains([]EventKind{NoEvent, Restart, RollingRestart}, e.Kind),
		"$.event.kind",
		"event %q: expected %s or %s",
		e.Kind,
		Restart,
		RollingRestart,
	)
	c.ok(e.Kind != NoEvent || e.After == 0, "$.event.after", "after is for an event: expected a kind beside it")
	c.ok(e.Kind == NoEvent || inBlock, "$.event", "after %s: expected 1s to less than the block's %s", e.After, p.Block)
	c.ok(e.Kind == NoEvent || p.Reflectors, "$.event", "the agents would not come back after a restart: expected reflectors: true")
	c.ok(e.Kind != Restart || p.APIServers == 1, "$.event.kind", "a restart of %d API servers: expected %s", p.APIServers, RollingRestart)
	c.ok(
		e.Kind != RollingRestart || p.APIServers > 1,
		"$.event.kind",
		"a rolling restart of one API server: expected apiServers of 2 or more, or %s",
		Restart,
	)
	p.checkReflectors(c)
	p.checkAuthorizer(c)
}

func (p *Profile) checkReflectors(c *checker) {
	c.ok(!p.Reflectors || p.Mix == Mix{}, "$.mix", "reflectors list and watch: expected no mix")
	c.ok(!p.Reflectors || p.SelfReviews == 0, "$.selfReviews", "reflectors list and watch: expected no selfReviews")
	c.ok(!p.Reflectors || p.Once(), "$.reflectors", "reflectors begin once and go on: expected one burst, or waves")
	c.ok(!p.WatchList || p.Reflectors, "$.watchList", "watchList is how reflectors begin: expected reflectors: true beside it")
	c.ok(p.SelfReviews >= 0 && p.SelfReviews <= 100, "$.selfReviews", "selfReviews %d: expected 0 to 100", p.SelfReviews)
}

func (p *Profile) checkAuthorizer(c *checker) {
	if level := p.PriorityLevel; level != nil {
		c.ok(
			level.ConcurrencyShares >= 1 && level.ConcurrencyShares <= 10_000,
			"$.priorityLevel",
			"expected concurrencyShares of 1 to 10000",
		)
	}
	a := p.Authorizer
	rbac := a.Kind == RBAC
	ofWebhook := a.Cache || a.Concurrency != 0 || p.WebhookDelay != 0
	takesTime := a.Sigma != 0 || a.Concurrency != 0
	c.ok(rbac || a.Kind == Webhook, "$.authorizer.kind", "authorizer %q: expected %s or %s", a.Kind, Webhook, RBAC)
	c.ok(!rbac || !ofWebhook, "$.authorizer", "RBAC alone has no webhook: expected no cache, concurrency or webhookDelay")
	c.ok(a.Sigma >= 0 && a.Sigma <= 3, "$.authorizer.sigma", "sigma %v: expected 0 to 3", a.Sigma)
	c.ok(a.Concurrency >= 0 && a.Concurrency <= 1000, "$.authorizer.concurrency", "concurrency %d: expected 0 to 1000", a.Concurrency)
	c.ok(
		p.WebhookDelay > 0 || !takesTime,
		"$.authorizer",
		"answers that take no time neither vary nor wait for each other: expected a webhookDelay",
	)
	c.ok(a.Bindings >= 0 && a.Bindings <= 20_000, "$.authorizer.bindings", "bindings %d: expected 0 to 20000", a.Bindings)
}

func (p *Profile) checkArrivals(c *checker) {
	a := p.Arrivals
	c.ok(slices.Contains(pacer.Known(), a.Kind), "$.arrivals.kind", "arrivals %q: expected one of %v", a.Kind, pacer.Known())
	burst, waves := a.Kind == pacer.Burst, a.Kind == pacer.Waves
	switch {
	case burst:
		repeats := a.Every >= time.Second && a.Every <= p.Block
		c.ok(a.Every == 0 || repeats, "$.arrivals.every", "every %s: expected 1s to the block's %s", a.Every, p.Block)
	case waves:
		c.ok(
			a.MaxUnavailable > 0 && a.MaxUnavailable <= 1,
			"$.arrivals",
			"maxUnavailable %v: expected more than 0, up to 1",
			a.MaxUnavailable,
		)
		c.ok(a.Every >= 100*time.Millisecond, "$.arrivals", "every %s: expected 100ms or more between waves", a.Every)
		c.ok(
			c.err != nil || p.Plan(0).Expected() == float64(p.Agents()),
			"$.block",
			"the waves are not over after %s: expected a longer block, shorter pauses or larger waves",
			p.Block,
		)
	default:
		c.ok(
			a.Every >= time.Millisecond && a.Every <= time.Hour,
			"$.arrivals.every",
			"every %s: expected how often each agent asks, 1ms to 1h",
			a.Every,
		)
		rate := p.Plan(0).Rate
		c.ok(
			rate <= maxRate,
			"$.arrivals.every",
			"%d agents that ask every %s send %.0f requests/s: expected at most %d",
			p.Agents(),
			a.Every,
			rate,
			maxRate,
		)
	}
	c.ok(waves || a.MaxUnavailable == 0, "$.arrivals.maxUnavailable", "maxUnavailable is for waves: expected kind: waves beside it")
	atARate := !burst && !waves
	c.ok(!a.Opening || atARate, "$.arrivals.opening", "opening is for arrivals at a rate: expected neither bursts nor waves")
	c.ok(
		a.Kind == pacer.Periodic || a.Jitter == 0,
		"$.arrivals.jitter",
		"jitter is for periodic arrivals: expected kind: periodic beside it",
	)
	c.ok(a.Jitter >= 0 && a.Jitter < 0.5, "$.arrivals.jitter", "jitter %v: expected 0 to less than 0.5 of the period", a.Jitter)
	c.ok(burst || waves || !p.Reconnect, "$.reconnect", "reconnect is for bursts and waves: expected kind: burst beside it")
	if c.err == nil {
		n := p.Plan(0).Expected()
		c.ok(n <= maxRequests, "$.block", "a block amounts to %.0f requests: expected at most %d", n, maxRequests)
		c.ok(n >= 1, "$.block", "a block amounts to %.2f requests: expected at least one", n)
	}
}

func (p *Profile) checkComparisons(c *checker) {
	c.ok(len(p.Comparisons) > 0 && len(p.Comparisons) <= 50, "$.comparisons", "%d comparisons: expected 1 to 50", len(p.Comparisons))
	c.ok(
		!p.Counts || !p.claimsLatency(),
		"$.counts",
		"counts beside a margin or a limit of a p99: expected neither, for nothing is said of latency",
	)
	names, aa := map[string]bool{}, 0
	for i, comparison := range p.Comparisons {
		path := fmt.Sprintf("$.comparisons[%d]", i)
		c.ok(nameForm.MatchString(comparison.Name), path+".name", "name %q: expected lower-case letters, digits and -", comparison.Name)
		c.ok(!names[comparison.Name], path+".name", "the comparison %q is there twice: expected a name of its own", comparison.Name)
		names[comparison.Name] = true
		p.checkSide(c, path+".a", comparison.A)
		p.checkSide(c, path+".b", comparison.B)
		for name, m := range map[string]float64{"p50": comparison.Margins.P50, "p99": comparison.Margins.P99, "cpu": comparison.Margins.CPU} {
			c.ok(m >= 0 && m < 1, path+".margins", "margin %v of %s: expected 0 to less than 1, a part of the baseline", m, name)
		}
		if comparison.AA() {
			aa++
			first := ServerFor(comparison.B.Server.Gate())
			c.ok(
				comparison.A.Server != comparison.B.Server,
				path+".b.server",
				"%s on both sides: expected %s and %s, for what two processes differ by is part of every other comparison",
				comparison.B.Server,
				first,
				first+second,
			)
		}
	}
	cold := slices.ContainsFunc(p.allSides(), func(s Side) bool { return s.Does().Cache == Cold })
	c.ok(cold || p.ColdShare == 0, "$.coldShare", "coldShare is for cold variants: expected one of them to be compared")
	claims := slices.ContainsFunc(p.Comparisons, func(c Comparison) bool { return c.Margins != Margins{} })
	needless := aa == 0 && !claims
	c.ok(
		aa == 1 || needless,
		"$.comparisons",
		"%d comparisons have the same variant and gate on both sides: expected exactly one, to show what no difference looks like, or none where there are no margins",
		aa,
	)
}

func (p *Profile) checkSide(c *checker, path string, s Side) {
	variant, err := VariantNamed(s.Variant)
	if err != nil {
		c.ok(false, path+".variant", "%v", err)
		return
	}
	c.ok(slices.Contains(Servers(), s.Server), path+".server", "server %q: expected one of %v", s.Server, Servers())
	c.ok(
		variant.Gate == "" || variant.Gate == s.Server.Gate(),
		path+".server",
		"the variant %s on server %s: expected server %s",
		variant.Name,
		s.Server,
		ServerFor(variant.Gate),
	)
	isUncounted := p.Authorizer.Kind == RBAC && variant.Denied && s.Server.Gate() == scenarios.GateOff
	c.ok(
		!isUncounted,
		path+".variant",
		"the variant %s on %s with RBAC alone: an API server with the gate off does not count checks that it refuses: expected another variant, or a webhook",
		variant.Name,
		s.Server,
	)
	if variant.Cache == Any {
		return
	}
	c.ok(
		p.Requestors == 0,
		path+".variant",
		"the variant %s with %d requestors shared by agents, who would warm each other's cache: expected no requestors",
		variant.Name,
		p.Requestors,
	)
	claimedShare, coldShare := cmp.Or(p.ColdShare, 1), p.shareCold()
	c.ok(
		coldShare >= claimedShare,
		path+".variant",
		"the variant %s asks every %s per agent, and a cached check lives %s: %.1f %% of the requests find it forgotten, and %.1f %% are claimed (coldShare): expected agents that ask less often, or a lower coldShare",
		variant.Name,
		p.period().Round(time.Millisecond),
		CacheLife,
		100*coldShare,
		100*claimedShare,
	)
}

func (p *Profile) checkThresholds(c *checker) {
	variants, seen := p.Used(), map[string]bool{}
	for i, t := range p.Thresholds {
		path := fmt.Sprintf("$.thresholds[%d]", i)
		c.ok(
			slices.Contains(variants, t.Variant),
			path+".variant",
			"variant %q: expected one that is compared, of %s",
			t.Variant,
			strings.Join(variants, ", "),
		)
		c.ok(!seen[t.Variant], path+".variant", "thresholds of the variant %q are there twice: expected once", t.Variant)
		seen[t.Variant] = true
		asks := []bool{t.ReviewsPerRequest != nil, t.P99 != nil, t.ErrorRate != nil, t.ChecksAtOnce != 0}
		c.ok(
			slices.Contains(asks, true),
			path,
			"the threshold asks for nothing: expected reviewsPerRequest, p99, errorRate or checksAtOnce",
		)
		if n := t.ChecksAtOnce; n != 0 {
			c.ok(n >= 2 && n <= 1000, path+".checksAtOnce", "checksAtOnce: expected 2 to 1000")
			c.ok(p.WebhookDelay > 0, path+".checksAtOnce", "checks that take no time are not under way together: expected a webhookDelay")
		}
		if n := t.ReviewsPerRequest; n != nil {
			c.ok(*n > 0 && *n <= 1000, path+".reviewsPerRequest", "reviewsPerRequest: expected more than 0, up to 1000")
		}
		if d := t.P99; d != nil {
			c.ok(*d > 0 && *d <= time.Minute, path+".p99", "p99: expected more than 0s, up to 1m")
		}
		if part := t.ErrorRate; part != nil {
			c.ok(*part >= 0 && *part <= 1, path+".errorRate", "errorRate: expected 0 to 1")
		}
	}
}
