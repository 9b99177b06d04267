package oracle

import (
	"container/list"
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
	now   time.Duration
	index modeIndex
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
		index: modeIndex{order: list.New(), entries: map[string]*list.Element{}, size: indexSize},
		outer: map[string]remembered{}, inner: map[string]remembered{},
	}
}

func (m *memory) recall(cache map[string]remembered, key string) (remembered, bool) {
	r, ok := cache[key]
	return r, ok && m.now < r.since+cacheTTL
}

func (m *memory) remember(cache map[string]remembered, key string, u scenarios.User) {
	cache[key] = remembered{user: u, since: m.now}
}

// cacheKey is a text that is equal for equal things, as buildKey makes one (cache.go of the impersonation filter).
func cacheKey(parts ...any) string {
	raw, err := json.Marshal(parts) // sorts the keys of maps
	if err != nil {
		panic(err) // strings, maps and slices of them always encode
	}
	return string(raw)
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
}

func (x *modeIndex) get(requestor string) (Mode, bool) {
	e, ok := x.entries[requestor]
	if !ok {
		return "", false
	}
	x.order.MoveToFront(e)
	return e.Value.(indexEntry).mode, true
}

func (x *modeIndex) set(requestor string, mode Mode) {
	if e, ok := x.entries[requestor]; ok {
		e.Value = indexEntry{requestor, mode}
		x.order.MoveToFront(e)
		return
	}
	x.entries[requestor] = x.order.PushFront(indexEntry{requestor, mode})
	if x.order.Len() > x.size {
		last := x.order.Back()
		x.order.Remove(last)
		delete(x.entries, last.Value.(indexEntry).requestor)
	}
}
