package certify

import (
	"bytes"
	"hash/fnv"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/scenarios"
)

// adversaries are wrong authorizers that were written to be certified nevertheless, from the printed policy alone.
// Their mistakes concern size, order, encoding, time, or things that are rarely looked at. None of them may be granted
// every level.
var adversaries = map[string]func(right reference.Decider, grants []rule) reference.Decider{
	"adds system:authenticated": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			s.Groups = append(slices.Clone(s.Groups), "system:authenticated")
			return right(s)
		}
	},
	"adds system:serviceaccounts": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if strings.HasPrefix(s.User, "system:serviceaccount:") {
				s.Groups = append(slices.Clone(s.Groups), "system:serviceaccounts")
			}
			return right(s)
		}
	},
	"drops groups of the system": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g string) bool { return g == "system:authenticated" || g == "system:unauthenticated" })
			return right(s)
		}
	},
	"refuses more than 20 groups":     limit(20, func(s spec) int { return len(s.Groups) }),
	"refuses more than 50 groups":     limit(50, func(s spec) int { return len(s.Groups) }),
	"refuses more than 32 extra keys": limit(32, func(s spec) int { return len(s.Extra) }),
	"refuses more than 1 KiB of names": limit(1024, func(s spec) int {
		return len(s.User) + len(strings.Join(s.Groups, ""))
	}),
	"the first 32 groups": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			s.Groups = s.Groups[:min(len(s.Groups), 32)]
			return right(s)
		}
	},
	"the last 16 groups by name": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			groups := slices.Sorted(slices.Values(s.Groups))
			s.Groups = groups[max(0, len(groups)-16):]
			return right(s)
		}
	},
	"the first 100 grants of a user": func(_ reference.Decider, grants []rule) reference.Decider {
		var kept []rule
		of := map[string]int{}
		for _, g := range grants {
			if of[g.Subject.User]++; of[g.Subject.User] <= 100 || g.Subject.User == "" {
				kept = append(kept, g)
			}
		}
		return newProduct().decider(kept)
	},
	"the first 64 names of a grant": func(_ reference.Decider, grants []rule) reference.Decider {
		kept := slices.Clone(grants)
		for i := range kept {
			kept[i].Names = kept[i].Names[:min(len(kept[i].Names), 64)]
		}
		return newProduct().decider(kept)
	},
	"the last grant of a user and verb": func(_ reference.Decider, grants []rule) reference.Decider {
		kept := map[string]rule{}
		for _, g := range grants {
			kept[g.Subject.User+"\x00"+g.Subject.Group+"\x00"+strings.Join(g.Verbs, ",")] = g
		}
		return newProduct().decider(slices.Collect(maps.Values(kept)))
	},
	"who may in a namespace may see it": func(right reference.Decider, grants []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if a := s.ResourceAttributes; a != nil && a.Resource == "namespaces" && a.Verb == "get" &&
				slices.ContainsFunc(grants, func(g rule) bool {
					return g.Subject.User == s.User && g.Namespace != "" && g.Namespace == a.Name
				}) {
				return scenarios.Allow
			}
			return right(s)
		}
	},
	"refused once, refused again": func(right reference.Decider, _ []rule) reference.Decider {
		refused := map[string]bool{}
		return func(s spec) scenarios.Decision {
			d := right(s)
			if d != scenarios.Allow {
				refused[s.User] = true
			} else if refused[s.User] {
				return scenarios.NoOpinion
			}
			return d
		}
	},
	"a cache by 16 bits": hashed(16),
	"a cache by 20 bits": hashed(20),
	"the decision before the last": func(right reference.Decider, _ []rule) reference.Decider {
		last, times := map[string]scenarios.Decision{}, map[string]int{}
		return func(s spec) scenarios.Decision {
			d := right(s)
			before, known := last[s.User]
			if last[s.User] = d; known && times[s.User] > 3 {
				d = before
			}
			times[s.User]++
			return d
		}
	},
	"verbs of paths in lower case": alsoAs(func(s *spec) bool {
		if s.NonResourceAttributes == nil {
			return false
		}
		s.NonResourceAttributes.Verb = strings.ToLower(s.NonResourceAttributes.Verb)
		return true
	}),
	"patch of a status is its update": alsoAs(func(s *spec) bool {
		fits := s.ResourceAttributes != nil && s.ResourceAttributes.Subresource == "status" && s.ResourceAttributes.Verb == "patch"
		if fits {
			s.ResourceAttributes.Verb = "update"
		}
		return fits
	}),
	"a uid is one's own": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if a := s.ResourceAttributes; a != nil && a.Resource == "uids" && a.Name != "" && a.Name == s.UID {
				return scenarios.Allow
			}
			return right(s)
		}
	},
	"pods' tokens are refused": limit(0, func(s spec) int { return len(s.Extra["authentication.kubernetes.io/pod-name"]) }),
	"names do not matter for create": func(_ reference.Decider, grants []rule) reference.Decider {
		p := newProduct()
		right := p.name
		p.name = func(g rule, s spec) bool {
			return s.ResourceAttributes.Name == "" && s.ResourceAttributes.Verb == "create" ||
				right(g, s)
		}
		return p.decider(grants)
	},
	"*/* is everything": func(_ reference.Decider, grants []rule) reference.Decider {
		p := newProduct()
		right := p.resource
		p.resource = func(g rule, s spec) bool { return slices.Contains(g.Resources, "*/*") || right(g, s) }
		return p.decider(grants)
	},
	"yes is true": func(_ reference.Decider, grants []rule) reference.Decider {
		kept := slices.Clone(grants)
		for i, g := range kept {
			kept[i].Names = slices.Clone(g.Names)
			for k, name := range g.Names {
				if name == "yes" || name == "on" {
					kept[i].Names[k] = "true"
				}
			}
		}
		return newProduct().decider(kept)
	},
	"a cache with groups joined": func(right reference.Decider, _ []rule) reference.Decider {
		known := map[string]scenarios.Decision{}
		return func(s spec) scenarios.Decision {
			groups := strings.Join(s.Groups, ",")
			key := s
			key.Groups, key.Extra, key.UID = []string{groups}, nil, ""
			body, _ := Question{Spec: key}.body()
			if _, ok := known[string(body)]; !ok {
				known[string(body)] = right(s)
			}
			return known[string(body)]
		}
	},
	"numbers are compared": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if a := s.ResourceAttributes; a != nil {
				if n, err := strconv.ParseFloat(a.Name, 64); err == nil {
					a := *a
					a.Name, s.ResourceAttributes = strconv.FormatFloat(n, 'f', -1, 64), &a
				}
			}
			return right(s)
		}
	},
	"bytes of Latin-1": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			s.User = strings.Map(func(r rune) rune { return r & 0xff }, s.User)
			return right(s)
		}
	},
	"1 in 5,000 is allowed": func(right reference.Decider, _ []rule) reference.Decider {
		n := 0
		return func(s spec) scenarios.Decision {
			if n++; n%5000 == 0 {
				return scenarios.Allow
			}
			return right(s)
		}
	},
}

// alsoAs makes an authorizer that also allows a review if it would allow a changed one.
func alsoAs(change func(s *spec) bool) func(reference.Decider, []rule) reference.Decider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			other := s.DeepCopy()
			if right(s) == scenarios.Allow ||
				change(other) && right(*other) == scenarios.Allow {
				return scenarios.Allow
			}
			return scenarios.NoOpinion
		}
	}
}

// limit makes an authorizer that has no opinion if a size is larger than some number.
func limit(most int, size func(spec) int) func(reference.Decider, []rule) reference.Decider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if size(s) > most {
				return scenarios.NoOpinion
			}
			return right(s)
		}
	}
}

// hashed makes an authorizer that remembers decisions by the given number of bits of a hash.
func hashed(bits uint) func(reference.Decider, []rule) reference.Decider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		known := map[uint64]scenarios.Decision{}
		return func(s spec) scenarios.Decision {
			h := fnv.New64a()
			body, _ := Question{Spec: s}.body()
			_, _ = h.Write(body)
			key := h.Sum64() >> (64 - bits)
			if _, ok := known[key]; !ok {
				known[key] = right(s)
			}
			return known[key]
		}
	}
}

// TestAdversariesAreRejected asks those that decide wrongly, without connections.
func TestAdversariesAreRejected(t *testing.T) {
	seeds := []int64{1}
	if sample.IsEverything() {
		seeds = []int64{1, 2, 3}
	}
	t.Parallel()
	for _, seed := range seeds {
		b := plan(t, seed)
		right := b.Policy.Decide
		for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(adversaries))) {
			mistaken := adversaries[name]
			if firstWrong(b, mistaken(right, b.Policy.Grants)) == nil {
				t.Errorf("seed %d: %s: every level is granted", seed, name)
			}
		}
	}
}

// wireAdversaries are wrong in how they read reviews or in when they answer.
var wireAdversaries = map[string]func(right http.Handler) http.Handler{
	"the spec twice, the first counts": func(right http.Handler) http.Handler {
		return early(func(_ http.ResponseWriter, body []byte) ([]byte, bool) {
			return bytes.Replace(body, []byte(`"groups":[`), []byte(`"groups":["system:authenticated",`), 1), false
		})(right, nil)
	},
	"escapes are left as they are": func(right http.Handler) http.Handler {
		return early(func(_ http.ResponseWriter, body []byte) ([]byte, bool) {
			return bytes.ReplaceAll(body, []byte(`\u0026`), []byte(`amp`)), false
		})(right, nil)
	},
	"bodies over 8 KiB are cut and allowed": func(right http.Handler) http.Handler {
		return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
			if len(body) > 8<<10 {
				_, _ = w.Write(reference.Answer(reference.V1, scenarios.Allow))
				return nil, true
			}
			return body, false
		})(right, nil)
	},
	"no attributes are allowed": func(right http.Handler) http.Handler {
		return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
			hasAttributes := bytes.Contains(body, []byte("esourceAttributes"))
			isReview := bytes.Contains(body, []byte(`"spec":{"user"`))
			if isReview && !hasAttributes {
				_, _ = w.Write(reference.Answer(reference.V1, scenarios.Allow))
				return nil, true
			}
			return body, false
		})(right, nil)
	},
	"5 at a time of a user": func(right http.Handler) http.Handler {
		var mu sync.Mutex
		under := map[string]int{}
		return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
			_, s, _ := reference.Decode(body)
			add := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				under[s.User] += n
				return under[s.User]
			}
			many := add(1) > 5
			time.Sleep(time.Millisecond)
			if add(-1); many {
				_, _ = w.Write(reference.Answer(reference.V1, scenarios.NoOpinion))
			}
			return body, many
		})(right, nil)
	},
	"every 1,500th answer is of somebody else": func(right http.Handler) http.Handler {
		var mu sync.Mutex
		var last []byte
		n := 0
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			rec := httptest.NewRecorder()
			right.ServeHTTP(rec, req)
			mu.Lock()
			defer mu.Unlock()
			n++
			body := rec.Body.Bytes()
			if n%1500 == 0 && last != nil {
				body = last
			}
			last = rec.Body.Bytes()
			w.WriteHeader(rec.Code)
			_, _ = w.Write(body)
		})
	},
}

// TestWireAdversariesAreRejected asks them as often as certification does. It begins with what is asked at the same
// time, because that shows most of them and the other levels ask tens of thousands of questions one by one.
func TestWireAdversariesAreRejected(t *testing.T) {
	t.Parallel()
	b := plan(t, 1)
	for _, name := range sample.OneIn(4, slices.Sorted(maps.Keys(wireAdversaries))) {
		mistaken := wireAdversaries[name]
		t.Run(name, func(t *testing.T) {
			for _, level := range slices.Backward(Levels()) {
				if run := certifyAll(t, b, inProcess(t, mistaken(reference.Handler(b.Policy.Decide))), level); !slices.Contains(run.Levels, level) {
					return
				}
			}
			t.Error("every level is granted")
		})
	}
}
