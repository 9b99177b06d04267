package deputy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports/filing"
)

// Proxy is somebody else's proxy, which is tried instead of the reference deputy and agent.
type Proxy struct {
	// URL is where it listens. APIPrefix is the path below the URL at which the API begins. CA is the file of its
	// authority; if it is empty, the system's authorities are used.
	URL, APIPrefix, CA string
	Identities         []string // Identities are the values of --identity, and People what they say
	People             []*Identity
	// Command starts the proxy, with KUBECONFIG for a local control plane. Without a command, Kubeconfig leads to the
	// cluster behind the running proxy, Context is a context in it (the current one if empty), AuditLog is that
	// cluster's log, and Namespace is where pods are listed.
	Command, Kubeconfig, Context, AuditLog, Namespace string
	// AuditWait is how long it may take until an event is in that log.
	AuditWait time.Duration
	// Requests is the file with a dashboard's own requests, and Trail is the dashboard's own audit trail. If Requests
	// is empty, the proxy speaks the Kubernetes API.
	Requests, Trail string
	// Revoke is a command that makes the credentials of the first person worthless. If it is empty, revocation is not
	// tried.
	Revoke  string
	Timeout time.Duration // how long the proxy may take to answer

	// clusters are the names of two clusters behind the proxy. It is empty if there is one cluster.
	clusters []string
	endpoint *endpoint
}

// check returns an error, before anything is started, if the proxy cannot be tried. The proxy is in front of two named
// clusters, or of one without a name. If read is true, the files that are named are read.
func (p *Proxy) check(clusters []string, read bool) error {
	p.clusters = clusters
	to, err := p.parseURL()
	if err != nil {
		return err
	}
	if err := p.checkBackend(); err != nil {
		return err
	}
	if err := p.checkPlaceholders(); err != nil {
		return err
	}
	if p.APIPrefix != "" && !strings.HasPrefix(p.APIPrefix, "/") {
		return fmt.Errorf("--api-prefix %q: expected a path, such as /k8s/clusters/local", p.APIPrefix)
	}
	if p.Timeout <= 0 {
		return errors.New("--timeout: expected more than 0")
	}
	base := strings.TrimRight(to.Path, "/")
	to.Path = base + p.prefixOf(0)
	if p.People, err = ParseIdentities(p.Identities, read); err != nil {
		return err
	}
	if len(p.People) < 2 {
		return fmt.Errorf(
			"--identity names %d of at least 2 people, who are confused with each other if it goes wrong; %s",
			len(p.People),
			identityHelp,
		)
	}
	p.endpoint = &endpoint{
		url:       to,
		tls:       &tls.Config{MinVersion: tls.VersionTLS12},
		people:    p.People,
		namespace: p.Namespace,
		timeout:   p.Timeout,
	}
	if len(clusters) > 0 {
		p.endpoint.cluster, p.endpoint.other = clusters[0], &secondCluster{name: clusters[1], prefix: base + p.prefixOf(1)}
	}
	if p.CA == "" || !read {
		return nil
	}
	return p.loadCA()
}

// parseURL returns the URL of the proxy with a port.
func (p *Proxy) parseURL() (*url.URL, error) {
	to, err := url.Parse(p.URL)
	if err != nil || to.Host == "" || !isWebScheme(to.Scheme) {
		return nil, fmt.Errorf("--proxy %q is not a URL such as https://127.0.0.1:8443", p.URL)
	}
	if to.RawQuery != "" || to.User != nil || to.Fragment != "" {
		return nil, fmt.Errorf("--proxy %s: only scheme, host and path are expected", to.Redacted())
	}
	if to.Port() == "" {
		to.Host = net.JoinHostPort(to.Hostname(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	}
	return to, nil
}

// isWebScheme reports whether a scheme is http or https.
func isWebScheme(scheme string) bool { return scheme == "http" || scheme == "https" }

// checkBackend returns an error unless it is known what is behind the proxy.
func (p *Proxy) checkBackend() error {
	namesCluster := p.Kubeconfig != "" || p.AuditLog != ""
	lacksOne := p.Kubeconfig == "" || p.AuditLog == ""
	isStarted := p.Command != ""
	switch {
	case isStarted == namesCluster:
		return errors.New("--proxy needs either --proxy-command, which is started with KUBECONFIG of a local control plane, or --kubeconfig and --audit-log of the cluster behind it")
	case namesCluster && p.AuditWait <= 0:
		return errors.New("--audit-wait: expected more than 0")
	case p.Trail == fromStdin && p.AuditLog == fromStdin:
		return errors.New("--audit-log and --trail cannot both be standard input")
	case strings.HasPrefix(p.Trail, webhookSource):
		return errors.New("--trail: expected a file, - or command:COMMAND: only an API server sends its log to a webhook")
	case !isStarted && lacksOne:
		return errors.New("--kubeconfig and --audit-log go together: who arrives is read in the audit log of that cluster (authzconf up --audit-log FILE writes one)")
	}
	return nil
}

// loadCA reads the authority of the proxy's certificate.
func (p *Proxy) loadCA() error {
	data, err := filing.Input(p.CA)
	if err != nil {
		return fmt.Errorf("--proxy-ca: %w", err)
	}
	p.endpoint.tls.RootCAs = x509.NewCertPool()
	if !p.endpoint.tls.RootCAs.AppendCertsFromPEM(data) {
		return fmt.Errorf("--proxy-ca %s holds no certificate in PEM", p.CA)
	}
	return nil
}

// probe lists pods as each person, at each cluster. If an answer is not one of a Kubernetes API, the user has to fix
// that.
func (p *Proxy) probe(ctx context.Context) error {
	for _, ep := range p.endpoint.clusterEndpoints() {
		for _, person := range p.People {
			if err := p.probeAs(ctx, ep, person); err != nil {
				return &usage.Error{Problem: err.Error()}
			}
		}
	}
	return nil
}

// probeAs returns what is wrong with the answer to one person.
func (p *Proxy) probeAs(ctx context.Context, ep *endpoint, person *Identity) error {
	path := podsIn(p.Namespace) + "?limit=1"
	at := ep.url.String() + path
	resp, err := ep.get(ctx, path, person)
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return fmt.Errorf("the proxy %s did not answer within %s (--timeout)", p.URL, p.Timeout)
		}
		return fmt.Errorf("the proxy %s cannot be reached: %w", p.URL, e.Err)
	} else if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	isKubernetes := err == nil && isKubernetesObject(body)
	isUnauthorized := resp.StatusCode == http.StatusUnauthorized
	isForbiddenByProxy := resp.StatusCode == http.StatusForbidden && !isKubernetes
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode/100 == 3:
		return fmt.Errorf(
			"the proxy redirects %s to %.200s: it does not know --identity %s; what its login gives is --identity %s=cookie:NAME=VALUE",
			at,
			resp.Header.Get("Location"),
			person.Name,
			person.Name,
		)
	case isUnauthorized, isForbiddenByProxy:
		return fmt.Errorf("the proxy does not know --identity %s: it answers %d: %.200q", person.Name, resp.StatusCode, body)
	case kind == "text/html":
		return fmt.Errorf(
			"%s is answered %d with HTML, not by a Kubernetes API: --api-prefix says where the API is below the URL",
			at,
			resp.StatusCode,
		)
	case !isKubernetes:
		return fmt.Errorf(
			"%s is answered %d by something that is not a Kubernetes API: %.200q (--api-prefix says where the API is below the URL)",
			at,
			resp.StatusCode,
			body,
		)
	}
	return nil
}

// isKubernetesObject reports whether a body is an object of the Kubernetes API.
func isKubernetesObject(body []byte) bool {
	var object struct{ Kind, APIVersion string }
	return json.Unmarshal(body, &object) == nil && object.Kind != "" && object.APIVersion != ""
}

// open returns the proxy in front of the given control planes, after it has started it, or in front of the clusters
// that are already running.
func (p *Proxy) open(ctx context.Context, planes []*plane) (ep *endpoint, err error) {
	ep = p.endpoint
	ep.close = func() error { return nil }
	if len(planes) == 0 {
		ep.close, err = p.openAuditLogs(ctx)
	} else {
		ep.useLogs(planes)
		ep.close, err = p.runCommand(ctx, planes)
	}
	if err != nil {
		return nil, err
	}
	if p.Requests == "" { // a dashboard does not speak the Kubernetes API
		err = p.probe(ctx)
	}
	if err == nil {
		err = ep.settle(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, ep.close())
	}
	return ep, nil
}
