package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// auditTimeout is how late an event may be: in blocking mode it is written just after the response's last byte.
const auditTimeout = 10 * time.Second

// leastAuditTimeout is what it comes down to, half each time, with a server that leaves events out: some hundred
// requests would take hours otherwise. A later request's event says that this one's will not come.
const leastAuditTimeout = time.Second

// auditIndex is an io.Writer for an audit log of one JSON document a line, and hands each event out by its audit ID.
type auditIndex struct {
	mu      sync.Mutex
	partial []byte
	events  map[string]json.RawMessage
	started map[string]json.RawMessage // those of the beginning of answers
	waiting map[string]chan json.RawMessage
	last    string // the event that was handed out last, and again what came of it since
	again   json.RawMessage
	missed  int    // events that did not come
	garbage string // first line that was no event
	// ignore drops the events of a cluster's own components.
	ignore bool
}

func newAuditIndex() *auditIndex {
	return &auditIndex{events: map[string]json.RawMessage{}, started: map[string]json.RawMessage{}, waiting: map[string]chan json.RawMessage{}}
}

// Write implements io.Writer. It never fails: a line that is not an event is kept and makes Await fail.
func (x *auditIndex) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.partial = append(x.partial, p...)
	for {
		line, rest, found := bytes.Cut(x.partial, []byte{'\n'})
		if !found {
			return len(p), nil
		}
		x.line(line)
		x.partial = bytes.Clone(rest)
	}
}

// eventHead is what an event is sorted by: reading all of it takes three times as long.
type eventHead struct {
	AuditID        types.UID                 `json:"auditID"`
	Stage          auditv1.Stage             `json:"stage"`
	User           authenticationv1.UserInfo `json:"user"`
	Impersonated   *struct{}                 `json:"impersonatedUser"`
	ResponseStatus *struct{ Code int32 }     `json:"responseStatus"`
}

// isUnauthenticated reports whether the event is about a request that is not authenticated: there is no other event about
// it than the one of the beginning of the answer, which names no user.
func (h eventHead) isUnauthenticated() bool {
	refused := h.ResponseStatus != nil && h.ResponseStatus.Code == http.StatusUnauthorized
	return refused && h.Stage == auditv1.StageResponseStarted && h.User.Username == ""
}

// isComponents reports whether the event is about a component of the cluster acting for itself.
func (h eventHead) isComponents() bool {
	return h.Impersonated == nil && isComponent(h.User.Username, h.User.Groups, h.User.Extra[user.CredentialIDKey])
}

func (x *auditIndex) line(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	var head eventHead
	if err := json.Unmarshal(line, &head); err != nil || head.AuditID == "" {
		x.garbage = cmp.Or(x.garbage, string(line))
		return
	}
	unauthenticated := head.isUnauthenticated()
	if head.Stage == auditv1.StageResponseStarted && !unauthenticated {
		x.started[string(head.AuditID)] = bytes.Clone(line)
	}
	atEnd := head.Stage == auditv1.StageResponseComplete || head.Stage == auditv1.StagePanic
	if !atEnd && !unauthenticated {
		return
	}
	id := string(head.AuditID)
	if _, awaited := x.waiting[id]; !awaited && x.ignore && head.isComponents() {
		return
	}
	raw := json.RawMessage(bytes.Clone(line))
	if id == x.last {
		x.again = raw
		return
	}
	if ch, ok := x.waiting[id]; ok {
		delete(x.waiting, id)
		x.last, x.again = id, nil
		ch <- raw
		return
	}
	x.events[id] = raw
}

// Await returns the event of a finished request, once, and forgets it.
func (x *auditIndex) Await(ctx context.Context, auditID string) (json.RawMessage, error) {
	x.mu.Lock()
	if raw, ok := x.events[auditID]; ok {
		delete(x.events, auditID)
		x.last, x.again = auditID, nil
		x.mu.Unlock()
		return raw, nil
	}
	ch := make(chan json.RawMessage, 1)
	x.waiting[auditID] = ch
	timeout := max(auditTimeout>>x.missed, leastAuditTimeout)
	x.mu.Unlock()
	select {
	case raw := <-ch:
		return raw, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(timeout):
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.waiting, auditID)
	select {
	case raw := <-ch: // just in time
		return raw, nil
	default:
	}
	x.missed++
	if x.garbage != "" {
		return nil, fmt.Errorf("%w with ID %s within %s; the audit log has a line that is not an event: %.200q", errNoEvent, auditID, timeout, x.garbage)
	}
	return nil, fmt.Errorf("%w with ID %s within %s", errNoEvent, auditID, timeout)
}

func (x *auditIndex) take(auditID string) (json.RawMessage, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	raw, ok := x.events[auditID]
	delete(x.events, auditID)
	return raw, ok
}

func (x *auditIndex) has(auditID string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.events[auditID]
	return ok
}

// beginning returns, and forgets, the event of the beginning of a finished request's answer, or the word none.
func (x *auditIndex) beginning(auditID string) json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	raw := cmp.Or(string(x.started[auditID]), `"none"`)
	delete(x.started, auditID)
	return json.RawMessage(raw)
}

// repeated is another event of the end of the request whose event was handed out last; nil if none has come.
func (x *auditIndex) repeated() json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.again
}

// errNoEvent is wrapped by the error about an audit event that did not come.
var errNoEvent = errors.New("no audit event came")

// connectionEnded says that the server ended the connection or the stream without an answer, as when a handler panics.
func connectionEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		strings.Contains(err.Error(), "stream error: ")
}

// answers says whether the API server, at this moment, answers a request and writes the audit event of it. What it
// owes after that it has not just been too slow, or too dead, to do.
func (s *Server) answers(ctx context.Context) bool {
	client, err := s.UserClient(scenarios.Requestor{User: witnessUser}, nil, func(*http.Request) {})
	if err != nil {
		return false
	}
	answer, err := s.ask(ctx, client, "/version", nil)
	if err != nil {
		return false
	}
	_, err = s.events.Await(ctx, answer.auditID)
	return err == nil && s.Err() == nil
}

// Batch is a time in which many requests follow each other, one at a time, and the target is read once for all of
// them: reading its metrics takes longer than most requests.
type Batch struct {
	t    *Server
	mark uint64
}

// Batched is what a target saw during a batch.
type Batched struct {
	// Reviews are in order of arrival, Seqs their places among all: those of a request are between the Marks around it.
	Reviews []verdicts.Review
	Seqs    []uint64
	Metrics []verdicts.MetricSample // the increases over the whole batch; nil where the target has none
}

// OpenBatch keeps every other request of scenarios away until Close.
func (s *Server) OpenBatch() (*Batch, error) {
	s.mu.Lock()
	if err := s.Err(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	return &Batch{t: s, mark: s.recorder.Mark()}, nil
}

// Mark is the place of the last review that arrived.
func (b *Batch) Mark() uint64 { return b.t.recorder.Mark() }

// Close ends the batch. What was recorded is forgotten by the recorder.
func (b *Batch) Close(ctx context.Context) (*Batched, error) {
	t := b.t
	defer t.mu.Unlock()
	metrics, err := t.increases(ctx)
	if err != nil {
		return nil, errors.Join(err, t.Err())
	}
	records := t.recorder.Since(b.mark)
	t.recorder.Reset()
	seqs := seq.Map(records, func(r recorder.Record) uint64 { return r.Seq })
	return &Batched{Reviews: t.toReviews(records), Seqs: seqs, Metrics: metrics}, t.Err()
}

// Audit waits for the audit event of a request that was answered.
func (s *Server) Audit(ctx context.Context, auditID string) (json.RawMessage, error) {
	if auditID == "" {
		return nil, errors.New("the answer has no Audit-Id header")
	}
	return s.events.Await(ctx, auditID)
}

// AuditEarlier adds the audit events of a request after which others were answered: where there is to be none, none has
// come.
func (s *Server) AuditEarlier(ctx context.Context, o *verdicts.Observation) (err error) {
	switch {
	case s.blind():
	case unaudited(o):
		o.Audit, _ = s.events.take(o.Response.AuditID)
	default:
		o.Audit, err = s.Audit(ctx, o.Response.AuditID)
		if err == nil && o.Request.IsLongRunning() {
			o.AuditStarted = s.events.beginning(o.Response.AuditID)
		}
	}
	return err
}

// unaudited says that the policy wants no event of a request.
func unaudited(o *verdicts.Observation) bool {
	return o.Request.Credential != nil && scenarios.AuditLevel(o.Request.Credential.Groups) == scenarios.AuditNone
}

// FrontProxy is the transport with which requestors of any name are sent, by headers that come on top of it. It
// speaks HTTP/1.1, which is quicker as long as requests come one at a time.
func (s *Server) FrontProxy() (http.RoundTripper, error) {
	c := s.cluster.FrontProxy()
	c.NextProtos = []string{"http/1.1"}
	return rest.TransportFor(c)
}

// FrontProxyOfOne is FrontProxy by HTTP/2: many requests at once are streams of one connection.
func (s *Server) FrontProxyOfOne() (http.RoundTripper, error) {
	return rest.TransportFor(s.cluster.FrontProxy())
}

// UserClient authenticates as an arbitrary user through the request-header client certificate, and impersonates if
// imp is given. tap sees every request as it leaves, under all other round trippers.
func (s *Server) UserClient(r scenarios.Requestor, imp *scenarios.Impersonate, tap Tap) (*http.Client, error) {
	return s.client(s.cluster.FrontProxy(), imp, tap, asUser(r))
}

// UserConfig authenticates as an arbitrary user through the request-header client certificate, for clients that are made
// of a configuration.
func (s *Server) UserConfig(r scenarios.Requestor) *rest.Config {
	c := s.cluster.FrontProxy()
	c.Wrap(asUser(r))
	return c
}

// RequestClient returns a client that sends a request with these credentials, the requestor's first, and adds the headers that
// the request asks for.
func (s *Server) RequestClient(r *scenarios.Request, credentials []Credential, tap Tap) (*http.Client, error) {
	c := s.connectAs(credentials)
	auth := func(rt http.RoundTripper) http.RoundTripper {
		for _, one := range credentials {
			rt = one.wrap(rt)
		}
		return rt
	}
	if len(r.Headers) > 0 || r.Upgrade != "" {
		// HTTP/2 has lower-case names only and no upgrades, and its client refuses what the server would find too long.
		c.NextProtos = []string{"http/1.1"}
	}
	return s.client(c, r.Impersonate, tap, func(rt http.RoundTripper) http.RoundTripper {
		return auth(roundTripper(func(sent *http.Request) (*http.Response, error) {
			if len(r.Headers) > 0 {
				sent = sent.Clone(sent.Context())
			}
			for _, h := range r.Headers { // as they are written
				if h.Name != "User-Agent" { // that is there, and is sent once
					sent.Header[h.Name] = append(sent.Header[h.Name], h.Bytes())
				}
			}
			return rt.RoundTrip(sent)
		}))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (send roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return send(r) }

func asUser(r scenarios.Requestor) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(r.User, r.UID, r.Groups, r.Extra, rt)
	}
}

// Tap sees a request as it is sent.
type Tap func(*http.Request)

// client builds an HTTP client of client-go's round trippers, which share connections among configurations of equal TLS.
func (s *Server) client(c *rest.Config, imp *scenarios.Impersonate, tap Tap, auth transport.WrapperFunc) (*http.Client, error) {
	rt, err := rest.TransportFor(c)
	if err != nil {
		return nil, err
	}
	rt = auth(Tapped(rt, tap))
	if imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	return &http.Client{Transport: rt}, nil
}

// Tapped shows every request to tap before next sends it.
func Tapped(next http.RoundTripper, tap Tap) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		tap(r)
		return next.RoundTrip(r)
	})
}

// Host is the API server's URL without a path.
func (s *Server) Host() string { return s.host }

// Balancer is the URL of the balancer that belongs to a cluster with several API servers; empty where there is none.
func (s *Server) Balancer() string {
	several, is := s.cluster.(clusters.Several)
	if !is {
		return ""
	}
	return several.Balancer()
}

// Anonymous is the way in without credentials, for clients that bring their own.
func (s *Server) Anonymous() *rest.Config { return s.cluster.Anonymous() }

// TempDir makes a folder for this user alone, within the cluster's if it has one, to go with that even after a kill.
func (s *Server) TempDir(prefix string) (string, error) { return os.MkdirTemp(s.Dir(), prefix) }

// Dir is the cluster's own folder, with the logs of local processes; "" if it has none.
func (s *Server) Dir() string {
	if c, ok := s.cluster.(interface{ Dir() string }); ok {
		return c.Dir()
	}
	return ""
}
