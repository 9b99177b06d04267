package certify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// backend is how long the backend of some faulty authorizers takes.
const backend = 2 * time.Millisecond

// flight is a decision that is being made, for all who ask for it.
type flight struct {
	done chan struct{}
	d    scenarios.Decision
}

// sharing is an authorizer that makes one decision for all reviews under way whose keys are the same.
func sharing(key func(review) any) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var mu sync.Mutex
		flights := map[string]*flight{}
		return func(r review) scenarios.Decision {
			raw, err := json.Marshal(key(r))
			if err != nil {
				return right(r)
			}
			mu.Lock()
			f := flights[string(raw)]
			if f != nil {
				mu.Unlock()
				<-f.done
				return f.d
			}
			f = &flight{done: make(chan struct{})}
			flights[string(raw)] = f
			mu.Unlock()
			time.Sleep(backend)
			f.d = right(r)
			mu.Lock()
			delete(flights, string(raw))
			mu.Unlock()
			close(f.done)
			return f.d
		}
	}
}

// swapping is an authorizer in which one review in 20 that meets another one takes its answer.
func swapping(right reference.Decider) reference.Decider {
	var last atomic.Pointer[scenarios.Decision]
	var under, n atomic.Int64
	return func(r review) scenarios.Decision {
		met := under.Add(1) > 1
		defer under.Add(-1)
		d := right(r)
		other := last.Swap(&d)
		time.Sleep(backend)
		if met && other != nil && n.Add(1)%20 == 0 {
			return *other
		}
		return d
	}
}

// cutting is an authorizer whose answers are cut when many reviews are under way.
func cutting(right http.Handler, _ *policy.Policy) http.Handler {
	var under atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rec := httptest.NewRecorder()
		right.ServeHTTP(rec, req) // with the body, whose last byte comes with that of others
		before := under.Add(1)
		defer under.Add(-1)
		if before > 1 {
			time.Sleep(backend)
		}
		body := rec.Body.Bytes()
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(rec.Code)
		if before > busy {
			body = body[:len(body)/2]
		}
		_, _ = w.Write(body)
	})
}

// sleepy is an authorizer that allows the first review after some time without any.
func sleepy(idle time.Duration) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var last atomic.Int64
		return func(r review) scenarios.Decision {
			now := time.Now().UnixNano()
			before := last.Swap(now)
			if before > 0 && time.Duration(now-before) > idle {
				return scenarios.Allow
			}
			return right(r)
		}
	}
}

// opening is an authorizer that allows everything for a while, after a second.
func opening(length time.Duration) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var began atomic.Int64
		return func(r review) scenarios.Decision {
			began.CompareAndSwap(0, time.Now().UnixNano())
			since := time.Duration(time.Now().UnixNano()-began.Load()) - time.Second
			if since > 0 && since < length {
				return scenarios.Allow
			}
			return right(r)
		}
	}
}
