package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditTimeout is how late an event may be: in blocking mode it is written just after the response's last byte.
const auditTimeout = 10 * time.Second

// leastAuditTimeout is what it comes down to, half each time, with a server that leaves events out: some hundred
// requests would take hours otherwise. A later request's event says that this one's will not come.
const leastAuditTimeout = time.Second

// auditIndex is an io.Writer for an audit log of one JSON document a line, and hands each event out by its audit ID.
type auditIndex struct {
	mu        sync.Mutex
	partial   []byte
	events    map[string]json.RawMessage
	started   map[string]json.RawMessage // those of the beginning of answers
	waiting   map[string]chan json.RawMessage
	last      string // the event that was handed out last, and sinceLast what came of it since
	sinceLast json.RawMessage
	missed    int    // events that did not come
	garbage   string // first line that was no event
	// ignore drops the events of a cluster's own components.
	ignore bool
}

func newAuditIndex() *auditIndex {
	return &auditIndex{
		events:  map[string]json.RawMessage{},
		started: map[string]json.RawMessage{},
		waiting: map[string]chan json.RawMessage{},
	}
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

// isUnauthenticated reports whether the event is about a request whose sender was not authenticated. The only event about
// such a request is that of the beginning of the answer, and it names no user.
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
		x.sinceLast = raw
		return
	}
	if ch, ok := x.waiting[id]; ok {
		delete(x.waiting, id)
		x.last, x.sinceLast = id, nil
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
		x.last, x.sinceLast = auditID, nil
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
		return nil, fmt.Errorf(
			"%w with ID %s within %s; the audit log has a line that is not an event: %.200q",
			errNoEvent,
			auditID,
			timeout,
			x.garbage,
		)
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
	return x.sinceLast
}

// errNoEvent is wrapped by the error about an audit event that did not come.
var errNoEvent = errors.New("no audit event came")
