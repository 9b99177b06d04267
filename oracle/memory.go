package oracle

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/lru"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	cacheTTL  = 10 * time.Second // how long a success is remembered (impersonationCache.set)
	indexSize = 10_000           // how many requestors the mode index holds (newModeIndexCache)
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
	outer, inner map[string]rememberedEntry
}

type rememberedEntry struct {
	user scenarios.User
	span
	// first is the request that asked anew, unless it still found what was there; see recallMost.
	first *span
}

// span is when something was stored: at some time of the request that did it.
type span struct{ since, by time.Duration }

func newMemory() memory {
	return memory{index: lru.New(indexSize), outer: map[string]rememberedEntry{}, inner: map[string]rememberedEntry{}}
}

func (m *memory) recall(cache map[string]rememberedEntry, key string) (rememberedEntry, bool) {
	r, ok := cache[key]
	end := m.now + m.took
	switch {
	case !ok:
	case m.most:
		return m.recallMost(cache, key, r, end)
	case m.now >= r.by+cacheTTL:
		ok = false
	case m.now < r.by && end > r.by: // it may have asked as well, and stored it last
		r.by = end
		cache[key] = r
	}
	return r, ok
}

// recallMost returns what has to be asked so that the most is. A request that begins before a success is forgotten and ends
// after that may have found it, and then the first after it asks, with all that are under way beside that one; or it asked
// itself. It counts, and so does who is under way beside it; one that comes when it was answered counts no more, and takes
// its place. So of all of them the most counts that any could have brought about by being the first to ask.
func (m *memory) recallMost(cache map[string]rememberedEntry, key string, r rememberedEntry, end time.Duration) (rememberedEntry, bool) {
	forgotten := r.since + cacheTTL
	isInstant := m.took == 0 && m.now < forgotten
	endsBefore := isInstant || end < forgotten
	if m.now >= r.by && endsBefore {
		return r, true
	}
	if r.first == nil || m.now < r.first.by || end >= r.first.since+cacheTTL {
		return r, false
	}
	if m.now < r.by+cacheTTL {
		r.first = &span{r.first.since, end}
	} else {
		r.span, r.first = span{r.first.since, end}, nil // what was there before is forgotten in any case
	}
	cache[key] = r
	return r, true
}

func (m *memory) remember(cache map[string]rememberedEntry, key string, u scenarios.User) {
	now := rememberedEntry{user: u, span: span{m.now, m.now + m.took}}
	if r, ok := cache[key]; ok && m.most {
		before := r.span
		if r.first != nil && m.now >= r.by+cacheTTL {
			before, r.first = *r.first, nil
		}
		switch {
		case m.now < before.by: // of requests that ask at once the first to be answered is the one that helps others
			now.span = span{before.since, min(before.by, now.by)}
		case m.now < before.by+cacheTTL: // it may have found what was there
			first := now.span
			if r.first != nil {
				first = span{r.first.since, min(r.first.by, now.by)}
			}
			now.span, now.first = before, &first
		}
	}
	cache[key] = now
}

// Takes sets how long the requests take of which is asked next, from when they were sent to their answers: nothing, if
// it is not called. There is no single-flight, so that requests that are under way at once may each ask what one of them
// could have remembered. A check is stored at some time of its request, and looked for at some time of another; most
// says whether those times are such that the most reviews are asked that are possible, or the fewest.
func (s *Server) Takes(took time.Duration, most bool) { s.memory.took, s.memory.most = took, most }

// cacheKey returns a text that is equal for equal things, as buildKey makes one (cache.go of the impersonation filter).
func cacheKey(parts ...any) string {
	raw, err := json.Marshal(parts) // sorts the keys of maps
	if err != nil {
		panic(err) // strings, maps and slices of them always encode
	}
	sum := sha256.Sum256(raw) // a storm has hundreds of thousands of them
	return string(sum[:])
}

// outerKey adds the request to what a success depends on; not ok if it has a selector that cannot be parsed.
func outerKey(mode Mode, requestedUser, requestor scenarios.User, a Attributes) (key string, ok bool) {
	labels := make([]string, len(a.Labels))
	for i, r := range a.Labels {
		labels[i] = r.String()
	}
	a.Labels = nil // their fields are not exported
	return cacheKey(mode, requestedUser, requestor, a, labels), !a.BadSelector
}

type indexEntry struct {
	mode Mode
	by   time.Duration // when it was stored at the latest
}

// lastMode returns the mode that last succeeded for a requestor, if that is remembered by now.
func (m *memory) lastMode(requestor string) (Mode, bool) {
	last, ok := m.index.Get(requestor)
	if !ok {
		return "", false
	}
	entry := last.(indexEntry)
	return entry.mode, !m.most || m.now >= entry.by
}

func (m *memory) setMode(requestor string, mode Mode) {
	deadline := m.now + m.took
	if last, ok := m.index.Get(requestor); ok && last.(indexEntry).mode == mode {
		deadline = min(deadline, last.(indexEntry).by)
	}
	m.index.Add(requestor, indexEntry{mode, deadline})
}

// notApplicable returns why a mode has nothing to say about a requested user; empty if it has (the filters of
// associatedNodeImpersonationMode and its neighbours).
func notApplicable(mode Mode, requestedUser, requestor scenarios.User) string {
	node, isNode := nodeOf(requestedUser.Name)
	_, _, isAccount := scenarios.SplitServiceAccount(requestedUser.Name)
	more := "more than a user name is asked for (a UID, groups or extra)"
	switch mode {
	case AssociatedNode, ArbitraryNode:
		_, _, fromAccount := scenarios.SplitServiceAccount(requestor.Name)
		nodeNames := requestor.Extra[serviceaccount.NodeNameKey]
		switch {
		case !isNode:
			return fmt.Sprintf("%q is not a node (system:node: and a DNS subdomain)", requestedUser.Name)
		case !onlyName(requestedUser):
			return more
		case mode == ArbitraryNode:
		case !fromAccount:
			return fmt.Sprintf("%q is not a service account, so it runs on no node", requestor.Name)
		case len(nodeNames) != 1:
			return "the requestor's token is bound to no node (no extra " + serviceaccount.NodeNameKey + ")"
		case nodeNames[0] != node:
			return fmt.Sprintf("the requestor is on node %q, not on %q", nodeNames[0], node)
		}
	case ServiceAccount:
		switch {
		case !isAccount:
			return fmt.Sprintf("%q is not a service account (system:serviceaccount:NAMESPACE:NAME)", requestedUser.Name)
		case !onlyName(requestedUser):
			return more
		}
	case UserInfo:
		switch {
		case isNode:
			return "nodes have modes of their own"
		case isAccount:
			return "service accounts have a mode of their own"
		}
	}
	return ""
}

// asAssociated returns the requestor as the mode associated-node shows it to authorizers and caches: of its extra only
// the names of the keys are left, so that one success serves all pods of a service account
// (associatedNodeImpersonationRequestorUserInfo).
func asAssociated(requestor scenarios.User) scenarios.User {
	requestor.Extra = map[string][]string{scenarios.AssociatedNodeKeysKey: slices.Sorted(maps.Keys(requestor.Extra))}
	return requestor
}

// try tries a mode (constrainedImpersonationModeState.check; legacy has no action check and remembers nothing).
func (s *Server) try(mode Mode, requestedUser, requestor scenarios.User, a Attributes) (at Attempt, became scenarios.User) {
	at.Mode = mode
	if at.NotApplicable = notApplicable(mode, requestedUser, requestor); at.NotApplicable != "" {
		return at, became
	}
	k := asker{Server: s, by: scenarios.ByRequestor}
	if mode == Legacy {
		id := legacyIdentity(requestor)
		k.askStages(&at, id.stages(requestedUser))
		return at, id.resulting(requestedUser)
	}
	user, key := requestor, requestedUser
	if mode == AssociatedNode {
		user, key = asAssociated(requestor), scenarios.User{Name: nodeUserPrefix + "*"}
	}
	id := constrainedIdentity(mode, user)
	became = id.resulting(requestedUser)
	outer, cacheable := outerKey(mode, key, user, a)
	inner := cacheKey(mode, key, user)
	if hit, ok := s.memory.recall(s.memory.outer, outer); ok && cacheable {
		at.Cached = s.memory.describeMemory("the same request", hit)
		at.Allowed = true
		return at, became
	}
	action := a
	action.Verb = "impersonate-on:" + string(mode) + ":" + a.Verb
	if k.askStages(&at, []stage{{runs: [][]question{{{mode, user, action}}}}}); !at.Allowed {
		return at, became
	}
	if hit, ok := s.memory.recall(s.memory.inner, inner); ok {
		at.Cached = s.memory.describeMemory("this user, for another request,", hit)
	} else if k.askStages(&at, id.stages(requestedUser)); at.Allowed {
		s.memory.remember(s.memory.inner, inner, became)
	}
	if at.Allowed && cacheable {
		s.memory.remember(s.memory.outer, outer, became)
	}
	return at, became
}

func (m *memory) describeMemory(what string, r rememberedEntry) string {
	age := m.now - r.since
	return fmt.Sprintf(
		"%s was allowed %s ago and stays remembered for %s",
		what,
		age.Round(time.Millisecond),
		(cacheTTL - age).Round(time.Millisecond),
	)
}

// impersonate tries the modes: the one that last succeeded for the requestor's name first, then the others in
// order. The first error is the one that the client sees (impersonationModesTracker.getImpersonatedUser).
func (s *Server) impersonate(p *Prediction, requestedUser scenarios.User, a Attributes) {
	order := Modes()
	last, known := s.memory.lastMode(p.Requestor.Name)
	if known {
		order = append([]Mode{last}, slices.DeleteFunc(order, func(m Mode) bool { return m == last })...)
	}
	for i, mode := range order {
		at, became := s.try(mode, requestedUser, p.Requestor, a)
		at.Remembered = known && i == 0
		p.Trace = append(p.Trace, at)
		p.Segments = append(p.Segments, at.Segments...)
		if at.Allowed {
			if !at.Remembered {
				s.memory.setMode(p.Requestor.Name, mode)
			}
			p.become(became, mode)
			return
		}
		if len(p.Messages) == 0 {
			p.Messages = at.Messages
		}
	}
}
