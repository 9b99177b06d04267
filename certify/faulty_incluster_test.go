package certify

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// hiddenFault is an authorizer whose fault shows only if an API server asks it, or if its policy changes.
type hiddenFault struct {
	// ID, Description and Finding mean the same as in faultyAuthorizer.
	ID, Description, Finding string

	make func(h *policy.Holder) http.Handler
}

// Handler returns the webhook for a policy that can be replaced.
func (r hiddenFault) Handler(h *policy.Holder) http.Handler { return r.make(h) }

// hiddenFaults are the faulty authorizers that direct mode cannot reject.
func hiddenFaults() []hiddenFault {
	return []hiddenFault{
		{"scales-to-zero", "after two seconds without a review it takes six to answer again", "impersonation-differs", scalesToZero},
		{"remembers-what-was-allowed", "what was allowed once is allowed for ten minutes more", "revoked-too-late", remembers(scenarios.Allow)},
		{"remembers-what-was-refused", "what was not allowed once is not allowed for ten minutes more", "granted-too-late", remembers(scenarios.NoOpinion)},
		{"never-reloads", "the policy that it was started with stays", "revoked-too-late", func(h *policy.Holder) http.Handler {
			return reference.Handler(h.Load().Decide)
		}},
		{"reload-forgets", "a policy that is loaded later takes everything away", "reload-changes-others", func(h *policy.Holder) http.Handler {
			first := h.Load()
			return reference.Handler(func(r review) scenarios.Decision {
				if now := h.Load(); now == first || len(now.Grants) == len(first.Grants) {
					return now.Decide(r)
				}
				return scenarios.NoOpinion
			})
		}},
	}
}

// scalesToZero answers 503 while it starts after a pause.
func scalesToZero(h *policy.Holder) http.Handler {
	const idle, start = 2 * time.Second, 6 * time.Second
	var (
		mu          sync.Mutex
		last, ready time.Time
	)
	right := reference.Handler(h.Decide)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		now := time.Now()
		if !last.IsZero() && now.Sub(last) > idle {
			ready = now.Add(start)
		}
		last = now
		starting := now.Before(ready)
		mu.Unlock()
		if starting {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		right.ServeHTTP(w, req)
	})
}

// keyOf returns everything that a review is about.
func keyOf(r review) string {
	raw, _ := json.Marshal(r) // a structure of strings can always be encoded
	return string(raw)
}

// remembers makes an authorizer that remembers one kind of decision, under a correct key.
func remembers(kind scenarios.Decision) func(*policy.Holder) http.Handler {
	const kept = 10 * time.Minute
	return func(h *policy.Holder) http.Handler {
		var known sync.Map
		return reference.Handler(func(r review) scenarios.Decision {
			key := keyOf(r)
			if until, ok := known.Load(key); ok && time.Now().Before(until.(time.Time)) {
				return kind
			}
			d := h.Decide(r)
			if d == kind {
				known.Store(key, time.Now().Add(kept))
			}
			return d
		})
	}
}
