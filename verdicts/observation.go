// Package verdicts judges what was observed of a scenario against what the scenario expects. It is pure: no clock,
// no network, no files, so that anybody can recompute every verdict from the evidence.
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
// It is what was asked for.
type Cell struct {
	// Name is unique in a run and names the evidence folder, for example "1.37-gate-on".
	Name       string `json:"name"`
	Provider   string `json:"provider"`           // where the cluster comes from, for example local
	Kubernetes string `json:"kubernetes"`         // the version asked for, for example "1.37.1"
	Emulated   string `json:"emulated,omitempty"` // the --emulated-version asked for; empty is none
	// Nodes are the versions that were asked for of the nodes beside the control plane, one node each, separated by commas.
	// It is empty where nobody asked for one.
	Nodes string `json:"nodes,omitempty"`
	// ControlPlanes are the versions that were asked for of the API servers beside the first, one node of the control plane
	// each, separated by commas. It is empty where there is one API server.
	ControlPlanes string `json:"controlPlanes,omitempty"`
	// Gate is what was asked of ConstrainedImpersonation: on, off, default or absent.
	Gate scenarios.Gate `json:"gate"`
	// Unchanged asks for an API server that keeps its default admission plugins and metrics.
	Unchanged bool `json:"unchanged,omitempty"`
	// FeatureGate is another gate that the cell is about, beside ConstrainedImpersonation.
	FeatureGate FeatureGate `json:"featureGate,omitzero"`
}

// FeatureGate is a feature gate that a cell is about, and what was asked of it: on, off or default.
type FeatureGate struct {
	Name string         `json:"name"`
	Gate scenarios.Gate `json:"gate"`
}

// Evidence is all observations of a scenario on a cell, as a file.
//
// A verdict is a function of it and the scenario.
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
	// Substitutes says that service accounts stood for users (Scenario.Substitute).
	Substitutes bool `json:"substitutes,omitempty"`
	// Authorizer says that another authorizer than RBAC holds the grants.
	Authorizer bool `json:"authorizer,omitempty"`
	// ProvisionSeconds is how long it took to make what the requests need. That may have been done ahead, while the requests
	// of other scenarios were sent.
	ProvisionSeconds float64 `json:"provisionSeconds,omitempty"`
	// Started and Ended are when the first step began and the last one was over.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Steps are the observations of request steps; Step is the index in the scenario's steps.
	Steps []Observation `json:"steps"`
	// Unheeded is a grant or its end that the API server accepted, and that its access reviews did not show in time.
	Unheeded *Unheeded `json:"unheeded,omitempty"`
	// Problems are what broke in the harness or the environment. Any makes the verdict invalid.
	Problems []Problem `json:"problems,omitempty"`
	// Control is the evidence of the control run, made only after a failure: the same scenario again under fresh names.
	Control *Evidence `json:"control,omitempty"`
}

// Took returns how long provisioning and the steps of the scenario took together.
func (e *Evidence) Took() time.Duration {
	provisioning := time.Duration(e.ProvisionSeconds * float64(time.Second))
	return provisioning + max(0, e.Ended.Sub(e.Started))
}

// Problem is something that broke outside of the scenario's requests.
type Problem struct {
	Blame Blame `json:"blame"` // harness or environment
	// Text says what happened and, where known, what to do.
	Text string `json:"text"`
	// Answer is what the API server told an administrator who set the scenario up, where that is what broke.
	Answer *metav1.Status `json:"answer,omitempty"`
}

// Observation is what was seen of one request: answer, access reviews, audit event, metrics.
type Observation struct {
	Step     int         `json:"step"`     // the index of the step in the scenario, from 0
	Request  SentRequest `json:"request"`  // what was sent, without credentials
	Response Response    `json:"response"` // what came back
	// Reviews arrived at both points of the recorder during the request, in this order. Nil where the target has none.
	Reviews []Review `json:"reviews"`
	// Audit is the request's audit event as written by the API server; nil where the target shows none.
	Audit json.RawMessage `json:"audit,omitempty"`
	// AuditStarted is the event that was written as the answer to a request that runs long began (a watch, an exec), or the
	// word none; nil where nobody looked.
	AuditStarted json.RawMessage `json:"auditStarted,omitempty"`
	// AuditAgain is a second event of the request's end.
	AuditAgain json.RawMessage `json:"auditAgain,omitempty"`
	// NoAudit says what was waited for where the API server wrote no audit event, though it did of the request that
	// was sent to find out.
	NoAudit string `json:"noAudit,omitempty"`
	// Metrics are the increases of the impersonation series over the request; nil where the target has none.
	Metrics []MetricSample `json:"metrics"`
	// Backend are the requests that reached the aggregated API server meanwhile, Admission the users that the
	// admission webhook was told of.
	Backend   []BackendRequest `json:"backend,omitempty"`
	Admission []scenarios.User `json:"admission,omitempty"`
	// Counters are the increases of the authorization metrics over the request, and Log is what the API server
	// logged about its URL meanwhile; both only where the scenario asks for them.
	Counters []MetricSample `json:"counters,omitzero"`
	Log      []string       `json:"log,omitzero"`
	// Client is set where a client program was run in place of one request: what became of it. Requests are those it
	// sent, in order, each observed as a request step is; the fields above but Request.Requestor are empty then.
	Client   *ClientRun    `json:"client,omitempty"`
	Requests []Observation `json:"requests,omitempty"`
	// Sent and Answered are the times of the request.
	Sent     time.Time `json:"sent"`
	Answered time.Time `json:"answered"`
}

// BackendRequest is a request as it reached the aggregated API server.
type BackendRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// User is what the API server's X-Remote- headers say.
	User scenarios.User `json:"user"`
	// Impersonation are the impersonation headers that were left.
	Impersonation map[string][]string `json:"impersonation,omitempty"`
}

// ClientRun is one run of a client program.
type ClientRun struct {
	Command   string `json:"command"`             // as it would be typed
	UserAgent string `json:"userAgent,omitempty"` // what the program called itself, with its version
	ExitCode  int    `json:"exitCode"`
	// Stdout and Stderr are the first 64 KiB of its output.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// SentRequest is a request as it was sent, without its credentials; Requestor says who authenticated.
type SentRequest struct {
	Requestor string `json:"requestor"`
	// Credential is who the credential says that it is of, read from it as it was sent: the claims of a token, the
	// headers of a proxy, or a client certificate. Nil where none was sent.
	Credential *scenarios.User `json:"credential,omitempty"`
	// Others are whom the further credentials of the request name, in the order of the scenario.
	Others []*scenarios.User `json:"others,omitempty"`

	Method    string              `json:"method"`
	URL       string              `json:"url"`
	UserAgent string              `json:"userAgent,omitempty"`
	Headers   map[string][]string `json:"headers,omitempty"`
	Body      json.RawMessage     `json:"body,omitempty"`
	// Claims are those of the token that a TokenReview asks about.
	Claims json.RawMessage `json:"claims,omitempty"`
}

// Unread reports whether an API server cannot tell what the request is about: it answers with an error, and no audit event.
func (r SentRequest) Unread() bool {
	address, err := url.Parse(r.URL)
	if err == nil {
		_, err = scenarios.RequestInfo(r.Method, address)
	}
	return err != nil
}

// RunsLong reports whether the API server takes the request for one that runs long, for which it writes an audit event as the
// answer begins (BasicLongRunningRequestCheck in k8s.io/apiserver/pkg/server/filters).
func (r SentRequest) RunsLong() bool {
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
	// Body is the first 64 KiB of the answer, as text; of an exec that was let through, those of what the command
	// wrote.
	Body string `json:"body,omitempty"`
	// Claims are those of the token that the answer to a TokenRequest has.
	Claims json.RawMessage `json:"claims,omitempty"`
	// FlowSchemaUID and PriorityLevelUID are what priority and fairness names itself by in the answer, and Flow are
	// the objects that have these UIDs, read where the scenario asks for them.
	FlowSchemaUID    string          `json:"flowSchemaUID,omitempty"`
	PriorityLevelUID string          `json:"priorityLevelUID,omitempty"`
	Flow             *scenarios.Flow `json:"flow,omitempty"`
	// Broken says how the connection ended without an answer, while the API server went on answering others.
	Broken   string   `json:"broken,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // the Warning headers
	// Held says what became of a watch that was kept open: Open, or how it ended before it was hung up.
	Held string `json:"held,omitempty"`
}

// Open is a watch that was open until it was hung up.
const Open = "open"

// Review is a check as a webhook authorizer sees it: a SubjectAccessReview and its answer.
//
// It is kept as it arrived at one point of the chain.
type Review struct {
	// Point is front (before every other authorizer), back (after them), or policy: the scripted webhook among them.
	Point string `json:"point"`
	// Decision is what the scripted webhook's answer, or failure policy, amounts to in its chain; empty at other points.
	Decision scenarios.Decision `json:"decision,omitempty"`
	At       time.Time          `json:"at"` // the time of arrival
	// APIVersion is authorization.k8s.io/v1: reports have had it from the beginning.
	APIVersion string                                  `json:"apiVersion"`
	Spec       authorizationv1.SubjectAccessReviewSpec `json:"spec"` // the review as asked
}

// MetricSample is the increase of one series over a request.
type MetricSample struct {
	Name     string `json:"name"` // the series, for a histogram with _count
	Mode     string `json:"mode"`
	Decision string `json:"decision"`
	Delta    int    `json:"delta"`
	// Type is that of the family, counter or histogram, and Labels are those besides mode and decision, as name=value.
	Type   string   `json:"type,omitempty"`
	Labels []string `json:"labels,omitempty"`
	// Seconds is, for a histogram of durations, the increase of its sum; nil where it was not looked at.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Series returns the name of the sample's series as scenarios have it.
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

// CountsAllowed reports whether the sample's series counts the requests that were allowed. It moves by itself, because the API
// server also asks itself.
func (m MetricSample) CountsAllowed() bool {
	return strings.HasPrefix(m.Name, "authorization_") && slices.Contains(m.Labels, "result=allowed")
}

// serverMade matches what an API server, or the harness for one run, makes up: UIDs, and the digests of client certificates.
var serverMade = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|X509SHA256=[0-9a-f]{64}`)

// localAddress matches where something listens for one run, which a message may name.
var localAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Behaviour describes what a target did in a scenario, a line per thing seen, with the scenario's own names and without
// what is generated anew in every run. Two cells that behave alike give the same lines.
func Behaviour(e *Evidence) []string {
	back := make(map[string]string, len(e.Names))
	for name, unique := range e.Names {
		back[unique] = name
	}
	plain := func(s string) string {
		return localAddress.ReplaceAllString(serverMade.ReplaceAllString(scenarios.Rename(s, back), "<id>"), "<address>")
	}
	lines := seq.Map(e.Problems, func(p Problem) string { return "problem: " + plain(p.Text) })
	if u := e.Unheeded; u != nil {
		lines = append(lines, plain(fmt.Sprintf("step %d: allowed=%v, not %v as its roles and bindings say: %s", u.Step, u.Answer.Allowed, u.Want, describe(u.Review))))
	}
	for i := range e.Steps {
		for _, l := range stepBehaviour(&e.Steps[i]) {
			lines = append(lines, fmt.Sprintf("step %d: %s", e.Steps[i].Step, plain(l)))
		}
	}
	return lines
}

// reviewBehaviour renders reviews in order, but for runs of extra checks, whose keys come from a Go map.
func reviewBehaviour(decided []Decided) (lines []string) {
	extras := 0 // length of the run of extra checks at the end of lines
	for _, d := range decided {
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

// stepBehaviour describes what was seen of a step, a line per thing seen.
func stepBehaviour(o *Observation) []string {
	if o.Client != nil {
		return clientBehaviour(o)
	}
	answer := fmt.Sprintf("answer %d", o.Response.Code)
	if st := StatusOf(o.Response); st != nil && st.Message != "" {
		answer += ": " + st.Message
	}
	lines := []string{o.Request.Method + " " + o.Request.URL, answer}
	decided, stray := Fold(o.Reviews)
	lines = append(lines, reviewBehaviour(decided)...)
	lines = append(lines, seq.Map(stray, func(r Review) string { return "stray review: " + describe(r.Spec) })...)
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
