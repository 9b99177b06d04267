package deputy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	proxyAlias     = "periscope"
	proxyNamespace = "periscope"
	proxyName      = "system:serviceaccount:periscope:periscope"
	timeout        = 15 * time.Second // how long a single answer may take
)

// plane is a control plane with a proxy identity: a ServiceAccount that may impersonate.
type plane struct {
	*server.Server
	admin     kubernetes.Interface
	token     string
	transport http.RoundTripper // without credentials
	url       *url.URL
}

// startPlane starts a control plane with grants and namespaces. In some of the namespaces nothing is granted.
func startPlane(ctx context.Context, o server.Options, grants []scenarios.Grant, namespaces []string) (*plane, error) {
	account := scenarios.ServiceAccount{Namespace: proxyNamespace, Name: proxyAlias}
	return startPlaneFor(ctx, o, account, grants, namespaceObjects(namespaces))
}

// namespaceObjects returns namespaces, each with the ServiceAccount that pods need.
func namespaceObjects(names []string) (objects []map[string]any) {
	for _, ns := range names {
		objects = append(objects, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}},
			map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": ns}})
	}
	return objects
}

// startPlaneFor starts a control plane for the ServiceAccount of a proxy, with grants and objects.
func startPlaneFor(
	ctx context.Context,
	o server.Options,
	account scenarios.ServiceAccount,
	grants []scenarios.Grant,
	objects []map[string]any,
) (_ *plane, err error) {
	p := &plane{}
	if p.Server, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	replayer, err := replay.New(p.Server)
	if err != nil {
		return nil, err
	}
	p.admin = replayer.Admin()
	if p.transport, err = rest.TransportFor(p.Anonymous()); err != nil {
		return nil, err
	}
	if p.url, err = url.Parse(p.Host()); err != nil {
		return nil, err
	}
	needs := &scenarios.Scenario{
		ID: "deputy", Grants: grants, Objects: objects, Requestors: map[string]scenarios.Requestor{proxyAlias: {ServiceAccount: &account}},
	}
	granted, err := replayer.Provision(ctx, needs)
	if err != nil {
		return nil, fmt.Errorf("provisioning: %w", err)
	}
	p.token = granted.Token(proxyAlias)
	return p, nil
}

// serve serves a handler that acts for people.
func (p *plane) serve(ctx context.Context, handler http.Handler, people []*Identity) (*endpoint, error) {
	l, err := server.ServeLoopback(ctx, handler, nil)
	if err != nil {
		return nil, err
	}
	ep := &endpoint{
		tls:       &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12},
		people:    people,
		namespace: Namespace,
		timeout:   timeout,
		log:       p.auditLog(),
		plane:     p,
		close:     l.Close,
	}
	ep.tls.RootCAs.AppendCertsFromPEM(l.CA)
	if ep.url, err = url.Parse(l.URL); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return ep, nil
}

// agent starts the reference agent, which is the end of a tunnel, in front of an address.
func (p *plane) agent(ctx context.Context, to *url.URL, people []*Identity) (*endpoint, error) {
	return p.serve(ctx, reference.NewAgent(to, p.transport, func() string { return p.token }), people)
}

func (p *plane) auditLog() auditLog {
	return auditLog{
		sendMarked: func(ctx context.Context, marker string) error { return sendMarked(ctx, p.admin, Namespace, marker) },
		find: func(texts ...string) ([]json.RawMessage, error) {
			return append(p.Events(texts...), p.OpenEvents(texts...)...), p.ClusterErr()
		},
		timeout: timeout,
	}
}

// writeKubeconfig writes the kubeconfig for a proxy. It has a context for each control plane, with the name of the
// cluster if that has one. The first context is the current one.
func writeKubeconfig(dir string, names []string, planes []*plane) (string, error) {
	var contexts []clusters.Context
	for n, p := range planes {
		config := p.Anonymous()
		config.BearerToken = p.token
		if err := rest.LoadTLSFiles(config); err != nil {
			return "", err
		}
		name := "proxy"
		if len(names) > 0 {
			name = names[n]
		}
		contexts = append(contexts, clusters.Context{Name: name, Config: config})
	}
	data, err := clusters.Kubeconfigs(contexts...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, data, 0o600)
}
