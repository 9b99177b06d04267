package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const bodyLimit = 64 << 10

const auditIDHeader = "Audit-Id"

// requestTimeout ends a request that the API server does not answer: nothing in a scenario takes that long.
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
	req.Header.Set("Accept", r.Accept())
	req.Header.Set("User-Agent", r.UserAgent())
	if raw != nil {
		req.Header.Set("Content-Type", r.ContentType())
	}
	for name, value := range r.Upgrade.Headers() {
		req.Header.Set(name, value)
	}
	if r.Upgrade != "" {
		// The answer may be the kubelet's own, which refuses who wants JSON alone and knows no audit ID: the request has it.
		req.Header.Set("Accept", "application/json, */*")
		req.Header.Set(auditIDHeader, string(uuid.NewUUID()))
	}
	return req, nil
}

// send sends the requests of one step, and of those beside it, at the same time, and observes them. Reviews, metrics and
// what reached others belong to all of them, and are the first one's.
func (run *run) send(ctx context.Context, first int, steps []scenarios.Step) ([]verdicts.Observation, error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	observations := make([]verdicts.Observation, len(steps))
	var exchanges []func() error
	for i := range steps {
		o, r := &observations[i], steps[i].Request
		o.Step = first + i
		stepCtx := ctx
		if r.Hold {
			stepCtx = whole
		}
		client, req, err := run.prepare(stepCtx, run.target.Host(), r, &o.Request)
		if err != nil {
			return nil, err
		}
		exchanges = append(exchanges, func() error { return run.exchange(client, req, r, o) })
	}
	o, expect := &observations[0], steps[0].Expect
	err := run.target.Observe(ctx, o, func() error {
		err := run.measure(ctx, expect, o, func() error { return runTogether(exchanges) })
		for i := range observations[1:] {
			if other := &observations[1+i]; err == nil {
				other.Audit, err = run.target.Event(ctx, other.Response.AuditID)
			}
		}
		return err
	})
	if err != nil {
		return observations, fmt.Errorf("step %d, %s %s: %w", first, o.Request.Method, o.Request.URL, err)
	}
	if expect != nil && expect.Flow != nil {
		o.Response.Flow, err = run.admin.flow(ctx, o.Response)
	}
	return observations, err
}

// runTogether runs functions at the same time, and returns the error of the first that fails.
func runTogether(list []func() error) error {
	var group errgroup.Group
	for _, one := range list {
		group.Go(one)
	}
	return group.Wait()
}

// exchange sends a request and reads the answer. A watch that is to be held stays open.
func (run *run) exchange(client *http.Client, req *http.Request, r *scenarios.Request, o *verdicts.Observation) (err error) {
	o.Sent = time.Now()
	defer func() { o.Answered = time.Now() }()
	if !r.Hold {
		o.Response, err = RoundTrip(client, req, r.Verb == "watch")
		o.Response.Claims = verdicts.ClaimsIn([]byte(o.Response.Body))
		return err
	}
	var hangUp func() string
	if o.Response, hangUp, err = OpenWatch(client, req); hangUp != nil {
		run.held = append(run.held, openWatch{o.Step, hangUp})
	}
	return err
}

// measure sends, and reads what the step says of the API server's own counters and log before and after. The log is that of
// a process of this machine, which is set to log refusals meanwhile.
func (run *run) measure(ctx context.Context, e *scenarios.Expect, o *verdicts.Observation, send func() error) (err error) {
	if e == nil {
		return send()
	}
	if e.Counters == nil && e.Log == nil {
		return send()
	}
	file := filepath.Join(run.target.Dir(), "kube-apiserver.log")
	before, unread := os.ReadFile(file)
	verbosity := func(level string) error {
		return run.admin.client.CoreV1().RESTClient().Put().AbsPath("/debug/flags/v").Body([]byte(level)).Do(ctx).Error()
	}
	increases, err := run.target.CountAuthorization(ctx)
	if err := errors.Join(err, verbosity("4")); err != nil {
		return err
	}
	err = errors.Join(send(), verbosity("0"))
	var countErr error
	o.Counters, countErr = increases()
	now, _ := os.ReadFile(file)
	if unread != nil || len(now) < len(before) {
		return errors.Join(err, countErr)
	}
	o.Log = []string{}
	for line := range strings.Lines(string(now[len(before):])) {
		if strings.Contains(line, o.Request.URL) {
			o.Log = append(o.Log, strings.TrimSpace(line))
		}
	}
	return errors.Join(err, countErr)
}

// flow reads which objects an answer names as its flow schema and priority level; none where it names none.
func (p *provisioner) flow(ctx context.Context, r verdicts.Response) (_ *scenarios.Flow, err error) {
	named := func(resource, uid string) string {
		var list metav1.PartialObjectMetadataList
		raw, getErr := p.client.FlowcontrolV1().RESTClient().Get().Resource(resource).SetHeader("Accept", "application/json").DoRaw(ctx)
		err = errors.Join(err, getErr)
		if getErr == nil {
			err = errors.Join(err, json.Unmarshal(raw, &list))
		}
		for _, o := range list.Items {
			if string(o.UID) == uid {
				return o.Name
			}
		}
		return uid
	}
	flow := &scenarios.Flow{
		Schema:        named("flowschemas", r.FlowSchemaUID),
		PriorityLevel: named("prioritylevelconfigurations", r.PriorityLevelUID),
	}
	return flow, err
}

// prepare renders a request and its requestor's client. What is sent is written to sentRequest as it leaves.
func (run *run) prepare(
	ctx context.Context,
	host string,
	r *scenarios.Request,
	sentRequest *verdicts.SentRequest,
) (*http.Client, *http.Request, error) {
	sentRequest.Requestor = run.bound.Requestors[r.By].Username()
	req, err := NewRequest(ctx, host, r.WithTokens(run.tokens))
	if err != nil {
		return nil, nil, err
	}
	tap := func(req *http.Request) {
		Record(sentRequest, req)
		run.recordCredentials(sentRequest, r, req.Header)
	}
	client, err := run.target.RequestClient(r, run.credentials(r), tap)
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
	return read(resp, req, watch)
}

// OpenWatch sends a request for a watch. If it is let through it stays open until hangUp, which returns what has become of it,
// or until the end of the request's context.
func OpenWatch(client *http.Client, req *http.Request) (r verdicts.Response, hangUp func() string, err error) {
	ctx, cancel := context.WithCancel(req.Context())
	timer := time.AfterFunc(requestTimeout, cancel)
	resp, err := client.Do(req.WithContext(ctx)) //nolint:bodyclose // the watch is read to its end below
	if timer.Stop(); err != nil {
		cancel()
		return r, nil, err
	}
	r, err = read(resp, req, true)
	if resp.StatusCode != http.StatusOK {
		cancel()
		return r, nil, errors.Join(err, resp.Body.Close())
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- errors.Join(err, resp.Body.Close())
	}()
	r.Held = verdicts.Open
	return r, func() string {
		defer cancel()
		select {
		case err := <-ended:
			return fmt.Sprint("ended by itself: ", cmp.Or(err, io.EOF))
		default:
			return verdicts.Open
		}
	}, err
}

// read reads an answer, of a watch only its head.
func read(resp *http.Response, req *http.Request, watch bool) (r verdicts.Response, err error) {
	r = verdicts.Response{
		Code:             resp.StatusCode,
		AuditID:          resp.Header.Get(auditIDHeader),
		Warnings:         resp.Header.Values("Warning"),
		FlowSchemaUID:    resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
		PriorityLevelUID: resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID),
	}
	r.AuditID = cmp.Or(r.AuditID, req.Header.Get(auditIDHeader))
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

// What the frames of a WebSocket connection are (RFC 6455, section 5.2), and the
// channels of v5.channel.k8s.io, which are the first byte of a message.
const (
	opcodeBits = 0x0f
	closeFrame = 0x8
	lengthBits = 0x7f

	stdoutChannel = 1
	statusChannel = 3
)

// output reads what a command writes to stdout over an upgraded connection, until the server closes it. If the
// command failed without a word, it is the Status that says so.
func output(resp *http.Response) (string, error) {
	r := bufio.NewReader(resp.Body)
	var stdout, status []byte
	for len(stdout) < bodyLimit {
		opcode, payload, err := readFrame(r)
		ended := err == nil && opcode == closeFrame
		if ended || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("reading the stream: %w", err)
		}
		switch {
		case len(payload) == 0:
		case payload[0] == stdoutChannel:
			stdout = append(stdout, payload[1:]...)
		case payload[0] == statusChannel:
			status = append(status, payload[1:]...)
		}
	}
	if len(stdout) == 0 {
		return string(status), nil
	}
	return string(stdout), nil
}

// readFrame reads one frame of a server, unmasked. Messages in several frames are not put together: none are sent.
func readFrame(r io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	length := uint64(head[1] & lengthBits)
	switch length {
	case 126:
		var n uint16
		if err := binary.Read(r, binary.BigEndian, &n); err != nil {
			return 0, nil, err
		}
		length = uint64(n)
	case 127:
		if err := binary.Read(r, binary.BigEndian, &length); err != nil {
			return 0, nil, err
		}
	}
	if length > bodyLimit {
		return 0, nil, fmt.Errorf("a frame has %d bytes (expected at most %d)", length, bodyLimit)
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(r, payload)
	return head[0] & opcodeBits, payload, err
}

// Record writes down a request as it leaves, with whose credential it carries in place of the credential.
func Record(sentRequest *verdicts.SentRequest, req *http.Request) {
	sentRequest.Method, sentRequest.URL, sentRequest.Headers = req.Method, req.URL.RequestURI(), shownHeaders(req.Header)
	sentRequest.UserAgent = req.UserAgent()
	sentRequest.Credential = credentialOf(req.Header)
	if req.GetBody == nil {
		return
	}
	if body, err := req.GetBody(); err == nil {
		if raw, err := io.ReadAll(body); err == nil && json.Valid(raw) {
			sentRequest.Body, sentRequest.Claims = raw, verdicts.ClaimsIn(raw)
		}
	}
}

// remote begins the headers in which a proxy names the user.
const remote = "X-Remote-"

// credential reports whether a header is one that never becomes evidence.
func credential(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, remote)
}

// shownHeaders are the headers of a request without credentials, and without what every request has, or has anew.
func shownHeaders(h http.Header) map[string][]string {
	headers := map[string][]string{}
	everywhere := []string{"User-Agent", "Accept", auditIDHeader}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !credential(name) && !slices.Contains(everywhere, name) {
			headers[name] = scenarios.ShownValues(h[name])
		}
	}
	return headers
}
