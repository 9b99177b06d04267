// Package profile reads load profiles. These are strict files that say what a storm is made of, what is compared, and
// what must hold.
package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/scenarios"
)

// These are the format of profiles.
const (
	APIVersion = "authzconf.dev/v1alpha1"
	Kind       = "LoadProfile"
)

// CacheLife is how long an API server remembers a check that was allowed
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation/cache.go).
const CacheLife = 10 * time.Second

// Profile is a file that says what a storm is made of, what is compared in it, and what must hold.
type Profile struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Name       string `yaml:"name"`
	// Description says what the profile stands for.
	Description string `yaml:"description"`
	// Nodes is the number of nodes, with PodsPerNode pods each. Each of DaemonSets has an agent on every node.
	Nodes       int `yaml:"nodes"`
	DaemonSets  int `yaml:"daemonSets"`
	PodsPerNode int `yaml:"podsPerNode"`
	// AgentsPerConnection is how many agents share a connection.
	AgentsPerConnection int `yaml:"agentsPerConnection"`
	// ServiceAccounts says which pods share one.
	ServiceAccounts ServiceAccounts `yaml:"serviceAccounts"`
	// Requestors, if it is given, is how many pods send for all agents, as those of a deputy do for its users.
	// Otherwise each agent is a pod on its node.
	Requestors int `yaml:"requestors"`
	// TokensPerAgent is how many tokens an agent uses in turn. If there are several, every request has another token
	// than the previous one.
	TokensPerAgent int      `yaml:"tokensPerAgent"`
	Arrivals       Arrivals `yaml:"arrivals"`
	Mix            Mix      `yaml:"mix"`
	// SelfReviews is how often an agent asks what it may do before each other request (SelfSubjectAccessReview).
	SelfReviews int `yaml:"selfReviews"`
	// Reflectors makes every agent list and watch as client-go does, and come back with client-go's backoff, instead of
	// sending a mix.
	Reflectors bool `yaml:"reflectors"`
	// WatchList makes reflectors begin with a watch that sends what exists, as client-go does by default since 1.35.
	WatchList bool `yaml:"watchList"`
	// Reconnect makes every agent use a new connection.
	Reconnect bool `yaml:"reconnect"`
	// APIServers is how many API servers are behind a balancer on each side. Event is what happens to them in a block.
	APIServers int   `yaml:"apiServers"`
	Event      Event `yaml:"event"`
	// PriorityLevel, if it is given, is a level of priority and fairness for the agents only.
	PriorityLevel *PriorityLevel `yaml:"priorityLevel"`
	Authorizer    Authorizer     `yaml:"authorizer"`
	Block         time.Duration  `yaml:"block"` // the length of a block, a multiple of CacheLife
	// Settle, if it is given, is the first part of a block, in which agents ask in its schedule before their reviews
	// are counted for the steady state. The rest of the block consists of whole cycles of the schedule.
	Settle time.Duration `yaml:"settle"`
	// Pairs is how many pairs of blocks each comparison has, spread over Starts starts of the servers (5, or as many as
	// pairs if those are fewer).
	Pairs  int `yaml:"pairs"`
	Starts int `yaml:"starts"`
	// Rounds makes every side ask once in each of Pairs rounds, whatever comparisons it is in, instead of in a pair of
	// blocks for each comparison. All starts have the same number of rounds.
	Rounds       bool           `yaml:"rounds"`
	Declared     DeclaredSample `yaml:"-"`            // the pairs and starts in the file, which no flag lowers
	WebhookDelay time.Duration  `yaml:"webhookDelay"` // what the authorizer adds to each answer
	// LateTolerance is how much later than intended a request may be sent without counting as late.
	LateTolerance time.Duration `yaml:"lateTolerance"`
	Timeout       time.Duration `yaml:"timeout"` // how long an agent waits for an answer
	// Counts means that the profile is only about counts: no latency is judged, not even by the objectives of
	// Kubernetes, nothing is measured before the first block, and requests wait for room instead of being dropped.
	Counts bool `yaml:"counts"`
	// ColdShare is the part of cold variants' requests that must find that the server has forgotten what it knew of
	// them. By default it is all.
	ColdShare   float64      `yaml:"coldShare"`
	Comparisons []Comparison `yaml:"comparisons"`
	Thresholds  []Threshold  `yaml:"thresholds"`
}

// DeclaredSample are the numbers on which a claim was declared to be based.
type DeclaredSample struct{ Pairs, Starts int }

// Arrivals say when requests are sent.
type Arrivals struct {
	Kind pacer.Arrivals `yaml:"kind"`
	// Every is the average time between two requests of one agent, however many agents there are. 0 means a single
	// burst. For waves, in which each agent asks once, it is the time between two waves.
	Every  time.Duration `yaml:"every"`
	Jitter float64       `yaml:"jitter"` // a part of the period, for periodic arrivals
	// MaxUnavailable is the part of the agents in a wave, as in the rollout of a DaemonSet.
	MaxUnavailable float64 `yaml:"maxUnavailable"`
	// Opening makes all agents ask at once at the beginning, and then each in its own time.
	Opening bool `yaml:"opening"`
}

// Event is what happens to the API servers in a block.
type Event struct {
	Kind  EventKind     `yaml:"kind"`
	After time.Duration `yaml:"after"`
}

// EventKind names an event.
type EventKind string

// These are the events. Processes are ended in order, and started again on the same etcd.
const (
	NoEvent EventKind = ""
	// Restart restarts the only API server.
	Restart EventKind = "restart"
	// RollingRestart restarts one API server after the other. The balancer leaves out the one that is away.
	RollingRestart EventKind = "rolling-restart"
)

// PriorityLevel is a Limited PriorityLevelConfiguration that neither lends nor borrows, and rejects what finds no seat.
type PriorityLevel struct {
	ConcurrencyShares int `yaml:"concurrencyShares"`
}

// Authorizer is what decides in addition to RBAC, and how long it takes.
type Authorizer struct {
	Kind string `yaml:"kind"` // Webhook, the default, or only RBAC: then the API server counts
	// Cache makes the API server remember the webhook's answers for as long as it does by default.
	Cache bool `yaml:"cache"`
	// Sigma, if it is given, makes webhookDelay the median of a lognormal distribution.
	Sigma float64 `yaml:"sigma"`
	// Concurrency, if it is given, is how many reviews the webhook answers at the same time.
	Concurrency int `yaml:"concurrency"`
	// Bindings is how many further ClusterRoleBindings there are for RBAC to search.
	Bindings int `yaml:"bindings"`
}

// These are the authorizers.
const (
	Webhook = "webhook"
	RBAC    = "rbac"
)

// Text returns a line for people. delay is how long a webhook takes.
func (a Authorizer) Text(delay time.Duration) string {
	text := a.Kind
	switch {
	case a.Kind == RBAC:
	case a.Cache:
		text += ", remembered"
	default:
		text += ", not remembered"
	}
	if delay > 0 {
		text += ", " + delay.String()
	}
	if a.Sigma > 0 {
		text += fmt.Sprintf(" lognormal (σ %g)", a.Sigma)
	}
	if a.Concurrency > 0 {
		text += fmt.Sprintf(", %d at once", a.Concurrency)
	}
	if a.Bindings > 0 {
		text += fmt.Sprintf(", %d more bindings", a.Bindings)
	}
	return text
}

// ServiceAccounts says which pods share one.
type ServiceAccounts string

const (
	// Shared is one for each DaemonSet, as DaemonSets have it, or one for all requestors.
	Shared ServiceAccounts = "shared"
	// PerAgent is one for every pod that sends.
	PerAgent ServiceAccounts = "perAgent"
)

// Mix are the weights of the kinds of requests.
type Mix struct {
	List   int `yaml:"list"`
	Get    int `yaml:"get"`
	Watch  int `yaml:"watch"`
	Review int `yaml:"review"` // of SelfSubjectAccessReviews
	// Whoami is the weight of SelfSubjectReviews, whose answers show as whom the API server sees the agent. If it is
	// left out, one request in whoamiShare is of this kind.
	Whoami *int `yaml:"whoami"`
}

// whoamiShare is the step of the requests that ask who the agent is, unless a profile states a weight: one in so many.
const whoamiShare = 20

// weights returns how often each kind of request is sent, in the order of Kinds.
func (m Mix) weights() []int {
	weights := []int{m.List, m.Get, m.Watch, m.Review, 0}
	if m.Whoami != nil {
		weights[4] = *m.Whoami
		return weights
	}
	weights[4] = m.List + m.Get + m.Watch + m.Review
	for i := range weights[:4] {
		weights[i] *= whoamiShare - 1
	}
	return weights
}

// Comparison is a comparison of two sides, block by block.
type Comparison struct {
	Name string `yaml:"name"`
	A    Side   `yaml:"a"`
	B    Side   `yaml:"b"`
	// Margins are the differences that count as none.
	Margins Margins `yaml:"margins"`
}

// Side is a variant on a server.
type Side struct {
	Variant string `yaml:"variant"`
	Server  Server `yaml:"server"`
}

// AA reports whether both sides are the same. Such a comparison shows what no difference looks like.
func (c Comparison) AA() bool {
	return c.A.Variant == c.B.Variant && c.A.Server.Gate() == c.B.Server.Gate()
}

// Margins are parts of the baseline: 0.1 is 10 %. 0 means that none is declared.
type Margins struct {
	P50 float64 `yaml:"p50"`
	P99 float64 `yaml:"p99"`
	// CPU is about the API server's processor time above idle for each request.
	CPU float64 `yaml:"cpu"`
}

// Threshold is what must hold for a variant over all its blocks. What is left out is not judged.
type Threshold struct {
	Variant string `yaml:"variant"`
	// ReviewsPerRequest is the highest mean, the review of the request included.
	ReviewsPerRequest *float64       `yaml:"reviewsPerRequest"`
	P99               *time.Duration `yaml:"p99"` // from the intended send to the end of the answer
	// ErrorRate is the highest part of answers that the variant does not expect.
	ErrorRate *float64 `yaml:"errorRate"`
	// ChecksAtOnce is how many checks of impersonation have to be open at the authorizer at the same time, at some
	// moment of a block, and also how many reviews of the requests that were impersonated. A server that makes each
	// wait for another's answer has only one at a time. 0 means that it is not judged.
	ChecksAtOnce int `yaml:"checksAtOnce"`
}

// defaultStarts is the number of starts for a file that does not state it and has at least as many pairs.
const defaultStarts = 5

// Defaults returns the values of what a file leaves out.
func Defaults() Profile {
	return Profile{
		DaemonSets: 1, PodsPerNode: 30, ServiceAccounts: Shared, AgentsPerConnection: 1, APIServers: 1,
		Authorizer: Authorizer{Kind: Webhook}, TokensPerAgent: 1, Pairs: 20,
		LateTolerance: 10 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

// Parse reads a profile. name is used in messages, each of which begins with a place in the file.
func Parse(name string, data []byte) (*Profile, error) {
	p := new(Defaults())
	file, err := scenarios.Decode(name, data, "a load profile", p)
	if err != nil {
		return nil, err
	}
	p.Starts = cmp.Or(p.Starts, min(defaultStarts, max(p.Pairs, 1)))
	p.Declared = DeclaredSample{p.Pairs, p.Starts}
	return p, p.Check(file.At)
}

// Kinds are the kinds of requests, in the order of Plan.Mix.
func Kinds() []string { return []string{"list", "get", "watch", Review, Whoami} }

const (
	// Review is the kind of request that is a SelfSubjectAccessReview.
	Review = "review"
	// Whoami is the kind of request that is a SelfSubjectReview.
	Whoami = "whoami"
)

// Agents returns the number of agents.
func (p *Profile) Agents() int { return p.Nodes * p.DaemonSets }

// Plan is the schedule of a block.
func (p *Profile) Plan(seed uint64) pacer.Plan {
	plan := pacer.Plan{
		Arrivals: p.Arrivals.Kind, Agents: p.Agents(), Length: p.Block,
		Jitter: p.Arrivals.Jitter, Mix: p.Mix.weights(),
		AtOnce: int(math.Ceil(p.Arrivals.MaxUnavailable * float64(p.Agents()))), Opening: p.Arrivals.Opening,
		Seed: seed,
	}
	if plan.Scheduled() {
		plan.Every = p.Arrivals.Every
	} else if p.Arrivals.Every > 0 {
		plan.Rate = float64(p.Agents()) / p.Arrivals.Every.Seconds()
	}
	if p.Reflectors {
		plan.Mix[0] = 1 // they begin with a list
	}
	return plan
}

// Once reports whether each agent comes once in a block.
func (p *Profile) Once() bool {
	switch p.Arrivals.Kind {
	case pacer.Waves:
		return true
	case pacer.Burst:
		return p.Arrivals.Every == 0
	}
	return false
}

// FirstContact reports whether a block begins with agents that the server has forgotten.
func (p *Profile) FirstContact() bool { return p.Plan(0).Scheduled() || p.Arrivals.Opening }

func (p *Profile) period() time.Duration {
	if p.Once() {
		// Between two blocks of a cold variant the server gets time to forget.
		return p.Block + CacheLife
	}
	return p.Arrivals.Every
}

// shareCold returns the part of an agent's requests that come when its last check is forgotten, on average in a block
// that begins cold. A request that comes sooner does not make the server remember longer (cache.Expiring), so checks
// are forgotten CacheLife after each cold request.
func (p *Profile) shareCold() float64 {
	shortest := p.period().Seconds()
	switch p.Arrivals.Kind {
	case pacer.Periodic:
		shortest *= 1 - 2*p.Arrivals.Jitter
	case pacer.Poisson:
		rate, cold := 1/p.period().Seconds(), 0.0
		// The nth cold request comes n pauses and n-1 lives after the beginning, and the pauses are exponential.
		for n, left := 1, p.Block.Seconds(); left > 0; n, left = n+1, left-CacheLife.Seconds() {
			term, fewer := math.Exp(-rate*left), 0.0
			for i := range n {
				fewer += term
				term *= rate * left / float64(i+1)
			}
			cold += 1 - fewer
		}
		return cold / (rate * p.Block.Seconds())
	}
	if shortest > CacheLife.Seconds() {
		return 1
	}
	return 0
}

// Predictable reports whether the reviews of a block follow from its requests. They do not if only the API server
// counts.
func (p *Profile) Predictable() bool { return p.Authorizer.Kind != RBAC }

// claimsLatency reports whether the profile has a margin, or a limit of a latency.
func (p *Profile) claimsLatency() bool {
	margins := slices.ContainsFunc(p.Comparisons, func(c Comparison) bool { return c.Margins != Margins{} })
	return margins || slices.ContainsFunc(p.Thresholds, func(t Threshold) bool { return t.P99 != nil })
}

// OneServer reports whether all requests go to one API server that is not restarted in a block.
func (p *Profile) OneServer() bool { return p.APIServers <= 1 && p.Event.Kind == NoEvent }

// Identities returns how many pods send, each with tokens of its own. Agent a uses the one with the number a modulo
// that.
func (p *Profile) Identities() int {
	if p.Requestors > 0 {
		return p.Requestors
	}
	return p.Agents()
}

// Accounts returns how many service accounts the identities have. AccountOf returns the one of an identity.
func (p *Profile) Accounts() int {
	switch {
	case p.ServiceAccounts == PerAgent:
		return p.Identities()
	case p.Requestors > 0:
		return 1
	}
	return p.DaemonSets
}

// AccountOf returns the number of an identity's service account. Agents of the first DaemonSet come first, in the order
// of their nodes, and then those of the second.
func (p *Profile) AccountOf(identity int) int {
	switch {
	case p.ServiceAccounts == PerAgent:
		return identity
	case p.Requestors > 0:
		return 0
	}
	return identity / p.Nodes
}

// Minted returns how many tokens the agents of all variants need, with one for each variant that takes no part.
func (p *Profile) Minted() int { return len(p.Used()) * (p.Identities() + 1) * p.TokensPerAgent }

// RequestKinds returns the kinds of requests that agents send, in the order of Kinds.
func (p *Profile) RequestKinds() (kinds []string) {
	switch {
	case p.WatchList:
		return []string{"watch"}
	case p.Reflectors:
		return []string{"list", "watch"}
	}
	weights := p.Mix.weights()
	weights[3] += p.SelfReviews
	for i, kind := range Kinds() {
		if weights[i] > 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
