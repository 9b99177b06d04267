package run

import "time"

// SettledPart is the part of a block that comes when its agents have asked for a while in the same schedule. The reviews
// per request of the steady state are its Reviews, divided by Sent (package judge, measureReviews).
type SettledPart struct {
	// After is how long the block had run.
	After Duration `json:"after"`
	// Sent is how many requests were sent from then on, and First how many of these were the first of their agent. The
	// model counts them while it goes through the log (population.History.PredictSettled), so that both are 0 in a block
	// that is not predicted.
	Sent  int64 `json:"sent"`
	First int64 `json:"firstContacts,omitempty"`
	// Reviews are those that the recorder received from then on. They include reviews of requests that were sent
	// before; about as many are missing at the end of the block.
	Reviews []ReviewCount `json:"reviews"`
	// Checks are the reviews that are predicted for the requests that Sent counts.
	Checks []CheckRange `json:"predicted,omitempty"`
}

// Count records a request of the block that was sent, and whether it was its agent's first. It reports whether the
// request counts.
func (s *SettledPart) Count(r Request, first bool) bool {
	if s == nil || r.From < time.Duration(s.After) {
		return false
	}
	s.Sent++
	if first {
		s.First++
	}
	return true
}
