package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
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
		proxyAlias: {ServiceAccount: &scenarios.ServiceAccount{Namespace: proxyNamespace, Name: "periscope"}},
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

// as is a client of the proxy that impersonates a user. It has no limit of its own: it is the API server that is tested.
func (p *plane) as(who person) *http.Client {
	rt := transport.NewBearerAuthRoundTripper(p.token, p.transport)
	return &http.Client{Transport: transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: who.name, Groups: who.groups}, rt)}
}

// event waits for the audit event of a request that was answered.
func (p *plane) event(ctx context.Context, id string) (e auditv1.Event, err error) {
	raw, err := p.Audit(ctx, id)
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	return e, err
}

// arrived is the audit event of a request that was authenticated, if there is one. answered is the audit ID of the API
// server's answer: that event is waited for.
func (p *plane) arrived(ctx context.Context, id, answered string) (e auditv1.Event, ok bool, err error) {
	if answered != "" {
		e, err = p.event(ctx, answered)
	} else if raw, ok := p.TakeEvent(id); ok {
		err = json.Unmarshal(raw, &e)
	}
	return e, e.User.Username != "", err
}

// decision is the annotation of the authorization filter; empty if the request did not get there
// (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func decision(e auditv1.Event) string { return e.Annotations["authorization.k8s.io/decision"] }
