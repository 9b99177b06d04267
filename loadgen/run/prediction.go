package run

import (
	"fmt"
	"time"
)

// Answers that say how far a request came: Throttled was impersonated and not authorized, Unready was authorized and
// found a server that had not read its storage yet.
const (
	Throttled = "429"
	Unready   = "429 of the storage"
)

// Request is one request as it was sent: one that was given up or answered 429, and sent again, is two.
type Request struct {
	Agent int32 `json:"a"`
	Kind  int32 `json:"k"`
	Turn  int   `json:"t"`
	// From and To are when it was sent and answered, since the block's start.
	From   time.Duration `json:"f"`
	To     time.Duration `json:"e"`
	Answer string        `json:"s,omitempty"` // the status, or class of error, if it is not what was expected
	// Said is whom the API server took the agent for, of a request that asks it.
	Said string `json:"w,omitempty"`
}

// Prediction is the oracle's, for the requests that were sent in a block and what the server had been asked before. It
// is made by population.History.
type Prediction struct {
	// Requests were sent; First of them were the first of their agent to this server. Of Unsure it is not known how far
	// they came: they had no answer, or an unexpected one. Their checks may be there or not.
	Requests int64 `json:"requests,omitempty"`
	First    int64 `json:"firstContacts,omitempty"`
	Unsure   int64 `json:"unsure,omitempty"`
	// Agents is how many agents sent them, each Fewest to Most times.
	Agents int `json:"agents,omitempty"`
	Fewest int `json:"fewestOfAnAgent,omitempty"`
	Most   int `json:"mostOfAnAgent,omitempty"`
	// Checks are the reviews, in a range: requests under way at once may each ask what one of them could have remembered.
	Checks []CheckRange `json:"checks,omitempty"`
}

// CheckRange is how many reviews of a kind are predicted.
type CheckRange struct {
	ReviewKind
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// Range returns the fewest and the most reviews.
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

// ComparePrediction returns which reviews of a block are not as many as predicted. One that the API server gave up may
// have reached the recorder or not, or only one end of the chain. Where nothing can be said, why is not empty.
func (b *Block) ComparePrediction() (differences []string, why string) {
	switch p := b.Predicted; {
	case p == nil || p.Requests == 0:
		return nil, "not predicted"
	case b.Sent+b.Retried != p.Requests:
		return nil, fmt.Sprintf("%d requests were sent, and %d are in the log", b.Sent+b.Retried, p.Requests)
	}
	received, given := map[ReviewKind]int64{}, ""
	if b.GivenUp > 0 {
		given = fmt.Sprintf(", and the API server gave up %d", b.GivenUp)
	}
	for _, r := range b.Reviews {
		received[r.ReviewKind] += r.Count
	}
	for _, c := range b.Predicted.Checks {
		if n := received[c.ReviewKind]; n < c.Low-b.GivenUp || n > c.High+b.GivenUp {
			differences = append(differences,
				fmt.Sprintf("%s %s %s: %d reviews, predicted %d to %d%s", c.Mode, c.Verb, c.Decision, n, c.Low, c.High, given),
			)
		}
		delete(received, c.ReviewKind)
	}
	for _, r := range b.Reviews {
		if n := received[r.ReviewKind]; n > b.GivenUp {
			differences = append(differences, fmt.Sprintf("%s %s %s: %d reviews, predicted none%s", r.Mode, r.Verb, r.Decision, n, given))
		}
	}
	return differences, ""
}
