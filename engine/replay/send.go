package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// methods are the HTTP methods of the request verbs, as
// k8s.io/apiserver/pkg/endpoints/request/requestinfo.go reads them.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet,
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch,
	"delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// NewRequest is a scenario's request as HTTP, without requestor and headers of impersonation.
func NewRequest(ctx context.Context, host string, r *scenarios.Request) (*http.Request, error) {
	method, ok := methods[r.Verb]
	if r.Path != "" {
		method, ok = strings.ToUpper(r.Verb), true
	}
	if !ok {
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
	address := host + requestPath(r)
	if q := requestQuery(r); len(q) > 0 {
		address += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
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

// requestPath is the path of a resource request, or the path as it is given.
func requestPath(r *scenarios.Request) string {
	if r.Path != "" {
		return r.Path
	}
	version := r.Version
	if version == "" {
		version = "v1"
	}
	path := "/apis/" + r.APIGroup + "/" + version
	if r.APIGroup == "" {
		path = "/api/" + version
	}
	if r.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(r.Namespace)
	}
	for _, part := range []string{r.Resource, r.Name, r.Subresource} {
		if part != "" {
			path += "/" + url.PathEscape(part)
		}
	}
	return path
}

func requestQuery(r *scenarios.Request) url.Values {
	q := url.Values{}
	switch {
	case r.Verb == "watch":
		q.Set("watch", "true")
	case r.Verb == "list" && r.Path == "":
		// As informers list: any state will do. Without it the API server waits up to 100 ms for its cache to be
		// confirmed as the newest, after everything that is looked at here.
		q.Set("resourceVersion", "0")
	}
	for k, v := range r.Query {
		q.Set(k, v)
	}
	if r.FieldSelector != "" {
		q.Set("fieldSelector", r.FieldSelector)
	}
	if r.LabelSelector != "" {
		q.Set("labelSelector", r.LabelSelector)
	}
	return q
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
	return o, nil
}

// prepare renders a request and its requestor's client. What is sent is written to shown as it leaves.
func (run *run) prepare(ctx context.Context, host string, r *scenarios.Request, shown *verdicts.SentRequest) (*http.Client, *http.Request, error) {
	shown.Requestor = run.bound.Requestors[r.By].Username()
	req, err := NewRequest(ctx, host, r)
	if err != nil {
		return nil, nil, err
	}
	if shown.Body, err = r.Content(); err != nil {
		return nil, nil, err
	}
	client, err := run.client(r, func(sent *http.Request) {
		shown.Method, shown.URL, shown.Headers = sent.Method, sent.URL.RequestURI(), shownHeaders(sent.Header)
	})
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

// credential says whether a header is one that never becomes evidence.
func credential(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, "X-Remote-")
}

// shownHeaders are the headers of a request without credentials and without
// those that every request has, or that are others each time.
func shownHeaders(h http.Header) map[string][]string {
	shown := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !credential(name) && name != "User-Agent" && name != "Accept" && name != auditIDHeader {
			shown[name] = shownValues(h[name])
		}
	}
	return shown
}

// shownLimit is how much of a header's value is kept as evidence.
const shownLimit = 4 << 10

// shownValues are values as evidence can hold them: not too long, and quoted if they are no UTF-8.
func shownValues(values []string) []string {
	shown := make([]string, 0, len(values))
	for _, v := range values {
		if !utf8.ValidString(v) {
			v = strconv.Quote(v)
		}
		if len(v) > shownLimit {
			v = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(v[:shownLimit], ""), len(v))
		}
		shown = append(shown, v)
	}
	return shown
}
