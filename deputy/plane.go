package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/auditlog"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	bridgeSpace = "periscope"
	bridgeName  = "system:serviceaccount:periscope:periscope"
	// patience is how long permissions and audit events may take to get around.
	patience = 15 * time.Second
)

// plane is a control plane with a bridge on it: nothing of the harness stands in
// its authorizer chain, for reasons are looked at as a user would see them.
type plane struct {
	*local.ControlPlane
	admin     kubernetes.Interface
	events    *eventSink
	token     string
	transport http.RoundTripper // without credentials
	target    *url.URL
}

// start brings a control plane up with what is granted on it.
func start(ctx context.Context, o local.Options, grants []scenarios.Grant, namespaces []string) (_ *plane, err error) {
	p := &plane{events: newEventSink()}
	if o.AuditPolicy, err = fixtures.FS.ReadFile(fixtures.AuditPolicy); err != nil {
		return nil, err
	}
	o.AuditSink = p.events
	if p.ControlPlane, err = local.Start(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if p.admin, err = kubernetes.NewForConfig(p.Admin()); err != nil {
		return nil, err
	}
	if p.transport, err = rest.TransportFor(p.Anonymous()); err != nil {
		return nil, err
	}
	if p.target, err = url.Parse(p.Admin().Host); err != nil {
		return nil, err
	}
	return p, p.provision(ctx, grants, namespaces)
}

func (p *plane) provision(ctx context.Context, grants []scenarios.Grant, namespaces []string) error {
	for _, ns := range append([]string{bridgeSpace}, namespaces...) {
		if _, err := p.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	accounts := p.admin.CoreV1().ServiceAccounts(bridgeSpace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "periscope"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	seconds := int64(3600)
	answer, err := accounts.CreateToken(ctx, "periscope", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.token = answer.Status.Token
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, o := range scenarios.RenderRBAC(&scenarios.Scenario{Grants: grants}) {
		group.Go(func() error { return p.grant(ctx, o) })
	}
	return group.Wait()
}

// grant creates a role and its binding, and waits until they are in force.
func (p *plane) grant(ctx context.Context, o scenarios.RBACObject) (err error) {
	rbac, opts := p.admin.RbacV1(), metav1.CreateOptions{}
	if o.Namespace == "" {
		if _, err = rbac.ClusterRoles().Create(ctx, o.ClusterRole, opts); err == nil {
			_, err = rbac.ClusterRoleBindings().Create(ctx, o.ClusterRoleBinding, opts)
		}
	} else if _, err = rbac.Roles(o.Namespace).Create(ctx, o.Role, opts); err == nil {
		_, err = rbac.RoleBindings(o.Namespace).Create(ctx, o.RoleBinding, opts)
	}
	for deadline := time.Now().Add(patience); err == nil; {
		answer, err := p.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: o.Check}, opts)
		switch {
		case err != nil:
			return err
		case answer.Status.Allowed:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("role %s is not in force after %s", o.Name, patience)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("role %s: %w", o.Name, err)
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// as is a client of the bridge that impersonates a user. Without any limit of its
// own: it is the API server that is looked at.
func (p *plane) as(who person) *http.Client {
	rt := transport.NewBearerAuthRoundTripper(p.token, p.transport)
	return &http.Client{Transport: transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: who.name, Groups: who.groups}, rt)}
}

// identified gives a request the ID that its audit event has.
func identified(r *http.Request) string {
	id := string(uuid.NewUUID())
	r.Header.Set("Audit-Id", id)
	return id
}

// eventSink keeps the audit events of finished requests by their IDs.
type eventSink struct {
	mu      sync.Mutex
	partial []byte
	events  map[string]auditEvent
}

// auditEvent is an event as auditlog has it, and what came of the authorization.
type auditEvent struct {
	auditlog.Event
	Annotations map[string]string `json:"annotations"`
}

// decision is the annotation of the authorization filter; empty if the request did
// not get there (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func (e auditEvent) decision() string { return e.Annotations["authorization.k8s.io/decision"] }

func newEventSink() *eventSink { return &eventSink{events: map[string]auditEvent{}} }

// Write implements io.Writer.
func (s *eventSink) Write(raw []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, raw...)
	for {
		line, rest, found := bytes.Cut(s.partial, []byte{'\n'})
		if !found {
			return len(raw), nil
		}
		s.partial = bytes.Clone(rest)
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return len(raw), fmt.Errorf("an audit event that is no JSON: %w", err)
		}
		if e.Stage == "ResponseComplete" || e.Stage == "Panic" {
			s.events[e.AuditID] = e
		}
	}
}

// await returns the event of a request that was answered.
func (s *eventSink) await(ctx context.Context, id string) (auditEvent, error) {
	for deadline := time.Now().Add(patience); ; {
		s.mu.Lock()
		e, ok := s.events[id]
		s.mu.Unlock()
		switch {
		case ok:
			return e, nil
		case time.Now().After(deadline):
			return e, fmt.Errorf("no audit event %s came within %s", id, patience)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return e, err
		}
	}
}

// by are the events of a user.
func (s *eventSink) by(user string) (out []auditEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.User.Username == user {
			out = append(out, e)
		}
	}
	return out
}

// has tells whether a request arrived.
func (s *eventSink) has(id string) (auditEvent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.events[id]
	return e, ok
}
