package gate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// Cannot returns why a vector cannot run on an API server. It is empty for vectors that can.
func Cannot(v *vectors.Vector, w *wire.Revision) string {
	m := v.APIServer
	if m == nil {
		return "it judges an authorizer, and this is an API server"
	}
	if what := w.Cannot(v); what != "" {
		return "the wire cannot say it: " + what
	}
	for _, a := range slices.Concat(m.Chain, m.Compound) {
		if why := cannotAnswer(a); why != "" {
			return why
		}
	}
	if why := cmp.Or(cannotConfigure(m.Server), cannotSend(m.Request)); why != "" {
		return why
	}
	if isOurs(m) {
		return "it is about what one set evaluates to, which the authorizer says, and that is ours"
	}
	return ""
}

// cannotAnswer returns why a webhook cannot answer as an authorizer does.
func cannotAnswer(a vectors.Authorizer) string {
	failsAsConfigured := a.Decision == vectors.NoOpinion && a.FailureMode == vectors.FailDeny
	switch {
	case a.Cached:
		return "it is about the cache, and nothing is cached here"
	case a.Empty:
		return "no webhook answers with an empty decision"
	case a.Error && !failsAsConfigured:
		return "a webhook in error is its failure policy, and no other decision"
	}
	return ""
}

// cannotConfigure returns why an API server is not configured so.
func cannotConfigure(s vectors.Server) string {
	switch {
	case s.Version == "old":
		return "it is about an API server that does not know the KEP"
	case len(s.BuiltinTypes) > 0:
		return "it is about conditions that the API server evaluates itself, and it may know none"
	}
	return ""
}

// cannotSend returns why a request is not sent.
func cannotSend(q vectors.Request) string {
	_, isKind := kinds[q.Resource]
	_, isMethod := methods[q.Verb]
	isServed := isKind || q.Served == "nobody"
	switch {
	case q.Served == "aggregated":
		return "no aggregated API server is started"
	case strings.Contains(q.APIGroup+q.APIVersion+q.Resource, "*"):
		return "no request has a wildcard"
	case q.Verb == "impersonate":
		return "it is the impersonation filter that asks for the verb"
	case !isMethod || !isServed:
		return "no request is known that is authorized so"
	}
	return ""
}

// isOurs reports whether a vector is only about what one set evaluates to. The API server asks the webhook for that,
// and the webhook is part of the harness.
func isOurs(m *vectors.APIServer) bool {
	if len(m.Chain) != 1 {
		return false
	}
	rest := m.Want
	rest.Decision, rest.Decisions, rest.Error, rest.Admitted, rest.Reason = "", nil, nil, nil, nil
	hasConditions := m.Chain[0].Decision == vectors.Conditional || m.Chain[0].Status != nil
	return hasConditions && rest.Stated(&rest) == 0
}
