package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	proxyAlias     = "periscope"
	proxyNamespace = "periscope"
	proxyName      = "system:serviceaccount:periscope:periscope"
	// timeout is how long a single answer may take.
	timeout = 15 * time.Second
)

// plane is a target with a proxy identity on it: a ServiceAccount that may impersonate.
type plane struct {
	*target.Target
	admin     kubernetes.Interface
	token     string
	transport http.RoundTripper // without credentials
	url       *url.URL

	mu sync.Mutex
}

// start brings a target up with what is granted on it.
func start(ctx context.Context, o target.Options, grants []scenarios.Grant, namespaces []string) (_ *plane, err error) {
	p := &plane{}
	if p.Target, err = target.Start(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if m := p.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("the target is not what was asked for: %s", m[0])
	}
	if p.admin, err = kubernetes.NewForConfig(p.Admin()); err != nil {
		return nil, err
	}
	if p.transport, err = rest.TransportFor(p.Anonymous()); err != nil {
		return nil, err
	}
	if p.url, err = url.Parse(p.Host()); err != nil {
		return nil, err
	}
	needs := &scenarios.Scenario{ID: "deputy", Grants: grants, Requestors: map[string]scenarios.Requestor{
		proxyAlias: proxy,
	}}
	for _, ns := range namespaces { // some of them without any grant
		needs.Objects = append(needs.Objects, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}},
			map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": ns}}) // for pods
	}
	replayer, err := replay.New(p.Target)
	if err != nil {
		return nil, err
	}
	granted, err := replayer.Provision(ctx, needs)
	if err != nil {
		return nil, fmt.Errorf("provisioning: %w", err)
	}
	p.token = granted.Token(proxyAlias)
	return p, nil
}

// proxy is the identity that impersonates.
var proxy = scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{Namespace: proxyNamespace, Name: "periscope"}}

// as is the request of the proxy for a person.
func as(who person, r *scenarios.Request) *scenarios.Request {
	out := *r
	out.By, out.Impersonate = proxyAlias, &scenarios.Impersonate{User: who.name, Groups: who.groups}
	return &out
}

// ask sends a request of the proxy for a person. It has no limit of its own: it is the API server that is tested.
func (p *plane) ask(ctx context.Context, who person, r *scenarios.Request) (*verdicts.Observation, error) {
	req, err := replay.NewRequest(ctx, p.url.String(), r)
	if err != nil {
		return nil, err
	}
	o := &verdicts.Observation{Request: verdicts.SentRequest{Requestor: proxyName}}
	rt := transport.NewBearerAuthRoundTripper(p.token, target.Tapped(p.transport, func(sent *http.Request) { replay.Record(&o.Request, sent) }))
	rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: who.name, Groups: who.groups}, rt)
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(&http.Client{Transport: rt}, req, r.Verb == "watch")
	o.Answered = time.Now()
	return o, err
}

// sent holds what was recorded of a request to the one that was to be sent, while the part ran. An audit ID is there
// once.
func (p *Part) sent(who person, r *scenarios.Request, o *verdicts.Observation) error {
	return p.sentBy(proxy, as(who, r), o)
}

// sentBy is the same of a request by anybody.
func (p *Part) sentBy(by scenarios.Requestor, r *scenarios.Request, o *verdicts.Observation) error {
	if o == nil {
		return errors.New("there is no evidence of it")
	}
	if why := verdicts.NotSent(r, by, o); why != "" {
		return errors.New(why)
	}
	if p.began.After(o.Sent) || o.Answered.Before(o.Sent) || o.Answered.After(p.ended) {
		return errors.New("it was not under way while its part of the suite was")
	}
	return p.once(o.Response.AuditID)
}

func (p *Part) once(auditID string) error {
	if p.ids[auditID] {
		return fmt.Errorf("its audit ID %s is also one of another request", auditID)
	}
	p.ids[auditID] = true
	return nil
}

// trail is the audit log of the control plane.
func (p *plane) trail() auditTrail {
	return auditTrail{
		send:    func(ctx context.Context, marker string) error { return mark(ctx, p.admin, Namespace, marker) },
		look:    func(texts ...string) ([]json.RawMessage, error) { return p.Events(texts...), p.ClusterErr() },
		timeout: timeout,
	}
}

// decision is the annotation of the authorization filter; empty if the request did not get there
// (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func decision(e auditv1.Event) string { return e.Annotations["authorization.k8s.io/decision"] }
