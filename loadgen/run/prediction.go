package run

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Population is who takes part in a run.
type Population struct {
	// Every one of DaemonSets has an agent on each of Nodes, which have PodsPerNode pods to ask for.
	Nodes       int `json:"nodes"`
	PodsPerNode int `json:"podsPerNode"`
	DaemonSets  int `json:"daemonSets"`
	// Requestors is how many pods send for all agents, 0 if each is a pod. All pods together have ServiceAccounts.
	Requestors      int `json:"requestors,omitempty"`
	ServiceAccounts int `json:"serviceAccounts"`
	// Arrivals is how requests are spread over time; an agent asks Every so often, or once a block.
	Arrivals string   `json:"arrivals"`
	Every    Duration `json:"every,omitempty"`
}

// String is a line for people.
func (p Population) String() string {
	several := func(n int, noun string) string {
		if n != 1 {
			noun += "s"
		}
		return fmt.Sprint(n, " ", noun)
	}
	who := fmt.Sprintf("%s (%s on %s)", several(p.Nodes*p.DaemonSets, "agent"), several(p.DaemonSets, "DaemonSet"), several(p.Nodes, "node"))
	if p.Requestors > 0 {
		who = fmt.Sprintf("%s, for which %s", several(p.Nodes, "agent"), several(p.Requestors, "pod")+" send")
	}
	how := "once a block"
	if p.Every > 0 {
		how = "every " + time.Duration(p.Every).String()
	}
	return fmt.Sprintf("%s with %s; each asks %s (%s)", who, several(p.ServiceAccounts, "ServiceAccount"), how, p.Arrivals)
}

// Answers that say how far a request came: Throttled was impersonated and not authorized, Unready was authorized and
// found a server that had not read its storage yet.
const (
	Throttled = "429"
	Unready   = "429 of the storage"
)

// Asked is one request as it was sent: one that was given up or answered 429, and sent again, is two.
type Asked struct {
	Agent int32 `json:"a"`
	Kind  int32 `json:"k"`
	Turn  int   `json:"t"`
	// From and To are when it was sent and answered, since the block's start.
	From   time.Duration `json:"f"`
	To     time.Duration `json:"e"`
	Answer string        `json:"s,omitempty"` // the status, or class of error, if it is not what was expected
}

// Prediction is the oracle's, for the requests that were sent in a block and what the server had been asked before.
type Prediction struct {
	// Requests were sent; First of them were the first of their agent to this server. Of Unsure it is not known how far
	// they came: they had no answer, or an unexpected one. Their checks may be there or not.
	Requests int64 `json:"requests,omitempty"`
	First    int64 `json:"firstContacts,omitempty"`
	Unsure   int64 `json:"unsure,omitempty"`
	Asked    int   `json:"agentsAsked,omitempty"` // how many agents sent them, each Seldom to Often times
	Seldom   int   `json:"fewestOfAnAgent,omitempty"`
	Often    int   `json:"mostOfAnAgent,omitempty"`
	// Checks are the reviews, in a range: requests under way at once may each ask what one of them could have remembered.
	Checks []CheckRange `json:"checks,omitempty"`
}

// CheckRange is how many reviews of a kind are predicted.
type CheckRange struct {
	ReviewKind
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// Range are the fewest and the most reviews.
func (p *Prediction) Range() (low, high int64) {
	for _, c := range p.Checks {
		low, high = low+c.Low, high+c.High
	}
	return low, high
}

// Smallest is the shortest schedule found that is not as predicted. It began when the server had forgotten all checks.
type Smallest struct {
	Requests []string `json:"requests"` // the first of its requests, of Count
	Count    int      `json:"count"`
	Text     string   `json:"text"` // what is not as predicted
}

// Unpredicted says which reviews of a block are not as many as predicted. One that the API server gave up may have
// reached the recorder or not, or only one end of the chain. Where nothing can be said, why is not empty.
func (b *Block) Unpredicted() (list []string, why string) {
	switch p := b.Predicted; {
	case p == nil || p.Requests == 0:
		return nil, "not predicted"
	case b.Sent+b.Retried != p.Requests:
		return nil, fmt.Sprintf("%d requests were sent, and %d are in the log", b.Sent+b.Retried, p.Requests)
	}
	seen, given := map[ReviewKind]int64{}, ""
	if b.GivenUp > 0 {
		given = fmt.Sprintf(", and the API server gave up %d", b.GivenUp)
	}
	for _, r := range b.Reviews {
		seen[r.ReviewKind] += r.Count
	}
	for _, c := range b.Predicted.Checks {
		if n := seen[c.ReviewKind]; n < c.Low-b.GivenUp || n > c.High+b.GivenUp {
			list = append(list, fmt.Sprintf("%s %s %s: %d reviews, predicted %d to %d%s", c.Mode, c.Verb, c.Decision, n, c.Low, c.High, given))
		}
		delete(seen, c.ReviewKind)
	}
	for _, r := range b.Reviews {
		if n := seen[r.ReviewKind]; n > b.GivenUp {
			list = append(list, fmt.Sprintf("%s %s %s: %d reviews, predicted none%s", r.Mode, r.Verb, r.Decision, n, given))
		}
	}
	return list, ""
}

// Contradicted says in which mode the recorder has seen another number of checks than the API server has counted. One that the
// server gave up may have arrived or not, at both ends or one.
func (b *Block) Contradicted() (list []string) {
	type cell struct {
		mode    string
		allowed bool
	}
	seen, said := map[cell]int64{}, map[cell]int64{}
	for _, r := range b.Reviews {
		if r.Mode != RequestMode {
			seen[cell{r.Mode, r.Decision == "Allow"}] += r.Count
		}
	}
	for _, a := range b.Attempts {
		c := cell{a.Mode, a.Decision == "allowed"}
		said[c] += int64(math.Round(a.Count))
		seen[c] += 0
	}
	for c, n := range seen {
		if n < said[c]-b.GivenUp || n > said[c]+b.GivenUp {
			list = append(list, fmt.Sprintf("mode %s, %s: the recorder received %d reviews, the API server counted %d attempts, and gave up %d",
				c.mode, map[bool]string{true: "allowed", false: "not allowed"}[c.allowed], n, said[c], b.GivenUp))
		}
	}
	slices.Sort(list)
	return list
}
