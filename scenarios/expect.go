package scenarios

import (
	"reflect"
	"regexp"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
)

// Outcome is how the API server answered a request. The classes are kept apart so that one cannot pass for another.
type Outcome string

const (
	// Allowed: authorization let the request through, whatever came then (404 for a missing object is Allowed).
	Allowed Outcome = "allowed"
	// ImpersonationForbidden: 403 by the impersonation filter.
	ImpersonationForbidden Outcome = "impersonationForbidden"
	// RequestForbidden: 403 by authorization, of the impersonated user if there is one.
	RequestForbidden Outcome = "requestForbidden"
	// EscalationForbidden: 403 by RBAC's escalation check, behind authorization.
	EscalationForbidden Outcome = "escalationForbidden"
	// BadRequest: 400 because of the impersonation headers.
	BadRequest Outcome = "badRequest"
	// Unauthenticated: 401.
	Unauthenticated Outcome = "unauthenticated"
	// HeadersTooLarge: 431 by the HTTP server, before all else: nothing is authenticated, and there is no audit event.
	HeadersTooLarge Outcome = "headersTooLarge"
	// ServerError: 5xx before the request was authorized.
	ServerError Outcome = "serverError"
)

// Expect states what must be seen of a request. What is left out is not judged; an empty list means none.
type Expect struct {
	// Outcome must be given.
	Outcome Outcome `json:"outcome" yaml:"outcome"`
	Code    int     `json:"code,omitempty" yaml:"code,omitempty"` // the HTTP status code
	// OrTooLarge allows the HTTP server to refuse the request in place of all else: what it takes depends on the release of
	// Go that it was built with. See Answered.
	OrTooLarge bool `json:"orTooLarge,omitempty" yaml:"orTooLarge,omitempty"`
	// Message is the whole message of the answered Status.
	Message string `json:"message,omitempty" yaml:"message,omitempty"`
	// MessageMatches is a regular expression for a whole message that is not known before: with a webhook's address, say.
	MessageMatches string `json:"messageMatches,omitempty" yaml:"messageMatches,omitempty"`
	// User is whom the request was authorized as. It is judged against the final access review and the audit event.
	User *User `json:"user,omitempty" yaml:"user,omitempty"`
	// Reviews are the access reviews of the request in order, the final one of the impersonated user included.
	Reviews []Review `json:"reviews,omitzero" yaml:"reviews,omitempty"`
	// Output is the body of the answer without surrounding space, where it is not a Status: a log, or what exec wrote.
	Output string `json:"output,omitempty" yaml:"output,omitempty"`
	// Backend are the users that the aggregated API server was told of, one for each request. [] means that none came.
	Backend []User `json:"backend,omitzero" yaml:"backend,omitempty"`
	// Admission are the users that the admission webhook was told of, one for each review. [] means that none came.
	Admission []User `json:"admission,omitzero" yaml:"admission,omitempty"`
	// Flow is by what priority and fairness let the request through; {} means that it did not get so far.
	Flow *Flow `json:"flow,omitempty" yaml:"flow,omitempty"`
	// Warnings are the values of the answer's Warning headers. Left out there must be none, but on clusters of others.
	Warnings []string `json:"warnings,omitempty" yaml:"warnings,omitempty"`
	// Counters are the increases of the authorization metrics by series, written name{label=value,...} with the labels
	// sorted, and for a histogram the name with _count. A series of the same name that is not listed must not move.
	Counters map[string]int `json:"counters,omitempty" yaml:"counters,omitempty"`
	// Log are regular expressions, each for a line that the API server logs about the request.
	Log []string `json:"log,omitempty" yaml:"log,omitempty"`
	// Audit is about the request's audit event.
	Audit *AuditExpect `json:"audit,omitempty" yaml:"audit,omitempty" bind:"keep"`
	// Metrics is about the impersonation counters of the API server.
	Metrics *MetricsExpect `json:"metrics,omitempty" yaml:"metrics,omitempty" bind:"keep"`
	// OneOf are alternatives, of which one must be seen whole, where the API server does not always do the same.
	// They state what Message, Reviews and Metrics otherwise do, all of them the same fields.
	OneOf []Alternative `json:"oneOf,omitempty" yaml:"oneOf,omitempty"`
}

// Answered returns what is expected of a request that was answered with a code: the expectation itself, unless the HTTP
// server was allowed to refuse the request and did. Then nobody may have been asked about it or told of it.
func (e *Expect) Answered(code int) *Expect {
	if !e.OrTooLarge || code != refusalCodes[HeadersTooLarge] {
		return e
	}
	refused := &Expect{Outcome: HeadersTooLarge, Code: code, Reviews: []Review{}}
	if e.Backend != nil {
		refused.Backend = []User{}
	}
	if e.Metrics != nil {
		refused.Metrics = &MetricsExpect{Attempts: []MetricDelta{}, Authorizations: []MetricDelta{}}
	}
	return refused
}

// Flow names the flow schema that priority and fairness matched a request with, and its priority level.
type Flow struct {
	Schema        string `json:"schema,omitempty" yaml:"schema,omitempty" bind:"keep"`
	PriorityLevel string `json:"priorityLevel,omitempty" yaml:"priorityLevel,omitempty" bind:"keep"`
}

// Alternative is one of several things that may be seen.
type Alternative struct {
	Message string         `json:"message,omitempty" yaml:"message,omitempty"`
	Reviews []Review       `json:"reviews,omitzero" yaml:"reviews,omitempty"`
	Metrics *MetricsExpect `json:"metrics,omitempty" yaml:"metrics,omitempty" bind:"keep"`
}

// User is a user as the API server sees it. In an expectation a left-out field is empty: a user is stated whole.
type User struct {
	Name   string              `json:"name" yaml:"name"`
	UID    string              `json:"uid,omitempty" yaml:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty" yaml:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
}

// Decision is the answer of an authorizer: Allow, Deny or NoOpinion.
//
// It is that of all authorizers between the recorder's two points.
type Decision string

const (
	// Allow: decided before the end of the chain was reached, and the request went on.
	Allow Decision = "allow"
	// Deny: an authorizer ended the chain with a denial.
	Deny Decision = "deny"
	// NoOpinion: no authorizer allowed or denied; the API server denies.
	NoOpinion Decision = "noOpinion"
)

// Review is one access review. An attribute that is left out must be empty in it, but for those that say otherwise.
type Review struct {
	// Unordered, alone, is a group of reviews that may come in any order (extra keys come from a Go map).
	Unordered []Review `json:"unordered,omitempty" yaml:"unordered,omitempty"`

	// By is requestor (left out) or impersonated: whose permission is asked.
	By By `json:"by,omitempty" yaml:"by,omitempty"`
	// Verb, and the resource attributes.
	Verb        string `json:"verb,omitempty" yaml:"verb,omitempty" bind:"keep"`
	Group       string `json:"group,omitempty" yaml:"group,omitempty" bind:"keep"`
	Version     string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty" bind:"keep"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty" bind:"keep"`
	Namespace   string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	Name        string `json:"name,omitempty" yaml:"name,omitempty"`
	// FieldSelector and LabelSelector in the form of a request's query.
	FieldSelector string `json:"fieldSelector,omitempty" yaml:"fieldSelector,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty" yaml:"labelSelector,omitempty"`
	Path          string `json:"path,omitempty" yaml:"path,omitempty"` // that of a non-resource review
	// Extra, if given, is the subject's whole extra as the authorizer sees it. Left out it is not judged.
	Extra map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
	// Decision must be given.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
}

// By says whose permission a review asks for.
type By string

const (
	// ByRequestor is the default.
	ByRequestor By = "requestor"
	// ByImpersonated is the resulting user.
	ByImpersonated By = "impersonated"
)

// MetricsExpect states the increase of the impersonation counters over one request, whole: a series that is not
// listed must not move. The count of each duration histogram must move with its counter.
type MetricsExpect struct {
	Attempts []MetricDelta `json:"attempts" yaml:"attempts"` // apiserver_impersonation_attempts_total
	// Authorizations is apiserver_impersonation_authorization_attempts_total.
	Authorizations []MetricDelta `json:"authorizations" yaml:"authorizations"`
}

// MetricDelta is the increase of one series.
type MetricDelta struct {
	Mode     string `json:"mode" yaml:"mode"`         // the mode label; empty on a denied attempt
	Decision string `json:"decision" yaml:"decision"` // the decision label: allowed or denied
	Count    int    `json:"count" yaml:"count"`       // the increase
}

func (e *Expect) allReviews() []Review {
	return slices.Concat(e.Reviews, slices.Concat(seq.Map(e.OneOf, func(a Alternative) []Review { return a.Reviews })...))
}

func (c *checker) checkMetrics(m *MetricsExpect, path []any) {
	if m != nil {
		c.checkDeltas(m.Attempts, extend(path, "metrics", "attempts"))
		c.checkDeltas(m.Authorizations, extend(path, "metrics", "authorizations"))
	}
}

func (c *checker) checkPattern(path []any, field, text string) {
	if _, err := regexp.Compile(text); err != nil {
		c.fail(path, "%s is not a regular expression: %s (expected one of Go's)", field, err)
	}
}

// checkAlternatives checks oneOf, in which none may say less than another or the same, and messageMatches.
func (c *checker) checkAlternatives(e *Expect, path []any) {
	c.checkPattern(extend(path, "messageMatches"), "messageMatches", e.MessageMatches)
	c.failIf(e.Message != "" && e.MessageMatches != "", extend(path, "messageMatches"),
		"message and messageMatches are given (expected one of the two)")
	c.failIf(e.OneOf != nil && len(e.OneOf) < 2, extend(path, "oneOf"),
		"oneOf has %d alternatives (expected at least 2)", len(e.OneOf))
	for i, a := range e.OneOf {
		p := extend(path, "oneOf", i)
		for j, r := range a.Reviews {
			c.checkReview(r, extend(p, "reviews", j), false)
		}
		c.checkMetrics(a.Metrics, p)
		switch {
		case a.states() == [3]bool{}:
			c.fail(p, "the alternative is empty (expected message, reviews or metrics)")
		case a.states() != e.OneOf[0].states():
			c.fail(p, "the alternative does not state what the first one does (expected the same fields in each)")
		case a.Message != "" && e.Message+e.MessageMatches != "", a.Reviews != nil && e.Reviews != nil, a.Metrics != nil && e.Metrics != nil:
			c.fail(p, "a field is given in oneOf and beside it (expected one of the two)")
		}
		for j := range i {
			c.failIf(reflect.DeepEqual(a, e.OneOf[j]), p, "the alternative is the same as number %d (expected another)", j+1)
		}
	}
}

func (a Alternative) states() [3]bool {
	return [3]bool{a.Message != "", a.Reviews != nil, a.Metrics != nil}
}

// checkReloads checks the steps that change the chain. A scenario that has any needs a chain of its own kind to come
// back to: the ordinary one is where all others run.
func (c *checker) checkReloads() {
	now := c.s.Requires.Chain
	for i, st := range c.s.Steps {
		path := at("steps", i, "reload")
		switch {
		case st.Reload == "":
			continue
		case c.s.Requires.Chain == "":
			c.fail(path, "reload is given without requires.chain (expected a chain to come back to)")
			return
		case st.Reload == now:
			c.fail(path, "the chain %q is in force already (expected another)", now)
		}
		now = st.Reload
	}
	c.failIf(now != c.s.Requires.Chain, at("steps"),
		"the last reload leaves the chain %q (expected the one of requires.chain, %q)", now, c.s.Requires.Chain)
}
