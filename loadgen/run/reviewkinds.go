package run

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// RequestMode is the mode of reviews that are not about impersonation but about the request itself.
const RequestMode = "request"

// Unseen is the decision of reviews about which the back does not tell, because the API server remembers its answers.
const Unseen = "unseen"

// ReviewKind is what access reviews are counted by.
type ReviewKind struct {
	// Mode is associated-node, arbitrary-node, serviceaccount, user-info, legacy, or request for the check of the
	// request itself. Verb is the verb of the review (impersonate:user-info, impersonate-on:user-info:list,
	// impersonate, list, …).
	Mode     string `json:"mode"`
	Verb     string `json:"verb"`
	Decision string `json:"decision"` // Allow, Deny or NoOpinion
}

// Compare orders kinds.
func (k ReviewKind) Compare(other ReviewKind) int {
	return cmp.Or(cmp.Compare(k.Mode, other.Mode), cmp.Compare(k.Verb, other.Verb), cmp.Compare(k.Decision, other.Decision))
}

// ReviewCount is how many access reviews of a kind the recorder received. Package storm counts them.
type ReviewCount struct {
	ReviewKind
	Count int64 `json:"count"`
}

// AttemptCount is one series of the API server's counter.
type AttemptCount struct {
	Mode     string  `json:"mode"`
	Decision string  `json:"decision"`
	Count    float64 `json:"count"`
}

// CompareAttempts returns the modes in which the recorder has seen another number of checks than the API server has
// counted. A check that the server gave up may have arrived at none, one or both ends.
func (b *Block) CompareAttempts() (differences []string) {
	type cell struct {
		mode, decision string
	}
	const allowed, notAllowed = "allowed", "not allowed"
	received, counted := map[cell]int64{}, map[cell]int64{}
	for _, r := range b.Reviews {
		if r.Mode == RequestMode {
			continue
		}
		c := cell{r.Mode, notAllowed}
		if r.Decision == "Allow" {
			c.decision = allowed
		}
		received[c] += r.Count
	}
	for _, a := range b.Attempts {
		c := cell{a.Mode, notAllowed}
		if a.Decision == allowed {
			c.decision = allowed
		}
		counted[c] += int64(math.Round(a.Count))
		received[c] += 0
	}
	for c, n := range received {
		if n < counted[c]-b.GivenUp || n > counted[c]+b.GivenUp {
			differences = append(differences,
				fmt.Sprintf("mode %s, %s: the recorder received %d reviews, the API server counted %d attempts, and gave up %d",
					c.mode, c.decision, n, counted[c], b.GivenUp),
			)
		}
	}
	slices.Sort(differences)
	return differences
}
