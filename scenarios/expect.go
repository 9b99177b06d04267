package scenarios

import (
	"reflect"
	"regexp"
)

// Outcome is how the API server answered a request. The outcomes are kept apart so that one cannot be taken for
// another.
type Outcome string

const (
	// Allowed means that authorization allowed the request, whatever happened then. A 404 for a missing object is
	// Allowed.
	Allowed Outcome = "allowed"
	// ImpersonationForbidden means 403 by the impersonation filter.
	ImpersonationForbidden Outcome = "impersonationForbidden"
	// RequestForbidden means 403 by authorization. If a user is impersonated, that user lacks the permission.
	RequestForbidden Outcome = "requestForbidden"
	// EscalationForbidden means 403 by RBAC's escalation check, after authorization.
	EscalationForbidden Outcome = "escalationForbidden"
	// BadRequest means 400 because of the impersonation headers.
	BadRequest Outcome = "badRequest"
	// Unauthenticated means 401.
	Unauthenticated Outcome = "unauthenticated"
	// HeadersTooLarge means 431 by the HTTP server before anything else. Nothing is authenticated, and there is no
	// audit event.
	HeadersTooLarge Outcome = "headersTooLarge"
	// ServerError means 5xx before the request was authorized.
	ServerError Outcome = "serverError"
)

// Expect states what must be seen of a request. What is left out is not judged. An empty list means that there must be
// nothing.
type Expect struct {
	// Outcome is required.
	Outcome Outcome `json:"outcome" yaml:"outcome"`
	Code    int     `json:"code,omitempty" yaml:"code,omitempty"` // the HTTP status code
	// OrTooLarge allows that the HTTP server refuses the request instead of everything else. How much it accepts
	// depends on the release of Go with which it was built. See Answered.
	OrTooLarge bool `json:"orTooLarge,omitempty" yaml:"orTooLarge,omitempty"`
	// Message is the whole message of the Status in the answer.
	Message string `json:"message,omitempty" yaml:"message,omitempty"`
	// MessageMatches is a regular expression for a whole message that is not known beforehand, for example because it
	// contains a webhook's address.
	MessageMatches string `json:"messageMatches,omitempty" yaml:"messageMatches,omitempty"`
	// User is the user as whom the request was authorized. It is compared with the final access review and the audit
	// event.
	User *User `json:"user,omitempty" yaml:"user,omitempty"`
	// Reviews are the access reviews of the request in order, including the final one of the impersonated user.
	Reviews []Review `json:"reviews,omitzero" yaml:"reviews,omitempty"`
	// Output is the body of the answer without surrounding space, if it is not a Status: a log, or what exec wrote.
	Output string `json:"output,omitempty" yaml:"output,omitempty"`
	// Backend are the users that the aggregated API server was told of, one for each request. [] means that no request
	// came.
	Backend []User `json:"backend,omitzero" yaml:"backend,omitempty"`
	// Admission are the users that the admission webhook was told of, one for each review. [] means that no review
	// came.
	Admission []User `json:"admission,omitzero" yaml:"admission,omitempty"`
	// Flow names the objects by which priority and fairness accepted the request. {} means that the request did not get
	// so far.
	Flow *Flow `json:"flow,omitempty" yaml:"flow,omitempty"`
	// Warnings are the values of the answer's Warning headers. If it is left out, there must be none, except on
	// clusters that are not ours.
	Warnings []string `json:"warnings,omitempty" yaml:"warnings,omitempty"`
	// Counters are the increases of the authorization metrics by series. A series is written name{label=value,...} with
	// sorted labels, and that of a histogram has _count in its name. Other series with the same name must not increase.
	Counters map[string]int `json:"counters,omitempty" yaml:"counters,omitempty"`
	// Log are regular expressions. Each must match a line that the API server logs about the request.
	Log []string `json:"log,omitempty" yaml:"log,omitempty"`
	// Audit is about the audit event of the request.
	Audit *AuditExpect `json:"audit,omitempty" yaml:"audit,omitempty" bind:"keep"`
	// Metrics is about the impersonation counters of the API server.
	Metrics *MetricsExpect `json:"metrics,omitempty" yaml:"metrics,omitempty" bind:"keep"`
	// OneOf are alternatives, one of which must be seen completely. It is for requests for which the API server does
	// not always do the same. The alternatives replace Message, Reviews and Metrics, and all state the same fields.
	OneOf []Alternative `json:"oneOf,omitempty" yaml:"oneOf,omitempty"`
}

// Answered returns what is expected of a request that was answered with a code. It is the expectation itself, unless
// the HTTP server was allowed to refuse the request and did. Then nobody may have been asked about the request or told
// of it.
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

// Flow names the flow schema that priority and fairness chose for a request, and its priority level.
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

// User is a user as the API server sees it. An expectation states the whole user, so that a field which is left out is
// empty.
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
	// Allow means that an authorizer allowed before the end of the chain was reached.
	Allow Decision = "allow"
	// Deny means that an authorizer ended the chain with a denial.
	Deny Decision = "deny"
	// NoOpinion means that no authorizer allowed or denied. Then the API server denies.
	NoOpinion Decision = "noOpinion"
)

// Review is one access review. An attribute that is left out must be empty, except where its comment says otherwise.
type Review struct {
	// Unordered is a group of reviews that may come in any order, because keys of extra come from a Go map. It excludes
	// all other fields.
	Unordered []Review `json:"unordered,omitempty" yaml:"unordered,omitempty"`

	// By says whose permission is asked for: requestor (if it is left out) or impersonated.
	By By `json:"by,omitempty" yaml:"by,omitempty"`
	// Verb and the fields below are the resource attributes.
	Verb        string `json:"verb,omitempty" yaml:"verb,omitempty" bind:"keep"`
	Group       string `json:"group,omitempty" yaml:"group,omitempty" bind:"keep"`
	Version     string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty" bind:"keep"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty" bind:"keep"`
	Namespace   string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	Name        string `json:"name,omitempty" yaml:"name,omitempty"`
	// FieldSelector and LabelSelector are written as in the query of a request.
	FieldSelector string `json:"fieldSelector,omitempty" yaml:"fieldSelector,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty" yaml:"labelSelector,omitempty"`
	Path          string `json:"path,omitempty" yaml:"path,omitempty"` // the path of a non-resource review
	// Extra is the whole extra of the subject as the authorizer sees it. If it is left out, it is not judged.
	Extra map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
	// Decision is required.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
}

// By says whose permission a review asks for.
type By string

const (
	// ByRequestor is the requestor. It is the default.
	ByRequestor By = "requestor"
	// ByImpersonated is the impersonated user.
	ByImpersonated By = "impersonated"
)

// MetricsExpect states the increases of the impersonation counters over one request completely. A series that is not
// listed must not increase. The count of each duration histogram must increase with its counter.
type MetricsExpect struct {
	Attempts []MetricDelta `json:"attempts" yaml:"attempts"` // apiserver_impersonation_attempts_total
	// Authorizations are the increases of apiserver_impersonation_authorization_attempts_total.
	Authorizations []MetricDelta `json:"authorizations" yaml:"authorizations"`
}

// MetricDelta is the increase of one series.
type MetricDelta struct {
	Mode     string `json:"mode" yaml:"mode"`         // the label mode; empty for a denied attempt
	Decision string `json:"decision" yaml:"decision"` // the label decision: allowed or denied
	Count    int    `json:"count" yaml:"count"`       // the increase
}

// allReviews returns the reviews of the expectation, and then those of each alternative.
func (e *Expect) allReviews() [][]Review {
	lists := [][]Review{e.Reviews}
	for i := range e.OneOf {
		lists = append(lists, e.OneOf[i].Reviews)
	}
	return lists
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

// checkAlternatives checks oneOf and messageMatches. No alternative may state the same as another, or less.
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
		case a.Message != "" && e.Message+e.MessageMatches != "",
			a.Reviews != nil && e.Reviews != nil,
			a.Metrics != nil && e.Metrics != nil:
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

// checkReloads checks the steps that change the chain. A scenario with such a step needs a chain of its own, to which
// it returns, because all other scenarios run on the ordinary one.
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
