package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// bodyLimit is how much of an answer is kept as evidence.
const bodyLimit = 64 << 10

// auditIDHeader names the audit event of a request.
const auditIDHeader = "Audit-Id"

// requestTimeout ends a request that the API server does not answer. Nothing in
// a scenario takes that long: the time belongs to a broken environment.
const requestTimeout = 60 * time.Second

// NewRequest is a scenario's request as HTTP, without requestor and headers of impersonation.
func NewRequest(ctx context.Context, host string, r *scenarios.Request) (*http.Request, error) {
	method := r.Method()
	if method == "" {
		return nil, fmt.Errorf("no HTTP method is known for the verb %q", r.Verb)
	}
	var body io.Reader
	raw, err := r.Content()
	if err != nil {
		return nil, err
	}
	if raw != nil {
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, host+r.URI(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if raw != nil {
		req.Header.Set("Content-Type", r.ContentType())
	}
	for name, value := range r.Upgrade.Headers() {
		req.Header.Set(name, value)
	}
	if r.Upgrade != "" {
		// The answer may be the kubelet's own. It takes nobody who wants JSON alone, and
		// its headers know no audit ID: the request brings that.
		req.Header.Set("Accept", "application/json, */*")
		req.Header.Set(auditIDHeader, string(uuid.NewUUID()))
	}
	return req, nil
}

// send sends the request of one step and observes it.
func (run *run) send(ctx context.Context, step int, r *scenarios.Request) (verdicts.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := verdicts.Observation{Step: step}
	client, req, err := run.prepare(ctx, run.target.Host(), r, &o.Request)
	if err != nil {
		return o, err
	}
	seen, err := run.target.Observe(ctx, func() (string, error) {
		o.Sent = time.Now()
		defer func() { o.Answered = time.Now() }()
		o.Response, err = RoundTrip(client, req, r.Verb == "watch")
		if err == nil && o.Response.Code == http.StatusRequestHeaderFieldsTooLarge {
			return target.NoAudit, nil
		}
		return o.Response.AuditID, err
	})
	if err != nil {
		return o, fmt.Errorf("step %d, %s %s: %w", step, req.Method, req.URL.RequestURI(), err)
	}
	o.Reviews, o.Audit, o.Metrics, o.Backend = seen.Reviews, seen.Audit, seen.Metrics, seen.Backend
	o.NoAudit, o.Response.Broken = seen.NoAudit, seen.Broken
	return o, nil
}

// prepare renders a request and its requestor's client. What is sent is written to shown as it leaves.
func (run *run) prepare(ctx context.Context, host string, r *scenarios.Request, shown *verdicts.SentRequest) (*http.Client, *http.Request, error) {
	shown.Requestor = run.bound.Requestors[r.By].Username()
	req, err := NewRequest(ctx, host, r)
	if err != nil {
		return nil, nil, err
	}
	client, err := run.client(r, func(sent *http.Request) { Record(shown, sent) })
	return client, req, err
}

// RoundTrip sends a request and reads the answer. A watch that was let through has no end: it is hung up as soon as its headers are
// there. So is an upgraded connection, but for an exec's, which ends with the command.
func RoundTrip(client *http.Client, req *http.Request, watch bool) (verdicts.Response, error) {
	resp, err := client.Do(req)
	if err != nil {
		return verdicts.Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	r := verdicts.Response{Code: resp.StatusCode, AuditID: resp.Header.Get(auditIDHeader), Warnings: resp.Header.Values("Warning")}
	if r.AuditID == "" {
		r.AuditID = req.Header.Get(auditIDHeader)
	}
	switch {
	case watch && resp.StatusCode == http.StatusOK:
		return r, nil
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if resp.Header.Get("Upgrade") == "websocket" && strings.HasSuffix(req.URL.Path, "/exec") {
			r.Body, err = output(resp)
		}
		return r, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err != nil {
		return r, fmt.Errorf("reading the answer: %w", err)
	}
	r.Body = string(body)
	return r, nil
}
