package certify

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// busy is how many reviews at the same time are too many for some faulty authorizers.
const busy = 2 * parallelAskers

// inFlight counts the reviews that are being answered, and gives each some work, so that they overlap.
func inFlight(wrong func(right reference.Decider, r review, under int64) scenarios.Decision) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var under atomic.Int64
		return func(r review) scenarios.Decision {
			n := under.Add(1)
			defer under.Add(-1)
			runtime.Gosched() // lets other reviews in, even on one processor
			if under.Load() > parallelAskers {
				time.Sleep(20 * time.Millisecond)
			}
			return wrong(right, r, n)
		}
	}
}

// after makes a faulty authorizer that decides otherwise after n reviews.
func after(n int64, then func(right reference.Decider, r review) scenarios.Decision) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var seen atomic.Int64
		return func(r review) scenarios.Decision {
			if seen.Add(1) > n {
				return then(right, r)
			}
			return right(r)
		}
	}
}

// stateFaults are wrong where more than one review matters, or the size of a review.
func stateFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		decides("fails-open-when-busy", "wrong-under-concurrency", "with many reviews under way its backend times out, and it allows", inFlight(func(right reference.Decider, r review, under int64) scenarios.Decision {
			if under > busy {
				return scenarios.Allow
			}
			return right(r)
		})),
		decides("fails-closed-when-busy", "wrong-under-concurrency", "with many reviews under way it has no opinion about anything", inFlight(func(right reference.Decider, r review, under int64) scenarios.Decision {
			if under > busy {
				return scenarios.NoOpinion
			}
			return right(r)
		})),
		decides("race", "wrong-under-concurrency", "the review is kept in a place that all requests share", func(right reference.Decider) reference.Decider {
			var shared atomic.Pointer[review]
			slow := inFlight(func(right reference.Decider, _ review, _ int64) scenarios.Decision { return right(*shared.Load()) })(right)
			return func(r review) scenarios.Decision {
				shared.Store(&r)
				return slow(r)
			}
		}),
		decides("shares-answers", "wrong-under-concurrency", "reviews of one user and verb that are under way together get one answer", sharing(func(r review) any {
			return []string{r.User, verbOf(r)}
		})),
		decides("swaps-answers", "wrong-under-concurrency", "of two reviews that are under way together each gets the other's answer", swapping),
		decides("opens-when-crowded", "wrong-under-concurrency", "with more than 100 reviews under way everything is allowed", inFlight(func(right reference.Decider, r review, under int64) scenarios.Decision {
			if under > 100 {
				return scenarios.Allow
			}
			return right(r)
		})),
		speaks("cuts-when-busy", "closes-the-connection", "with many reviews under way answers end in the middle", cutting),
		decides(
			"opens-after-silence",
			"wrong-after-silence",
			"the first review after 300 ms without any is allowed",
			sleepy(300*time.Millisecond),
		),
		decides("opens-for-a-while", reasonTransient, "for half a second everything is allowed", opening(500*time.Millisecond)),
		decides(
			"drifts-open",
			"drifts",
			"after 10,000 reviews everything is allowed",
			after(10_000, func(reference.Decider, review) scenarios.Decision { return scenarios.Allow }),
		),
		decides(
			"drifts-closed",
			"drifts",
			"after 10,000 reviews nothing is allowed",
			after(10_000, func(reference.Decider, review) scenarios.Decision { return scenarios.NoOpinion }),
		),
		decides(
			"answers-slowly",
			"answers-slowly",
			"some answers take longer than an API server waits",
			func(right reference.Decider) reference.Decider {
				var seen atomic.Int64
				return func(r review) scenarios.Decision {
					if seen.Add(1)%2500 == 0 {
						time.Sleep(3500 * time.Millisecond)
					}
					return right(r)
				}
			},
		),
	}
}

// oddFaults break when they get something that is not an ordinary review.
func oddFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		speaks(
			"bad-request-allowed",
			"bad-request-accepted",
			"what it cannot read it allows",
			func(_ http.Handler, p *policy.Policy) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					body, _ := io.ReadAll(io.LimitReader(req.Body, 4<<20))
					version, spec, err := reference.Decode(body)
					if err != nil {
						_, _ = w.Write(reference.Answer(reference.V1, scenarios.Allow))
						return
					}
					_, _ = w.Write(reference.Answer(version, p.Decide(spec)))
				})
			},
		),
		speaks(
			"other-kinds-answered",
			"bad-request-accepted",
			"every kind is answered as if it were a SubjectAccessReview",
			early(func(_ http.ResponseWriter, body []byte) ([]byte, bool) {
				return bytes.Replace(body, []byte(`"SelfSubjectAccessReview"`), []byte(`"SubjectAccessReview"`), 1), false
			}),
		),
		speaks(
			"dies-of-bad-request",
			"dies-of-a-bad-request",
			"after a request that it cannot read it answers nothing any more",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				var dead atomic.Bool
				return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
					if _, _, err := reference.Decode(body); err != nil {
						dead.Store(true)
					}
					if dead.Load() {
						http.Error(w, "crashed", http.StatusInternalServerError)
					}
					return body, dead.Load()
				})(right, nil)
			},
		),
		speaks(
			"warms-up",
			"does-not-allow-what-is-granted",
			"until it has its policy, for 50 reviews, it has no opinion",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				var seen atomic.Int64
				return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
					cold := seen.Add(1) <= 50
					if cold {
						_, _ = w.Write(reference.Answer(reference.V1, scenarios.NoOpinion))
					}
					return body, cold
				})(right, nil)
			},
		),
		speaks(
			"stale-replica",
			"drifts",
			"behind the fourth connection, and later ones, is a replica without a policy",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				var mu sync.Mutex
				var known []string
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					mu.Lock()
					if !slices.Contains(known, req.RemoteAddr) {
						known = append(known, req.RemoteAddr)
					}
					which := slices.Index(known, req.RemoteAddr)
					mu.Unlock()
					if which < 3 {
						right.ServeHTTP(w, req)
						return
					}
					reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion }).ServeHTTP(w, req)
				})
			},
		),
		speaks(
			"hangs-up",
			"no-keep-alive",
			"the connection is closed after every answer",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					w.Header().Set("Connection", "close")
					right.ServeHTTP(w, req)
				})
			},
		),
		speaks(
			"aborts",
			"closes-the-connection",
			"one request in 500 ends in the middle",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				var seen atomic.Int64
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if seen.Add(1)%500 == 0 {
						panic(http.ErrAbortHandler)
					}
					right.ServeHTTP(w, req)
				})
			},
		),
		speaks(
			"large-refused",
			"large-reviews",
			"reviews over 64 KiB are refused",
			early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
				if len(body) > 64<<10 {
					http.Error(w, "too large", http.StatusRequestEntityTooLarge)
				}
				return body, len(body) > 64<<10
			}),
		),
		decides(
			"groups-truncated",
			"large-reviews",
			"only the first 64 groups of a user count",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					r.Groups = r.Groups[:min(len(r.Groups), 64)]
					return right(r)
				}
			},
		),
	}
}
