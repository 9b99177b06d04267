package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/scenarios"
)

// notApplicable says why a mode has nothing to say about a wanted user; empty if it has (the filters of
// associatedNodeImpersonationMode and its neighbours).
func notApplicable(mode Mode, wanted, requestor scenarios.User) string {
	node, isNode := nodeOf(wanted.Name)
	_, _, isAccount := scenarios.SplitServiceAccount(wanted.Name)
	more := "more than a user name is asked for (a UID, groups or extra)"
	switch mode {
	case AssociatedNode, ArbitraryNode:
		_, _, fromAccount := scenarios.SplitServiceAccount(requestor.Name)
		on := requestor.Extra[serviceaccount.NodeNameKey]
		switch {
		case !isNode:
			return fmt.Sprintf("%q is not a node (system:node: and a DNS subdomain)", wanted.Name)
		case !onlyName(wanted):
			return more
		case mode == ArbitraryNode:
		case !fromAccount:
			return fmt.Sprintf("%q is not a service account, so it runs on no node", requestor.Name)
		case len(on) != 1:
			return "the requestor's token is bound to no node (no extra " + serviceaccount.NodeNameKey + ")"
		case on[0] != node:
			return fmt.Sprintf("the requestor is on node %q, not on %q", on[0], node)
		}
	case ServiceAccount:
		switch {
		case !isAccount:
			return fmt.Sprintf("%q is not a service account (system:serviceaccount:NAMESPACE:NAME)", wanted.Name)
		case !onlyName(wanted):
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

// associated is the requestor as the mode associated-node shows it to authorizers and caches: of its extra only
// the names of the keys are left, so that one success serves all pods of a service account
// (associatedNodeImpersonationRequestorUserInfo).
func associated(requestor scenarios.User) scenarios.User {
	requestor.Extra = map[string][]string{associatedNodeKeysKey: slices.Sorted(maps.Keys(requestor.Extra))}
	return requestor
}

// try tries one mode (constrainedImpersonationModeState.check, and legacy, which has no action check and remembers
// nothing).
func (s *Server) try(mode Mode, wanted, requestor scenarios.User, a Attributes) (at Attempt, became scenarios.User) {
	at.Mode = mode
	if at.NotApplicable = notApplicable(mode, wanted, requestor); at.NotApplicable != "" {
		return at, became
	}
	k := asker{Server: s, by: scenarios.ByRequestor}
	if mode == Legacy {
		id := legacyIdentity(requestor)
		k.stages(&at, id.stages(wanted))
		return at, id.resulting(wanted)
	}
	shown, key := requestor, wanted
	if mode == AssociatedNode {
		shown, key = associated(requestor), scenarios.User{Name: nodeUserPrefix + "*"}
	}
	id := constrainedIdentity(mode, shown)
	became = id.resulting(wanted)
	outer, cacheable := outerKey(mode, key, shown, a)
	inner := cacheKey(mode, key, shown)
	if hit, ok := s.memory.recall(s.memory.outer, outer); ok && cacheable {
		at.Cached = s.memory.words("the same request", hit)
		at.Allowed = true
		return at, became
	}
	action := a
	action.Verb = "impersonate-on:" + string(mode) + ":" + a.Verb
	if k.stages(&at, []stage{{runs: [][]question{{{mode, shown, action}}}}}); !at.Allowed {
		return at, became
	}
	if hit, ok := s.memory.recall(s.memory.inner, inner); ok {
		at.Cached = s.memory.words("this user, for another request,", hit)
	} else if k.stages(&at, id.stages(wanted)); at.Allowed {
		s.memory.remember(s.memory.inner, inner, became)
	}
	if at.Allowed && cacheable {
		s.memory.remember(s.memory.outer, outer, became)
	}
	return at, became
}

// words say what is remembered, since when and how long yet.
func (m *memory) words(what string, r remembered) string {
	age := m.now - r.since
	return fmt.Sprintf("%s was allowed %s ago and stays remembered for %s", what, age.Round(time.Millisecond), (cacheTTL - age).Round(time.Millisecond))
}

// impersonate tries the modes: the one that last succeeded for the requestor's name first, then the others in
// order. The first error is the one that the client sees (impersonationModesTracker.getImpersonatedUser).
func (s *Server) impersonate(p *Prediction, wanted scenarios.User, a Attributes) {
	order := Modes()
	last, known := s.memory.lastMode(p.Requestor.Name)
	if known {
		order = append([]Mode{last}, slices.DeleteFunc(order, func(m Mode) bool { return m == last })...)
	}
	for i, mode := range order {
		at, became := s.try(mode, wanted, p.Requestor, a)
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
