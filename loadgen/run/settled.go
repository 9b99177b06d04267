package run

import "time"

// Settled is the part of a block that comes when its agents have asked for a while in the same schedule.
type Settled struct {
	// After is how long the block had gone on.
	After Duration `json:"after"`
	// Sent counts the requests that were sent from then on, First those of them that were the first of their agent.
	Sent  int64 `json:"sent"`
	First int64 `json:"firstContacts,omitempty"`
	// Reviews are those that the recorder received from then on. One that belongs to a request which was sent before is
	// among them, and at the end of the block there are as many that are.
	Reviews []ReviewCount `json:"reviews"`
	// Checks are the reviews that are predicted for the requests that Sent counts.
	Checks []CheckRange `json:"predicted,omitempty"`
}

// Count notes a request of the block that was sent, and whether it was its agent's first. It reports whether it counts.
func (s *Settled) Count(r Request, first bool) bool {
	if s == nil || r.From < time.Duration(s.After) {
		return false
	}
	s.Sent++
	if first {
		s.First++
	}
	return true
}
