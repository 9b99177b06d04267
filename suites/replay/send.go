package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// bodyLimit is how much of an answer is kept as evidence.
const bodyLimit = 64 << 10

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

// httpRequest renders a scenario's request.
func httpRequest(ctx context.Context, host string, r *scenarios.Request) (*http.Request, error) {
	method, ok := methods[r.Verb]
	if r.Path != "" {
		method, ok = strings.ToUpper(r.Verb), true
	}
	if !ok {
		return nil, fmt.Errorf("no HTTP method is known for the verb %q", r.Verb)
	}
	var body io.Reader
	if r.Body != nil {
		raw, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	target := host + requestPath(r)
	if q := requestQuery(r); len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", contentType(r.Verb))
	}
	return req, nil
}

func contentType(verb string) string {
	if verb == "patch" {
		return "application/merge-patch+json"
	}
	return "application/json"
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
		// As informers list: any state will do. Without it the API server waits up
		// to 100 ms for its cache to be confirmed as the newest, after everything
		// that is looked at here.
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
	o := verdicts.Observation{Step: step, Request: verdicts.SentRequest{Requestor: run.bound.Requestors[r.By].Username()}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := httpRequest(ctx, run.target.Host(), r)
	if err != nil {
		return o, err
	}
	if r.Body != nil {
		if o.Request.Body, err = json.Marshal(r.Body); err != nil {
			return o, err
		}
	}
	client, err := run.client(r, func(sent *http.Request) {
		o.Request.Method, o.Request.URL, o.Request.Headers = sent.Method, sent.URL.RequestURI(), shownHeaders(sent.Header)
	})
	if err != nil {
		return o, err
	}
	seen, err := run.target.Observe(ctx, func() (string, error) {
		o.Sent = time.Now()
		defer func() { o.Answered = time.Now() }()
		o.Response, err = roundTrip(client, req, r.Verb == "watch")
		return o.Response.AuditID, err
	})
	if err != nil {
		return o, fmt.Errorf("step %d, %s %s: %w", step, req.Method, req.URL.RequestURI(), err)
	}
	o.Reviews, o.Audit, o.Metrics = seen.Reviews, seen.Audit, seen.Metrics
	return o, nil
}

// roundTrip reads the answer. A watch that was let through has no end: it is
// hung up as soon as its headers are there.
func roundTrip(client *http.Client, req *http.Request, watch bool) (verdicts.Response, error) {
	resp, err := client.Do(req)
	if err != nil {
		return verdicts.Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	r := verdicts.Response{Code: resp.StatusCode, AuditID: resp.Header.Get("Audit-Id"), Warnings: resp.Header.Values("Warning")}
	if watch && resp.StatusCode == http.StatusOK {
		return r, nil
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
// those that every request has.
func shownHeaders(h http.Header) map[string][]string {
	shown := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !credential(name) && name != "User-Agent" && name != "Accept" {
			shown[name] = slices.Clone(h[name])
		}
	}
	return shown
}
