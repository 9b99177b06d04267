package oracle

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"k8s.io/utils/lru"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	// cacheTTL is how long a success is remembered (impersonationCache.set).
	cacheTTL = 10 * time.Second
	// indexSize is how many requestors the mode index holds (newModeIndexCache).
	indexSize = 10_000
)

// memory is what a server remembers of impersonation. Only successes are remembered, and nothing ever erases one
// but time or, in the index, other requestors.
type memory struct {
	now time.Duration
	// took is how long the request takes of which is asked, and most says which bound is wanted; see Server.Takes.
	took time.Duration
	most bool
	// index has the indexEntry of the most recently used requestors.
	index *lru.Cache
	// outer is by mode, wanted user, requestor and request; inner by the first three.
	outer, inner map[string]remembered
}

// remembered is a success.
type remembered struct {
	user scenarios.User
	// It was stored at some time between these, those of its request.
	since, by time.Duration
}

func newMemory() memory {
	return memory{index: lru.New(indexSize), outer: map[string]remembered{}, inner: map[string]remembered{}}
}

func (m *memory) recall(cache map[string]remembered, key string) (remembered, bool) {
	r, ok := cache[key]
	end := m.now + m.took
	switch {
	case !ok:
	case m.most:
		ok = m.now >= r.by && end < r.since+cacheTTL || m.took == 0 && m.now < r.since+cacheTTL
	case m.now >= r.by+cacheTTL:
		ok = false
	case m.now < r.by && end > r.by: // it may have asked as well, and stored it last
		r.by = end
		cache[key] = r
	}
	return r, ok
}

func (m *memory) remember(cache map[string]remembered, key string, u scenarios.User) {
	now := remembered{user: u, since: m.now, by: m.now + m.took}
	if r, ok := cache[key]; ok && m.most && m.now < r.by {
		// Of requests that ask at once the first to be answered is the one that helps others.
		now.since, now.by = r.since, min(r.by, now.by)
	}
	cache[key] = now
}

// Takes says how long the requests take of which is asked next, from when they were sent to their answers: nothing, if
// it is not called. There is no single-flight, so that requests that are under way at once may each ask what one of them
// could have remembered. A check is stored at some time of its request, and looked for at some time of another; most
// says whether those times are such that the most reviews are asked that are possible, or the fewest.
func (s *Server) Takes(took time.Duration, most bool) { s.memory.took, s.memory.most = took, most }

// cacheKey is a text that is equal for equal things, as buildKey makes one (cache.go of the impersonation filter).
func cacheKey(parts ...any) string {
	raw, err := json.Marshal(parts) // sorts the keys of maps
	if err != nil {
		panic(err) // strings, maps and slices of them always encode
	}
	sum := sha256.Sum256(raw) // a storm has hundreds of thousands of them
	return string(sum[:])
}

// outerKey adds the request to what a success depends on. Nothing is cached of a request with a selector that
// cannot be parsed: ok is false.
func outerKey(mode Mode, wanted, requestor scenarios.User, a Attributes) (key string, ok bool) {
	labels := make([]string, len(a.Labels))
	for i, r := range a.Labels {
		labels[i] = r.String()
	}
	a.Labels = nil // their fields are not exported
	return cacheKey(mode, wanted, requestor, a, labels), !a.BadSelector
}

// indexEntry is which mode last succeeded for a requestor's name (modeIndexCache).
type indexEntry struct {
	mode Mode
	by   time.Duration // when it was stored at the latest
}

// lastMode is the mode that last succeeded for a requestor, if that is remembered by now.
func (m *memory) lastMode(requestor string) (Mode, bool) {
	last, ok := m.index.Get(requestor)
	if !ok {
		return "", false
	}
	entry := last.(indexEntry)
	return entry.mode, !m.most || m.now >= entry.by
}

func (m *memory) setMode(requestor string, mode Mode) {
	by := m.now + m.took
	if last, ok := m.index.Get(requestor); ok && last.(indexEntry).mode == mode {
		by = min(by, last.(indexEntry).by)
	}
	m.index.Add(requestor, indexEntry{mode, by})
}
