package local

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

// portAttempts is how often another port is tried after a free one was lost to another program.
const portAttempts = 5

func (c *ControlPlane) writeKeys(keys *pki) error {
	c.pki = keys
	for name, data := range keys.files() {
		if err := c.run.write(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) writeInputs(o Options) error {
	inputs := map[string][]byte{}
	maps.Copy(inputs, o.Files)
	if o.AuthorizationConfig != nil {
		inputs[authorizationFile] = o.AuthorizationConfig
	}
	if o.AuditPolicy != nil {
		inputs[auditPolicyFile] = o.AuditPolicy
	}
	for name, data := range inputs {
		if !filepath.IsLocal(name) {
			return &usage.Error{Problem: fmt.Sprintf("the file name %q leads out of the run's folder", name)}
		}
		if err := c.run.write(name, bytes.ReplaceAll(data, []byte(DirPlaceholder), []byte(c.run.path))); err != nil {
			return err
		}
	}
	return nil
}

func withReadyTimeout(ctx context.Context, o Options) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.ReadyTimeout, fmt.Errorf("not ready within %s", o.ReadyTimeout))
}

// startAPIServer starts kube-apiserver with these options and waits until it is ready. Only then do they become the
// options of the control plane. life must be locked.
func (c *ControlPlane) startAPIServer(ctx context.Context, o Options, programs Programs) (err error) {
	ctx, cancel := withReadyTimeout(ctx, o)
	defer cancel()
	if err := c.writeInputs(o); err != nil {
		return err
	}
	port := c.Port()
	for attempt := 1; ; attempt++ {
		if port == 0 {
			if port, err = freePort(); err != nil {
				return err
			}
		}
		err = c.tryAPIServer(ctx, o, programs, port)
		switch {
		case err == nil || !lostPort(err):
			return explain(err, o)
		case o.Port != 0:
			return portError(port, err)
		case attempt == portAttempts:
			return err
		}
		port = 0
	}
}

// tryAPIServer starts kube-apiserver on a port and waits until it is ready.
func (c *ControlPlane) tryAPIServer(ctx context.Context, o Options, programs Programs, port int) error {
	begin := time.Now()
	stdout, audit, closeStdout, err := c.auditOutput(o)
	if err != nil {
		return err
	}
	defer closeStdout()
	p, err := startProcess(processSpec{
		name:   "kube-apiserver",
		path:   programs.KubeAPIServer.Path,
		args:   apiServerArgs(o, port, c.run.path),
		env:    o.KubeAPIServerEnv,
		dir:    c.run.path,
		stdout: stdout,
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.apiServer, c.port, c.audit = p, port, audit
	c.mu.Unlock()
	if err := c.waitReady(ctx, p); err != nil {
		return errors.Join(err, p.stop(0))
	}
	if err := c.writeKubeconfig(); err != nil {
		return errors.Join(err, p.stop(0))
	}
	c.mu.Lock()
	c.opts, c.programs, c.readyIn = o, programs, time.Since(begin)
	c.mu.Unlock()
	c.watch(p, c.fail)
	return nil
}

// auditOutput returns the standard output of kube-apiserver, which contains only audit events.
func (c *ControlPlane) auditOutput(o Options) (io.Writer, *lineWriter, func(), error) {
	none := func() {}
	switch {
	case o.AuditPolicy == nil:
		return nil, nil, none, nil
	case o.AuditSink != nil:
		lines := &lineWriter{to: o.AuditSink}
		return lines, lines, none, nil
	}
	file, err := os.OpenFile(filepath.Join(c.run.path, auditFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, none, folderError("state folder", c.run.path, StateVariable, err)
	}
	return file, nil, func() { _ = file.Close() }, nil
}

// waitReady polls the API server until it is ready, or until it or etcd has ended by itself.
func (c *ControlPlane) waitReady(ctx context.Context, p *process) error {
	const interval = 20 * time.Millisecond
	tlsConfig, err := rest.TLSConfigFor(c.Admin())
	if err != nil {
		return err
	}
	// A client of client-go is not used here, because these share connections, which would outlive the control plane.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig}}
	defer client.CloseIdleConnections()
	// /readyz does not wait for the namespaces that every client expects.
	pending := []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"}
	return c.await(ctx, p, c.done, interval, func() bool {
		for len(pending) > 0 && answersOK(ctx, client, c.url()+pending[0]) {
			pending = pending[1:]
		}
		return len(pending) == 0
	})
}

// await polls until a condition holds, or until the process, the control plane (unless loss is nil) or the time has
// ended.
func (c *ControlPlane) await(ctx context.Context, p *process, loss <-chan struct{}, interval time.Duration, is func() bool) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !is() {
		select {
		case <-p.done:
			return p.ended()
		case <-loss:
			return c.Err()
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-ctx.Done():
			return p.notReady(context.Cause(ctx))
		case <-ticker.C:
		}
	}
	return nil
}

func answersOK(ctx context.Context, client *http.Client, url string) bool {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// RestartAPIServer ends kube-apiserver in order and starts it with changed options on the same etcd, with the same
// keys and, unless another program has taken it, on the same port: another Release is an upgrade or a downgrade.
// change may alter everything but Keep, Join and EtcdPath, which stay as they are; it may be nil. For
// an end that is not in order call KillAPIServer before. The context bounds it, and Stop ends it early.
//
// What is seen to be wrong beforehand (an unknown version, a program that cannot be built, a busy port) is an
// error that leaves the API server running. After any other error none runs: the next one has refused its
// arguments, a [*usage.Error] that wraps the [*ProcessError], or has ended or not become ready, a [*ProcessError],
// which has the last log lines. Either way Err stays nil, and the options and the port are as before, so that
// RestartAPIServer may be called again, as a rollback, or Stop.
func (c *ControlPlane) RestartAPIServer(ctx context.Context, change func(*Options)) error {
	o := c.Options()
	if change != nil {
		fixed := o.clone()
		change(&o)
		o.Keep, o.Join, o.EtcdPath = fixed.Keep, fixed.Join, fixed.EtcdPath
	}
	o, err := o.complete()
	if err != nil {
		return err
	}
	programs, err := findPrograms(ctx, o)
	if err != nil {
		return err
	}
	c.life.Lock()
	defer c.life.Unlock()
	if err := c.whole(); err != nil {
		return fmt.Errorf("the API server cannot be restarted: %w", err)
	}
	before := c.Port()
	port := before
	if o.Port != 0 && o.Port != before {
		if err := claimPort(o.Port); err != nil {
			return err
		}
		port = o.Port
	}
	if err := c.apiServer.stop(shutdownGrace); err != nil {
		return err
	}
	c.setPort(port)
	if err := c.startAPIServer(ctx, o, programs); err != nil {
		c.setPort(before)
		return err
	}
	return nil
}

func (c *ControlPlane) setPort(port int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.port = port
}

func lostPort(err error) bool {
	failed, ok := errors.AsType[*ProcessError](err)
	return ok && strings.Contains(failed.Reason, "address already in use")
}

// explain turns the error of a kube-apiserver that refused its arguments into a [*usage.Error].
func explain(err error, o Options) error {
	failed, ok := errors.AsType[*ProcessError](err)
	if !ok || failed.Reason == "" || failed.Process != "kube-apiserver" {
		return err
	}
	for _, refusal := range arguments.Refusals {
		if strings.Contains(failed.Reason, refusal.Text) {
			return &usage.Error{
				Problem: fmt.Sprintf("kube-apiserver, asked for as %s, refused to start: %s", o.Release.Version, failed.Reason),
				Hint:    refusal.Hint,
				Err:     err,
			}
		}
	}
	return err
}

func (c *ControlPlane) url() string {
	return "https://" + net.JoinHostPort(loopback, strconv.Itoa(c.Port()))
}

const (
	// keyLifetime is longer than any run. The keys are removed with the run's folder anyway.
	keyLifetime    = 365 * 24 * time.Hour
	frontProxyName = "authzconf-front-proxy" // the common name from which kube-apiserver accepts request headers
	adminName      = "authzconf-admin"
)

type keyPair struct{ cert, key []byte }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a key and a certificate for it, both in PEM. The certificate is valid from an hour before now.
func (a authority) sign(leaf *x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (keyPair, error) {
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	leaf.NotBefore, leaf.NotAfter = now.Add(-time.Hour), now.Add(keyLifetime)
	cert, key, err := clusters.Sign(leaf, a.cert, a.key)
	if err != nil {
		return keyPair{}, err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	return keyPair{clusters.EncodeCertificate(cert), encoded}, err
}

// pki has all keys of one control plane. There are three authorities, so that a client certificate can never be taken
// for that of a front proxy, or the reverse.
type pki struct {
	servingCA, clientCA, frontProxyCA []byte
	serving, admin, frontProxy        keyPair
	// clients signs the certificates of further clients.
	clients authority
	// serviceAccount is the key that signs ServiceAccount tokens, and its public half.
	serviceAccountKey, serviceAccountPub []byte
}

func (p *pki) files() map[string][]byte {
	return map[string][]byte{
		"client-ca.crt":       p.clientCA,
		"front-proxy-ca.crt":  p.frontProxyCA,
		"front-proxy.crt":     p.frontProxy.cert,
		"front-proxy.key":     p.frontProxy.key,
		"serving.crt":         p.serving.cert,
		"serving.key":         p.serving.key,
		"serving-ca.crt":      p.servingCA,
		"service-account.pub": p.serviceAccountPub,
		"service-account.key": p.serviceAccountKey,
	}
}

var servingNames = []string{
	"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

var servingIPs = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}

// newPKI makes the keys of one control plane, valid from an hour before now.
func newPKI(now time.Time) (*pki, error) {
	out := &pki{}
	for _, c := range []struct {
		authority string
		ca        *[]byte
		leaf      *x509.Certificate
		usage     x509.ExtKeyUsage
		pair      *keyPair
	}{
		{
			"authzconf-serving-ca", &out.servingCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: servingNames, IPAddresses: servingIPs},
			x509.ExtKeyUsageServerAuth, &out.serving,
		},
		{
			"authzconf-client-ca", &out.clientCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: adminName, Organization: []string{"system:masters"}}},
			x509.ExtKeyUsageClientAuth, &out.admin,
		},
		{
			"authzconf-front-proxy-ca", &out.frontProxyCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: frontProxyName}},
			x509.ExtKeyUsageClientAuth, &out.frontProxy,
		},
	} {
		ca := &x509.Certificate{Subject: pkix.Name{CommonName: c.authority}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(keyLifetime)}
		signed, key, err := clusters.Sign(ca, nil, nil)
		if err != nil {
			return nil, err
		}
		signer := authority{signed, key}
		*c.ca = clusters.EncodeCertificate(signed)
		if *c.pair, err = signer.sign(c.leaf, c.usage, now); err != nil {
			return nil, err
		}
		if c.ca == &out.clientCA {
			out.clients = signer
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	out.serviceAccountPub = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	out.serviceAccountKey, err = keyutil.MarshalPrivateKeyToPEM(key)
	return out, err
}
