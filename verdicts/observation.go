// Package verdicts judges what was observed of a scenario against what the scenario expects. It is pure: no clock,
// no network, no files, so that anybody can recompute every verdict from the evidence.
//
// Judge is where to begin. Each rule is a method of stepJudge called check…, and judgeRequest calls them in order. The
// rules about reviews are in reviews.go, those about the audit event in outcome.go, envelope.go and latency.go, and
// those about the evidence itself in sent.go. Who is to blame is decided in blame.go and certain.go. What follows if a
// request came too late is in late.go.
package verdicts

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Cell is one configuration under test: version, emulated version if there is one, state of the gate, authorizer chain.
//
// It describes what was requested, not what the server turned out to be.
type Cell struct {
	// Name is unique in a run and names the evidence folder, for example "1.37-gate-on".
	Name       string `json:"name"`
	Provider   string `json:"provider"`           // the kind of the cluster's provider, for example "local"
	Kubernetes string `json:"kubernetes"`         // the requested version, for example "1.37.1"
	Emulated   string `json:"emulated,omitempty"` // the requested --emulated-version; empty if there is none
	// Nodes are the requested versions of the nodes beside the control plane, one node each, separated by commas. It is
	// empty if none was requested.
	Nodes string `json:"nodes,omitempty"`
	// ControlPlanes are the requested versions of the API servers beside the first, one node of the control plane each,
	// separated by commas. It is empty if there is one API server.
	ControlPlanes string `json:"controlPlanes,omitempty"`
	// Gate is the requested state of ConstrainedImpersonation: on, off, default or absent.
	Gate scenarios.Gate `json:"gate"`
	// Unchanged is true if the API server is to keep its default admission plugins and metrics.
	Unchanged bool `json:"unchanged,omitempty"`
	// FeatureGate is another gate that the cell is about, beside ConstrainedImpersonation.
	FeatureGate FeatureGate `json:"featureGate,omitzero"`
}

// FeatureGate is a feature gate that a cell is about, and its requested state: on, off or default.
type FeatureGate struct {
	Name string         `json:"name"`
	Gate scenarios.Gate `json:"gate"`
}

// Evidence is all observations of a scenario on a cell, as a file.
//
// A verdict depends on the evidence and the scenario only.
type Evidence struct {
	// Scenario and Digest name the exact text that was run.
	Scenario     string                 `json:"scenario"`
	Digest       string                 `json:"digest"`
	Cell         Cell                   `json:"cell"`
	Capabilities scenarios.Capabilities `json:"capabilities"` // what the target could show
	// Suffix is what made the scenario's names unique (Scenario.Bind).
	Suffix string `json:"suffix"`
	// Names maps the names of the scenario to the unique ones that were used.
	Names map[string]string `json:"names"`
	// Nodes are the real nodes that the scenario's Nodes stand for, in order (Scenario.BindOn).
	Nodes []string `json:"nodes,omitempty"`
	// Substitutes is true if service accounts took the place of users (Scenario.Substitute).
	Substitutes bool `json:"substitutes,omitempty"`
	// Authorizer is true if another authorizer than RBAC has the grants.
	Authorizer bool `json:"authorizer,omitempty"`
	// ProvisionSeconds is how long it took to create what the requests need. That may have been done in advance, while
	// the requests of other scenarios were sent.
	ProvisionSeconds float64 `json:"provisionSeconds,omitempty"`
	// Started is when the first step began, and Ended when the last one was over.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Steps are the observations of request steps; Step is the index in the scenario's steps.
	Steps []Observation `json:"steps"`
	// UnappliedGrant is a grant, or the end of one, that the API server accepted but did not show in its access
	// reviews in time.
	UnappliedGrant *UnappliedGrant `json:"unheeded,omitempty"`
	// Problems are what broke in the harness or the environment. One problem is enough to make the verdict invalid.
	Problems []Problem `json:"problems,omitempty"`
	// Control is the evidence of the control run, which is the same scenario again under fresh names. It is made only
	// after a failure.
	Control *Evidence `json:"control,omitempty"`
}

// Duration returns how long provisioning and the steps of the scenario took together.
func (e *Evidence) Duration() time.Duration {
	provisioning := time.Duration(e.ProvisionSeconds * float64(time.Second))
	return provisioning + max(0, e.Ended.Sub(e.Started))
}

// Problem is something that broke outside of the scenario's requests.
type Problem struct {
	Blame Blame `json:"blame"` // harness or environment
	// Text says what happened and, where known, what to do.
	Text string `json:"text"`
	// Answer is what the API server answered to an administrator who set the scenario up, if that answer is the
	// problem.
	Answer *metav1.Status `json:"answer,omitempty"`
}

// Observation is what was seen of one request: answer, access reviews, audit event, metrics.
type Observation struct {
	Step     int         `json:"step"`     // the index of the step in the scenario, from 0
	Request  SentRequest `json:"request"`  // what was sent, without credentials
	Response Response    `json:"response"` // what came back
	// Reviews are the access reviews that arrived at both points of the recorder during the request, in this order. It
	// is nil if the target has no recorder.
	Reviews []Review `json:"reviews"`
	// Audit is the request's audit event as the API server wrote it, and nil if the target shows none.
	Audit json.RawMessage `json:"audit,omitempty"`
	// AuditStarted is the event that was written when the answer to a long-running request (a watch, an exec) began, or
	// the word none if there was no such event. It is nil if nobody looked for it.
	AuditStarted json.RawMessage `json:"auditStarted,omitempty"`
	// AuditAgain is a second event of the end of the request.
	AuditAgain json.RawMessage `json:"auditAgain,omitempty"`
	// NoAudit says what was waited for if the API server wrote no audit event, although it wrote that of a request
	// which was sent to find out.
	NoAudit string `json:"noAudit,omitempty"`
	// Metrics are the increases of the impersonation series over the request, and nil if the target has none.
	Metrics []MetricSample `json:"metrics"`
	// Backend are the requests that reached the aggregated API server during the request. Admission are the users that
	// the admission webhook was told of.
	Backend   []BackendRequest `json:"backend,omitempty"`
	Admission []scenarios.User `json:"admission,omitempty"`
	// Counters are the increases of the authorization metrics over the request. Log is what the API server logged about
	// the request's URL. Both are recorded only where the scenario asks for them.
	Counters []MetricSample `json:"counters,omitzero"`
	Log      []string       `json:"log,omitzero"`
	// Client is what became of a client program, if one was run instead of a single request. Requests are those that it
	// sent, in order, each observed like the request of a step. The fields above are empty then, except for
	// Request.Requestor.
	Client   *ClientRun    `json:"client,omitempty"`
	Requests []Observation `json:"requests,omitempty"`
	// Sent and Answered are when the request was sent and when its answer arrived.
	Sent     time.Time `json:"sent"`
	Answered time.Time `json:"answered"`
}

// BackendRequest is a request as it reached the aggregated API server.
type BackendRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// User is the user whom the API server's X-Remote- headers name.
	User scenarios.User `json:"user"`
	// Impersonation are the impersonation headers that the API server left in the request.
	Impersonation map[string][]string `json:"impersonation,omitempty"`
}

// ClientRun is one run of a client program.
type ClientRun struct {
	Command   string `json:"command"`             // as it would be typed
	UserAgent string `json:"userAgent,omitempty"` // what the program calls itself, with its version
	ExitCode  int    `json:"exitCode"`
	// Stdout and Stderr are the first 64 KiB of its output.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// SentRequest is a request as it was sent, without its credentials. Requestor is who authenticated.
type SentRequest struct {
	Requestor string `json:"requestor"`
	// Credential is the user whom the credential itself names, read from it as it was sent: from the claims of a token,
	// the headers of a proxy, or a client certificate. It is nil if no credential was sent.
	Credential *scenarios.User `json:"credential,omitempty"`
	// Others are the users whom the further credentials of the request name, in the order of the scenario.
	Others []*scenarios.User `json:"others,omitempty"`

	Method    string              `json:"method"`
	URL       string              `json:"url"`
	UserAgent string              `json:"userAgent,omitempty"`
	Headers   map[string][]string `json:"headers,omitempty"`
	Body      json.RawMessage     `json:"body,omitempty"`
	// Claims are those of the token that a TokenReview asks about.
	Claims json.RawMessage `json:"claims,omitempty"`
}

// IsUnreadable reports whether an API server cannot tell what the request is about. It answers such a request with an
// error, and writes no audit event.
func (r SentRequest) IsUnreadable() bool {
	address, err := url.Parse(r.URL)
	if err == nil {
		_, err = scenarios.RequestInfo(r.Method, address)
	}
	return err != nil
}

// IsLongRunning reports whether the API server regards the request as long-running. It writes an audit event when the
// answer to such a request begins (BasicLongRunningRequestCheck in k8s.io/apiserver/pkg/server/filters).
func (r SentRequest) IsLongRunning() bool {
	address, err := url.Parse(r.URL)
	if err != nil {
		return false
	}
	info, err := scenarios.RequestInfo(r.Method, address)
	if err != nil || !info.IsResourceRequest {
		return false
	}
	isLongVerb := slices.Contains([]string{"watch", "proxy"}, info.Verb)
	return isLongVerb || slices.Contains([]string{"attach", "exec", "proxy", "log", "portforward"}, info.Subresource)
}

// Response is an answer of the API server.
type Response struct {
	Code    int    `json:"code"`
	AuditID string `json:"auditID,omitempty"`
	// Body is the first 64 KiB of the answer as text. For an exec that was allowed, it is the first 64 KiB of what the
	// command wrote.
	Body string `json:"body,omitempty"`
	// Claims are those of the token in the answer to a TokenRequest.
	Claims json.RawMessage `json:"claims,omitempty"`
	// FlowSchemaUID and PriorityLevelUID are the UIDs by which priority and fairness names its objects in the answer.
	// Flow has these objects; they are read only where the scenario asks for them.
	FlowSchemaUID    string          `json:"flowSchemaUID,omitempty"`
	PriorityLevelUID string          `json:"priorityLevelUID,omitempty"`
	Flow             *scenarios.Flow `json:"flow,omitempty"`
	// Broken says how the connection ended without an answer, although the API server went on answering other requests.
	Broken   string   `json:"broken,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // the Warning headers
	// Held says what became of a watch that was kept open: Open, or how it ended before the client closed it.
	Held string `json:"held,omitempty"`
}

// Open is the state of a watch that was open until the client closed it.
const Open = "open"

// Review is a check as a webhook authorizer sees it: a SubjectAccessReview and its answer.
//
// It is recorded as it arrived at one point of the chain.
type Review struct {
	// Point is front (before every other authorizer), back (after all of them) or policy (the scripted webhook between
	// them).
	Point string `json:"point"`
	// Decision is what the answer of the scripted webhook, or its failure policy, amounts to in its chain. It is empty
	// at other points.
	Decision scenarios.Decision `json:"decision,omitempty"`
	At       time.Time          `json:"at"` // the time of arrival
	// APIVersion is authorization.k8s.io/v1. It is recorded because reports have always had it.
	APIVersion string                                  `json:"apiVersion"`
	Spec       authorizationv1.SubjectAccessReviewSpec `json:"spec"` // the review as it was asked
}

// MetricSample is the increase of one series over a request.
type MetricSample struct {
	Name     string `json:"name"` // the name of the series; that of a histogram ends with _count
	Mode     string `json:"mode"`
	Decision string `json:"decision"`
	Delta    int    `json:"delta"`
	// Type is that of the metric family, counter or histogram. Labels are the labels besides mode and decision, as
	// name=value.
	Type   string   `json:"type,omitempty"`
	Labels []string `json:"labels,omitempty"`
	// Seconds is the increase of the sum of a histogram of durations. It is nil for other metrics, and where nobody
	// looked.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Series returns the name of the sample's series, as scenarios write it.
func (m MetricSample) Series() string {
	labels := slices.Clone(m.Labels)
	for name, value := range map[string]string{"mode": m.Mode, "decision": m.Decision} {
		if value != "" {
			labels = append(labels, name+"="+value)
		}
	}
	slices.Sort(labels)
	return m.Name + "{" + strings.Join(labels, ",") + "}"
}

// CountsAllowed reports whether the sample's series counts allowed requests. Such a series increases by itself, because
// the API server also sends requests to itself.
func (m MetricSample) CountsAllowed() bool {
	return strings.HasPrefix(m.Name, "authorization_") && slices.Contains(m.Labels, "result=allowed")
}

// serverMade matches what an API server, or the harness in one run, generates: UIDs, and digests of client
// certificates.
var serverMade = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|X509SHA256=[0-9a-f]{64}`)

// localAddress matches an address on which something listens in one run. Messages may contain it.
var localAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Behaviour describes what a target did in a scenario, one line for each thing that was seen. It uses the scenario's
// own names, and leaves out what is generated anew in every run, so that two cells that behave alike give the same
// lines.
func Behaviour(e *Evidence) []string {
	back := make(map[string]string, len(e.Names))
	for name, unique := range e.Names {
		back[unique] = name
	}
	plain := func(s string) string {
		return localAddress.ReplaceAllString(serverMade.ReplaceAllString(scenarios.Rename(s, back), "<id>"), "<address>")
	}
	lines := seq.Map(e.Problems, func(p Problem) string { return "problem: " + plain(p.Text) })
	if u := e.UnappliedGrant; u != nil {
		lines = append(lines,
			plain(
				fmt.Sprintf(
					"step %d: allowed=%v, not %v as its roles and bindings say: %s",
					u.Step,
					u.Answer.Allowed,
					u.Want,
					describeSpec(u.Review),
				),
			),
		)
	}
	for i := range e.Steps {
		for _, l := range stepBehaviour(&e.Steps[i]) {
			lines = append(lines, fmt.Sprintf("step %d: %s", e.Steps[i].Step, plain(l)))
		}
	}
	return lines
}

// reviewBehaviour renders reviews in order, except that it sorts runs of checks of extra keys, whose order comes from a
// Go map.
func reviewBehaviour(decisions []DecidedReview) (lines []string) {
	extras := 0 // length of the run of extra checks at the end of lines
	for _, d := range decisions {
		lines = append(lines, "review: "+reviewUser(d.Spec).Render()+" "+RenderReview(Describe(d)))
		if a := d.Spec.ResourceAttributes; a != nil && a.Resource == "userextras" {
			extras++
			slices.Sort(lines[len(lines)-extras:])
			continue
		}
		extras = 0
	}
	return lines
}

// stepBehaviour describes what was seen of a step, one line for each thing that was seen.
func stepBehaviour(o *Observation) []string {
	if o.Client != nil {
		return clientBehaviour(o)
	}
	answer := fmt.Sprintf("answer %d", o.Response.Code)
	if st := StatusOf(o.Response); st != nil && st.Message != "" {
		answer += ": " + st.Message
	}
	lines := []string{o.Request.Method + " " + o.Request.URL, answer}
	decisions, stray := DeriveDecisions(o.Reviews)
	lines = append(lines, reviewBehaviour(decisions)...)
	lines = append(lines, seq.Map(stray, func(r Review) string { return "stray review: " + describeSpec(r.Spec) })...)
	if ev := AuditOf(o); ev != nil {
		if u := ev.ImpersonatedUser; u != nil {
			lines = append(lines, "audit: impersonated "+scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render())
		}
		lines = append(lines, seq.Map(scenarios.AuditFields(), func(f scenarios.AuditField) string {
			return "audit: " + f.Name + " " + f.Observed(ev)
		})...)
	}
	lines = append(lines, backendBehaviour(o)...)
	for _, m := range o.Metrics {
		if !strings.HasSuffix(m.Name, "_duration_seconds_count") {
			lines = append(lines, fmt.Sprintf("metric: %s{mode=%q,decision=%q} +%d", m.Name, m.Mode, m.Decision, m.Delta))
		}
	}
	return lines
}
