package run

import (
	"slices"
	"time"

	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Block is a stretch of a storm with one variant on one server.
type Block struct {
	// Pair is the number of the pair or round of blocks that are compared, beginning with 0. Uses are the comparisons
	// that the block is part of: a block of a pair has one, and a block of a round has all that its side is in.
	Pair int   `json:"pair"`
	Uses []Use `json:"uses,omitempty"`
	// Start is the number of the start of the servers, beginning with 0. ServerStarted is when the process of the
	// block's server reports that it began; pairs of one start have the same processes. It is zero if the server does
	// not report it.
	Start         int       `json:"start,omitempty"`
	ServerStarted time.Time `json:"serverStarted,omitzero"`
	// Variant says what the agents do (see profiles), and Server where.
	Variant string `json:"variant"`
	Server  string `json:"server"`
	// Agents is how many agents took part.
	Agents  int       `json:"agents"`
	Started time.Time `json:"started"`
	Length  Duration  `json:"length"` // the planned length

	// Planned is the number of intended requests. Each was Sent or Dropped (never sent, because the generator had no
	// room). Late ones were sent later than intended by more than the profile's tolerance. Done were answered or failed
	// within the block.
	Planned int64 `json:"planned"`
	Sent    int64 `json:"sent"`
	Late    int64 `json:"late"`
	Dropped int64 `json:"dropped"`
	// Retried is the number of answers after which the agent waited, as it was told (Retry-After) or as client-go does
	// by itself, and asked again. Each is also counted in Answers, and in Again by its kind: throttled is 429, and
	// refused is a server that is not there. Reconnects is how many connections had to be opened again within the
	// block.
	Retried    int64            `json:"retried,omitempty"`
	Again      map[string]int64 `json:"again,omitempty"`
	Reconnects int64            `json:"reconnects,omitempty"`
	// FollowsServer means that the server's answers decide when agents ask, because they come back after a restart.
	// Then the sides of a pair do not have the same arrivals.
	FollowsServer bool `json:"followsServer,omitempty"`
	// Answers counts by HTTP status ("200", "403", "429", …) or, without one, by class of error ("timeout",
	// "refused", "reset", "tls", "eof", "other").
	Answers map[string]int64 `json:"answers"`
	// Wrong counts answers that the variant does not expect, by "status: expected …".
	Wrong map[string]int64 `json:"wrong,omitempty"`
	Odd   []string         `json:"odd,omitempty"` // the texts of the first errors of class "other"
	// Latency is from the intended send to the end of the answer, Service from the actual send, and Lag from the
	// intended to the actual send. Latencies by kind of request (list, get, watch) are in Kinds.
	Latency histogram.Histogram            `json:"latency"`
	Service histogram.Histogram            `json:"service"`
	Lag     histogram.Histogram            `json:"lag"`
	Kinds   map[string]histogram.Histogram `json:"kinds,omitempty"`

	// Reviews are what the recorder received, and Attempts what the API server's metrics report
	// (apiserver_impersonation_authorization_attempts_total), both as differences over the block. Unreconciled says how
	// they contradict each other. GivenUp are reviews that had no answer according to the API server: its own client
	// had gone, or the authorizer took too long.
	Reviews      []ReviewCount  `json:"reviews"`
	GivenUp      int64          `json:"reviewsGivenUp,omitempty"`
	Attempts     []AttemptCount `json:"attempts,omitempty"`
	Unreconciled []string       `json:"unreconciled,omitempty"`
	// Background is how many checks of others were subtracted, if only the API server counts.
	Background int64 `json:"background,omitempty"`
	// WebhookCalls is how many reviews the API server sent to its authorization webhooks, as it says itself, less those
	// of others: what it remembers is not among them. Only where the API server alone counts.
	WebhookCalls int64 `json:"webhookCalls,omitempty"`
	// ChecksAtOnce is how many checks of impersonation were under way at the recorder at once, at most, and
	// RequestsAtOnce how many reviews of requests themselves.
	ChecksAtOnce   int64 `json:"checksAtOnce,omitempty"`
	RequestsAtOnce int64 `json:"requestsAtOnce,omitempty"`
	// Predicted is what the oracle says of the block's requests; Smallest is there if the reviews are others, and the
	// run looked for fewer requests that show it.
	Predicted *Prediction `json:"predicted,omitempty"`
	Smallest  *Smallest   `json:"smallest,omitempty"`
	// Identities is whom the server took the agents for; nil if nothing shows it. Ungranted are answers to others than
	// the grants allow.
	Identities *Identities `json:"identities,omitempty"`
	Ungranted  []string    `json:"ungranted,omitempty"`
	// SettledPart is what is counted of the block when its agents have asked for a while. It is nil where all is counted
	// alike.
	Settled *SettledPart `json:"settled,omitempty"`
	// Log is every request, for the prediction. It is not kept.
	Log []Request `json:"log,omitempty"`
	// Timeline has one entry per second of the block.
	Timeline []Second `json:"timeline,omitempty"`

	// CPU time used in the block, and resident memory at its end.
	GeneratorCPU Duration `json:"generatorCPU"` // authzconf's own process: agents and recorder
	GeneratorRSS int64    `json:"generatorRSSBytes"`
	// Cost is what the programs that are under load used in the block, by what they are.
	Cost map[string]Cost `json:"cost,omitempty"`
	// Pressure is what the block shared the machine with. It is nil where nobody knows, as of programs on other machines.
	Pressure *Pressure `json:"pressure,omitempty"`
	// ServedRequests is how long the API server says that it took, by verb and scope, for everybody who asked for what agents
	// ask for.
	Served []ServedRequests `json:"served,omitempty"`
	// Profiles are what these programs did, in the last block of a side.
	Profiles       map[string]CPUProfile `json:"cpuProfiles,omitempty"`
	WebhookLatency histogram.Histogram   `json:"webhookLatency"`        // as the recorder saw it: receipt to answer
	FlowControl    map[string]float64    `json:"flowControl,omitempty"` // differences of apiserver_flowcontrol_* worth showing
}

// Use is the part that a block has in a comparison of the profile.
type Use struct {
	Comparison string `json:"comparison"`
	// Role is "A" (the baseline) or "B".
	Role string `json:"role"`
	// AA says that the comparison has the same variant on both sides, on two servers of the same kind.
	AA bool `json:"aa,omitempty"`
}

// Is reports whether the block is part of a comparison.
func (b *Block) Is(comparison string) bool {
	return slices.ContainsFunc(b.Uses, func(u Use) bool { return u.Comparison == comparison })
}

// Second is what happened in one second of a block.
type Second struct {
	Sent    int64 `json:"sent"`
	Done    int64 `json:"done"`
	Errors  int64 `json:"errors"`
	Reviews int64 `json:"reviews"`
}

// Merge adds what another shard has done in the same block: exactly what one process would have counted. What is
// not a shard's (the place in the run, reviews, the server's costs) is left alone.
func (b *Block) Merge(other *Block) {
	b.Planned += other.Planned
	b.Sent += other.Sent
	b.Late += other.Late
	b.Dropped += other.Dropped
	b.Retried += other.Retried
	b.Reconnects += other.Reconnects
	b.Answers = Sum(b.Answers, other.Answers)
	b.Wrong = Sum(b.Wrong, other.Wrong)
	b.Again = Sum(b.Again, other.Again)
	b.FollowsServer = b.FollowsServer || other.FollowsServer
	b.Log = append(b.Log, other.Log...)
	for _, text := range other.Odd {
		b.NoteOdd(text)
	}
	b.Latency.Merge(&other.Latency)
	b.Service.Merge(&other.Service)
	b.Lag.Merge(&other.Lag)
	for kind, h := range other.Kinds {
		if b.Kinds == nil {
			b.Kinds = map[string]histogram.Histogram{}
		}
		hist := b.Kinds[kind]
		hist.Merge(&h)
		b.Kinds[kind] = hist
	}
	for i, s := range other.Timeline {
		if i == len(b.Timeline) {
			b.Timeline = append(b.Timeline, Second{})
		}
		t := &b.Timeline[i]
		t.Sent += s.Sent
		t.Done += s.Done
		t.Errors += s.Errors
		t.Reviews += s.Reviews
	}
	b.GeneratorCPU += other.GeneratorCPU
	b.GeneratorRSS += other.GeneratorRSS
}

// NoteOdd keeps the first three texts of errors that have no class of their own.
func (b *Block) NoteOdd(text string) {
	if len(b.Odd) < 3 {
		b.Odd = append(b.Odd, text)
	}
}

// Sum adds b to a, which is made if there is something to add.
func Sum[N int64 | float64](a, b map[string]N) map[string]N {
	for k, n := range b {
		if a == nil {
			a = map[string]N{}
		}
		a[k] += n
	}
	return a
}
