// Package evidencetest makes evidence for tests. It is what would be seen of a server that does what a scenario
// expects.
package evidencetest

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Epoch is when evidence begins for a test that has no other time.
var Epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

//go:embed scenarios fixtures
var files embed.FS

// Scenarios and Fixtures are the files of a few scenarios for tests.
var (
	Scenarios = sub("scenarios")
	Fixtures  = sub("fixtures")
)

func sub(folder string) fs.FS {
	folderFS, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // The folder is embedded.
	}
	return folderFS
}

// Load loads these scenarios.
func Load(t testing.TB) *scenarios.Set {
	t.Helper()
	set, err := scenarios.Load(Scenarios, Fixtures)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// LocalFacts are the facts of a local control plane of the newest version; with the gate off there are no impersonation
// metrics.
func LocalFacts(gate scenarios.Gate) scenarios.Facts {
	can := slices.DeleteFunc(scenarios.AllCapabilities(), func(c scenarios.Capability) bool {
		lacksMetrics := c == scenarios.Metrics && gate == scenarios.GateOff
		return lacksMetrics || c == scenarios.KubeletNodes
	})
	return scenarios.Facts{Kubernetes: "1.37.1", Binary: "1.37.1", Gate: gate, Capabilities: can}
}

// Perfect returns the evidence of a server that does what the scenario expects. No rule of the judge may find a
// difference in it, so what a new rule looks at has to be added here.
func Perfect(s *scenarios.Scenario, cell verdicts.Cell, can []scenarios.Capability, suffix string, begin time.Time) *verdicts.Evidence {
	bound, names := s.Bind(suffix)
	e := &verdicts.Evidence{
		Scenario: s.ID, Digest: s.Digest, Cell: cell, Capabilities: can, Suffix: suffix, Names: names,
		Started: begin,
	}
	at := e.Started.Add(4 * time.Millisecond)
	for i := range bound.Steps {
		st := &bound.Steps[i]
		if st.Request == nil {
			at = at.Add(time.Duration(st.Wait))
			continue
		}
		o := observe(i, st, bound.Requestors[st.Request.By], at)
		if n := len(o.Reviews); n > 0 {
			if reasons := bound.AllowedBy(o.Reviews[n-1].Spec); len(reasons) > 0 {
				raw, _ := json.Marshal(everywhere(o.Reviews[n-1].Spec.User))
				this, _ := json.Marshal(reasons[0])
				o.Audit = bytes.Replace(o.Audit, raw, this, 1)
			}
		}
		e.Steps = append(e.Steps, o)
		at = at.Add(7 * time.Millisecond)
	}
	e.Ended = at
	return e
}

// everywhere returns the reason that RBAC gives where it allows by a binding that every cluster has.
func everywhere(user string) string {
	return fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of ClusterRole %q to User %q", "system:any", "system:any", user)
}

// observe returns what would be seen of one request.
func observe(i int, st *scenarios.Step, requestor scenarios.Requestor, at time.Time) verdicts.Observation {
	r, x := st.Request, st.Expect
	o := verdicts.Observation{
		Step: i, Sent: at, Answered: at.Add(3 * time.Millisecond), Metrics: []verdicts.MetricSample{},
		Request: verdicts.SentRequest{Requestor: requestor.Username(), Method: r.Method(), UserAgent: r.UserAgent()},
	}
	user := verdictUser(requestor)
	credential := user
	credential.Groups = slices.DeleteFunc(slices.Clone(user.Groups), func(g string) bool { return g == "system:authenticated" })
	o.Request.Credential, o.Request.URL, o.Request.Headers = &credential, r.URI(), r.WireHeaders()
	impersonated := scenarios.User{}
	if r.Impersonate != nil {
		impersonated = r.RequestedUser()
	}
	if x.User != nil {
		impersonated = *x.User
	}
	for _, w := range x.Reviews {
		for _, review := range append(w.Unordered, w)[:max(1, len(w.Unordered))] {
			o.Reviews = append(o.Reviews, makeReviews(review, user, impersonated, at)...)
		}
	}
	if x.Reviews == nil && x.User != nil {
		final := scenarios.Review{
			By:        scenarios.ByImpersonated,
			Verb:      r.Verb,
			Version:   "v1",
			Resource:  r.Resource,
			Namespace: r.Namespace,
			Decision:  scenarios.Allow,
		}
		o.Reviews = makeReviews(final, user, impersonated, at)
	}
	o.Metrics = makeMetrics(o.Reviews, x, requestor)
	o.Response, o.Audit = makeResponse(x, r, user, impersonated, at)
	return o
}

func verdictUser(requestor scenarios.Requestor) scenarios.User {
	if requestor.ServiceAccount != nil {
		return scenarios.User{
			Name: requestor.Username(),
			Groups: []string{
				"system:serviceaccounts",
				"system:serviceaccounts:" + requestor.ServiceAccount.Namespace,
				"system:authenticated",
			},
			Extra: map[string][]string{
				"authentication.kubernetes.io/pod-name":  {requestor.ServiceAccount.Pod},
				"authentication.kubernetes.io/node-name": {requestor.ServiceAccount.Node},
			},
		}
	}
	return scenarios.User{
		Name:   requestor.User,
		UID:    requestor.UID,
		Groups: append(slices.Clone(requestor.Groups), "system:authenticated"),
		Extra:  requestor.Extra,
	}
}

// makeReviews returns one review as it arrives: at both points, or only at the front if an authorizer between them
// allows it.
func makeReviews(w scenarios.Review, requestor, impersonated scenarios.User, at time.Time) []verdicts.Review {
	u := requestor
	if w.By == scenarios.ByImpersonated {
		u = impersonated
	} else if strings.Contains(w.Verb, ":associated-node") {
		u.Extra = map[string][]string{"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(u.Extra))}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   u.Name,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  extraOf[authorizationv1.ExtraValue](u),
	}
	if w.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: w.Path, Verb: w.Verb}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace:   w.Namespace,
			Verb:        w.Verb,
			Group:       w.Group,
			Version:     w.Version,
			Resource:    w.Resource,
			Subresource: w.Subresource,
			Name:        w.Name,
		}
		if k, v, ok := strings.Cut(w.FieldSelector, "="); ok {
			spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{
				Requirements: []metav1.FieldSelectorRequirement{{Key: k, Operator: metav1.FieldSelectorOpIn, Values: []string{v}}},
			}
		}
	}
	front := verdicts.Review{Point: verdicts.Front, At: at.Add(time.Millisecond), APIVersion: "authorization.k8s.io/v1", Spec: spec}
	if w.Decision == scenarios.Allow {
		return []verdicts.Review{front}
	}
	back := front
	back.Point = verdicts.Back
	return []verdicts.Review{front, back}
}

func extraOf[V ~[]string](u scenarios.User) map[string]V {
	if len(u.Extra) == 0 {
		return nil
	}
	extra := map[string]V{}
	for key, values := range u.Extra {
		extra[key] = values
	}
	return extra
}

// makeMetrics returns the metrics that an API server would count for these reviews.
func makeMetrics(reviews []verdicts.Review, x *scenarios.Expect, requestor scenarios.Requestor) []verdicts.MetricSample {
	samples := []verdicts.MetricSample{}
	add := func(name, mode, decision string, n int) {
		for _, full := range []string{name + "_total", name + "_duration_seconds_count"} {
			samples = append(samples, verdicts.MetricSample{Name: full, Mode: mode, Decision: decision, Delta: n})
		}
	}
	decisions, _ := verdicts.DeriveDecisions(reviews)
	for _, d := range decisions {
		decision := "allowed"
		if d.Decision != scenarios.Allow {
			decision = "denied"
		}
		if mode, ok := scenarios.ImpersonationMode(verdicts.Describe(d).Verb); ok && d.Spec.User == requestor.Username() {
			add("apiserver_impersonation_authorization_attempts", mode, decision, 1)
		}
	}
	if x.Metrics != nil {
		for _, m := range x.Metrics.Attempts {
			add("apiserver_impersonation_attempts", m.Mode, m.Decision, m.Count)
		}
	}
	return samples
}

// aboutWhat matches what a refusal is about: its resource, API group and name.
var aboutWhat = regexp.MustCompile(`^([^. ]+)(?:\.(\S+))?(?: "(.*)")? is forbidden: `)

// makeResponse returns the response with its audit event.
func makeResponse(
	x *scenarios.Expect,
	r *scenarios.Request,
	user, impersonated scenarios.User,
	at time.Time,
) (verdicts.Response, json.RawMessage) {
	id := types.UID(fmt.Sprintf("0b4c1f52-6f0e-4a53-9d4a-%012x", at.Sub(Epoch).Milliseconds()))
	logged := &metav1.Status{Code: 200}
	resp := verdicts.Response{
		Code:    200,
		AuditID: string(id),
		Body:    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"412"},"items":[]}`,
	}
	ev := auditv1.Event{
		TypeMeta:   metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"},
		Level:      auditv1.LevelMetadata,
		AuditID:    id,
		Stage:      auditv1.StageResponseComplete,
		RequestURI: r.URI(),
		Verb:       r.Verb,
		SourceIPs:  []string{"127.0.0.1"},
		UserAgent:  "authzconf",
		User: authenticationv1.UserInfo{
			Username: user.Name,
			UID:      user.UID,
			Groups:   user.Groups,
			Extra:    extraOf[authenticationv1.ExtraValue](user),
		},
		RequestReceivedTimestamp: metav1.NewMicroTime(at),
		StageTimestamp:           metav1.NewMicroTime(at.Add(2 * time.Millisecond)),
	}
	if r.Path == "" {
		ev.ObjectRef = &auditv1.ObjectReference{
			Resource:   r.Resource,
			Namespace:  r.Namespace,
			Name:       r.Name,
			APIGroup:   r.APIGroup,
			APIVersion: r.APIVersion(),
		}
	}
	if x.Outcome == scenarios.Allowed {
		ev.Annotations = map[string]string{
			"authorization.k8s.io/decision": "allow",
			"authorization.k8s.io/reason":   everywhere(cmp.Or(impersonated.Name, user.Name)),
		}
		if impersonated.Name != "" {
			ev.ImpersonatedUser = &authenticationv1.UserInfo{
				Username: impersonated.Name,
				UID:      impersonated.UID,
				Groups:   impersonated.Groups,
				Extra:    extraOf[authenticationv1.ExtraValue](impersonated),
			}
		}
	} else {
		resp.Code = 403
		if x.Outcome == scenarios.RequestForbidden {
			ev.Annotations = map[string]string{"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
		}
		logged = &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: x.Message,
			Reason: metav1.StatusReasonForbidden, Code: 403,
		}
		if match := aboutWhat.FindStringSubmatch(x.Message); match != nil {
			logged.Details = &metav1.StatusDetails{Kind: match[1], Group: match[2], Name: match[3]}
		}
		body, _ := json.Marshal(logged)
		resp.Body = string(body)
	}
	if x.Audit != nil && x.Audit.Constraint != nil && *x.Audit.Constraint != "" {
		ev.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: *x.Audit.Constraint}
	}
	ev.ResponseStatus = logged
	raw, _ := json.Marshal(ev)
	return resp, raw
}
