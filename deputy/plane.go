package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
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

// trail is the audit log of the control plane.
func (p *plane) trail() auditTrail {
	return auditTrail{
		send:    func(ctx context.Context, marker string) error { return mark(ctx, p.admin, Namespace, marker) },
		look:    func(texts ...string) ([]json.RawMessage, error) { return p.Events(texts...), p.ClusterErr() },
		timeout: timeout,
	}
}

// writeKubeconfig writes the proxy identity's way to the control plane.
func (p *plane) writeKubeconfig(dir string) (string, error) {
	config := p.Anonymous()
	config.BearerToken = p.token
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", err
	}
	data, err := clusters.Kubeconfig("proxy", config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, data, 0o600)
}

// decision is the annotation of the authorization filter; empty if the request did not get there
// (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func decision(e auditv1.Event) string { return e.Annotations["authorization.k8s.io/decision"] }
