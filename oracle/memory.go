package oracle

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"time"

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
	// after is when a success is remembered, and life how long; see Server.Remembers.
	after, life time.Duration
	index       modeIndex
	// outer is by mode, wanted user, requestor and request; inner by the first three.
	outer, inner map[string]remembered
}

// remembered is a success.
type remembered struct {
	user  scenarios.User
	since time.Duration
}

func newMemory() memory {
	return memory{
		life:  cacheTTL,
		index: modeIndex{order: list.New(), entries: map[string]*list.Element{}, size: indexSize},
		outer: map[string]remembered{}, inner: map[string]remembered{},
	}
}

func (m *memory) recall(cache map[string]remembered, key string) (remembered, bool) {
	r, ok := cache[key]
	return r, ok && m.now >= r.since+m.after && m.now < r.since+m.life
}

// remember keeps a success. One that is not remembered yet counts from the first of those that ask at once.
func (m *memory) remember(cache map[string]remembered, key string, u scenarios.User) {
	if r, ok := cache[key]; !ok || m.now >= r.since+m.after {
		cache[key] = remembered{user: u, since: m.now}
	}
}

// Remembers changes when a success is remembered, at once if nothing is said, and for how long, 10 s. There is no
// single-flight: requests that come before the first has its answers ask all over again. A server that remembers
// early and long asks the fewest reviews that are possible, one that remembers late and not so long the most.
func (s *Server) Remembers(after, life time.Duration) { s.memory.after, s.memory.life = after, life }

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

// modeIndex says which mode last succeeded for a requestor's name, for the most recently used names
// (modeIndexCache).
type modeIndex struct {
	order   *list.List // of indexEntry, most recent first
	entries map[string]*list.Element
	size    int
}

type indexEntry struct {
	requestor string
	mode      Mode
	since     time.Duration
}

// lastMode is the mode that last succeeded for a requestor, if that is remembered by now.
func (m *memory) lastMode(requestor string) (Mode, bool) {
	e, ok := m.index.entries[requestor]
	if !ok {
		return "", false
	}
	m.index.order.MoveToFront(e)
	entry := e.Value.(indexEntry)
	return entry.mode, m.now >= entry.since+m.after
}

func (m *memory) setMode(requestor string, mode Mode) {
	x := &m.index
	if e, ok := x.entries[requestor]; ok {
		if e.Value.(indexEntry).mode != mode {
			e.Value = indexEntry{requestor, mode, m.now}
		}
		x.order.MoveToFront(e)
		return
	}
	x.entries[requestor] = x.order.PushFront(indexEntry{requestor, mode, m.now})
	if x.order.Len() > x.size {
		last := x.order.Back()
		x.order.Remove(last)
		delete(x.entries, last.Value.(indexEntry).requestor)
	}
}
