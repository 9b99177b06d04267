// Package profile reads load profiles: strict files on what a storm is made of, what is compared, and what must hold.
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

// The format of profiles.
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
	// Description says what it stands for.
	Description string `yaml:"description"`
	// Nodes is how many there are, with PodsPerNode pods each. Every one of DaemonSets has an agent on each of them.
	Nodes       int `yaml:"nodes"`
	DaemonSets  int `yaml:"daemonSets"`
	PodsPerNode int `yaml:"podsPerNode"`
	// AgentsPerConnection share one connection.
	AgentsPerConnection int `yaml:"agentsPerConnection"`
	// ServiceAccounts says which pods have one together.
	ServiceAccounts ServiceAccounts `yaml:"serviceAccounts"`
	// Requestors, if given, is how many pods send for all agents, as those of a deputy do for its users; without it
	// each agent is a pod, on its node.
	Requestors int `yaml:"requestors"`
	// TokensPerAgent are used in turn: every request with another token than the one before, if there are several.
	TokensPerAgent int      `yaml:"tokensPerAgent"`
	Arrivals       Arrivals `yaml:"arrivals"`
	Mix            Mix      `yaml:"mix"`
	// SelfReviews is how often an agent asks what it may before each other request (SelfSubjectAccessReview).
	SelfReviews int `yaml:"selfReviews"`
	// Reflectors has every agent list and watch as client-go does, and come back with its backoff, in place of a mix.
	Reflectors bool `yaml:"reflectors"`
	// WatchList has reflectors begin with a watch that sends what there is, as client-go does by default since 1.35.
	WatchList bool `yaml:"watchList"`
	// Reconnect has every agent come with a new connection.
	Reconnect bool `yaml:"reconnect"`
	// APIServers is how many stand behind a balancer, on each side. Event is what becomes of them in a block.
	APIServers int   `yaml:"apiServers"`
	Event      Event `yaml:"event"`
	// PriorityLevel, if given, is a level of priority and fairness for the agents alone.
	PriorityLevel *PriorityLevel `yaml:"priorityLevel"`
	Authorizer    Authorizer     `yaml:"authorizer"`
	Block         time.Duration  `yaml:"block"` // the length of a block, a multiple of CacheLife
	// Settle, if given, is the first part of a block, in which agents ask in its schedule before their reviews are counted
	// for the steady state. The rest of the block is whole cycles of the schedule.
	Settle time.Duration `yaml:"settle"`
	// Pairs is how many pairs of blocks each comparison has, spread over Starts starts of the servers (5, or as many as
	// pairs if those are fewer).
	Pairs  int `yaml:"pairs"`
	Starts int `yaml:"starts"`
	// Rounds has every side ask once in each of Pairs rounds, whatever comparisons it is in, in place of a pair of blocks for
	// each comparison. Each start has as many rounds as the others.
	Rounds       bool          `yaml:"rounds"`
	Declared     Declared      `yaml:"-"`            // the pairs and starts of the file, which no flag lowers
	WebhookDelay time.Duration `yaml:"webhookDelay"` // what the authorizer adds to each answer
	// LateTolerance is how long after its time a request may leave and not be late.
	LateTolerance time.Duration `yaml:"lateTolerance"`
	Timeout       time.Duration `yaml:"timeout"` // how long an agent waits for an answer
	// Counts says that the profile is about counts alone: no latency is judged, the objectives of Kubernetes neither, nothing
	// is measured before the first block, and requests wait for room in place of being dropped.
	Counts bool `yaml:"counts"`
	// ColdShare is the part of cold variants' requests that find what the server knew of them forgotten; all by default.
	ColdShare   float64      `yaml:"coldShare"`
	Comparisons []Comparison `yaml:"comparisons"`
	Thresholds  []Threshold  `yaml:"thresholds"`
}

// Declared is what a claim was declared to rest on.
type Declared struct{ Pairs, Starts int }

// Arrivals say when requests are sent.
type Arrivals struct {
	Kind pacer.Arrivals `yaml:"kind"`
	// Every is the time between two requests of one agent, on average, however many agents there are; 0 is a single
	// burst. Of waves, in which each agent comes once, it is the time between two of them.
	Every  time.Duration `yaml:"every"`
	Jitter float64       `yaml:"jitter"` // a part of the period, of periodic arrivals
	// MaxUnavailable is the part of the agents that is in a wave, as that of a DaemonSet's rollout.
	MaxUnavailable float64 `yaml:"maxUnavailable"`
	// Opening has all agents ask at once at the beginning, and then each on its own time.
	Opening bool `yaml:"opening"`
}

// Event is what becomes of the API servers in a block.
type Event struct {
	Kind  EventKind     `yaml:"kind"`
	After time.Duration `yaml:"after"`
}

// EventKind names an event.
type EventKind string

// The events. Processes are ended in order and started anew on the same etcd.
const (
	NoEvent EventKind = ""
	// Restart is of the only API server.
	Restart EventKind = "restart"
	// RollingRestart is of one API server after the other; the balancer leaves out the one that is away.
	RollingRestart EventKind = "rolling-restart"
)

// PriorityLevel is a Limited PriorityLevelConfiguration that lends and borrows nothing and rejects what finds no seat.
type PriorityLevel struct {
	ConcurrencyShares int `yaml:"concurrencyShares"`
}

// Authorizer is what decides beside RBAC, and how long it takes.
type Authorizer struct {
	Kind string `yaml:"kind"` // Webhook, the default, or RBAC alone: then the API server counts
	// Cache has the API server remember what the webhook answers, as long as it does by default.
	Cache bool `yaml:"cache"`
	// Sigma, if given, makes the profile's webhookDelay the median of a lognormal distribution.
	Sigma float64 `yaml:"sigma"`
	// Concurrency, if given, is how many reviews the webhook answers at once.
	Concurrency int `yaml:"concurrency"`
	// Bindings is how many more ClusterRoleBindings there are, for RBAC to look through.
	Bindings int `yaml:"bindings"`
}

// Authorizers.
const (
	Webhook = "webhook"
	RBAC    = "rbac"
)

// Text is a line for people; delay is what a webhook takes.
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

// ServiceAccounts says which pods have one together.
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
	// Whoami is the weight of SelfSubjectReviews, the answers of which say whom the API server takes the agent for. Without
	// it they are one request in whoamiShare.
	Whoami *int `yaml:"whoami"`
}

// whoamiShare is one in how many requests asks who the agent is, unless a profile states a weight.
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

// Comparison is of two sides, block by block.
type Comparison struct {
	Name string `yaml:"name"`
	A    Side   `yaml:"a"`
	B    Side   `yaml:"b"`
	// Margins say which difference is none.
	Margins Margins `yaml:"margins"`
}

// Side is a variant on a server.
type Side struct {
	Variant string `yaml:"variant"`
	Server  Server `yaml:"server"`
}

// AA reports whether both sides are the same: such a comparison shows what a difference of nothing looks like.
func (c Comparison) AA() bool {
	return c.A.Variant == c.B.Variant && c.A.Server.Gate() == c.B.Server.Gate()
}

// Margins are parts of the baseline: 0.1 is 10 %. 0 declares none.
type Margins struct {
	P50 float64 `yaml:"p50"`
	P99 float64 `yaml:"p99"`
	// CPU is of the API server's processor time above idle for each request.
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
	// ChecksAtOnce is how many checks of impersonation have to be under way at the authorizer at once, at some moment of a
	// block, and how many reviews of the requests that were impersonated: a server that has each wait for another's answer has
	// one at a time. 0 is not judged.
	ChecksAtOnce int `yaml:"checksAtOnce"`
}

// defaultStarts are those of a file that says nothing about them, and has as many pairs.
const defaultStarts = 5

// Defaults are the values of what a file leaves out.
func Defaults() Profile {
	return Profile{
		DaemonSets: 1, PodsPerNode: 30, ServiceAccounts: Shared, AgentsPerConnection: 1, APIServers: 1,
		Authorizer: Authorizer{Kind: Webhook}, TokensPerAgent: 1, Pairs: 20,
		LateTolerance: 10 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

// Parse reads a profile. name is for messages: every one begins with a place in the file.
func Parse(name string, data []byte) (*Profile, error) {
	p := new(Defaults())
	file, err := scenarios.Decode(name, data, "a load profile", p)
	if err != nil {
		return nil, err
	}
	p.Starts = cmp.Or(p.Starts, min(defaultStarts, max(p.Pairs, 1)))
	p.Declared = Declared{p.Pairs, p.Starts}
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

// Agents is how many ask.
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
		// Between two blocks of a cold variant the server is given time to forget.
		return p.Block + CacheLife
	}
	return p.Arrivals.Every
}

// shareCold is the part of an agent's requests that come when its last check is forgotten, on average in a block that
// begins cold. What comes sooner does not make the server remember longer (cache.Expiring), so that checks are
// forgotten CacheLife after each request that was cold.
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

// Predictable reports whether the reviews of a block follow from its requests: not where nobody but the API server counts.
func (p *Profile) Predictable() bool { return p.Authorizer.Kind != RBAC }

// claimsLatency reports whether the profile has a margin, or a limit of a latency.
func (p *Profile) claimsLatency() bool {
	margins := slices.ContainsFunc(p.Comparisons, func(c Comparison) bool { return c.Margins != Margins{} })
	return margins || slices.ContainsFunc(p.Thresholds, func(t Threshold) bool { return t.P99 != nil })
}

// OneServer reports whether all requests go to one API server that is not restarted in a block.
func (p *Profile) OneServer() bool { return p.APIServers <= 1 && p.Event.Kind == NoEvent }

// Identities is how many pods send, each with tokens of its own: agent a is number a mod that.
func (p *Profile) Identities() int {
	if p.Requestors > 0 {
		return p.Requestors
	}
	return p.Agents()
}

// Accounts is how many service accounts the identities have, and AccountOf the one of an identity.
func (p *Profile) Accounts() int {
	switch {
	case p.ServiceAccounts == PerAgent:
		return p.Identities()
	case p.Requestors > 0:
		return 1
	}
	return p.DaemonSets
}

// AccountOf is the number of an identity's service account. Agents of the first DaemonSet come first, in the order of
// their nodes, then those of the second.
func (p *Profile) AccountOf(identity int) int {
	switch {
	case p.ServiceAccounts == PerAgent:
		return identity
	case p.Requestors > 0:
		return 0
	}
	return identity / p.Nodes
}

// Minted is how many tokens the agents of all variants need, with one of each variant that takes no part.
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
