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

// backend is how long the backend of some faulty authorizers takes to decide.
const backend = 2 * time.Millisecond

// flight is a decision that is being made for everybody who asks for it meanwhile.
type flight struct {
	done chan struct{}
	d    scenarios.Decision
}

// sharing makes an authorizer that makes one decision for all reviews with the same key at the same time.
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

// swapping makes an authorizer that gives one in 20 reviews the answer of another review that it meets.
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

// cutting makes an authorizer that truncates its answers when it gets many reviews at the same time.
func cutting(right http.Handler, _ *policy.Policy) http.Handler {
	var under atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rec := httptest.NewRecorder()
		right.ServeHTTP(rec, req) // reads the body, whose last byte comes together with that of others
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

// sleepy makes an authorizer that allows the first review after a pause.
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

// opening makes an authorizer that allows everything for a while, beginning after a second.
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
