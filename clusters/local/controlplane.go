package local

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
)

// ErrStopped is returned after Stop by methods that change processes, such as RestartAPIServer.
var ErrStopped = errors.New("the control plane was stopped")

// ControlPlane is a running kube-apiserver with its etcd, or with that of another control plane
// (see Options.Join). All methods may be called at any time from several goroutines.
type ControlPlane struct {
	run   *runDir
	pki   *pki
	owner *ControlPlane // whose etcd is used: this one, unless it has joined another
	// ctx ends when Stop is called.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when a process ends by itself
	watchers sync.WaitGroup
	stopOnce sync.Once
	stopErr  error
	life     sync.Mutex // locked while processes are started or stopped, one at a time

	mu        sync.Mutex // guards the fields below
	opts      Options
	port      int
	etcd      *process
	apiServer *process
	audit     *lineWriter
	programs  Programs
	readyIn   time.Duration
	err       error
	joined    map[*ControlPlane]bool // who else uses this etcd
	// processorTime is how much processor time ended processes have used, by name.
	processorTime map[string]time.Duration
}

// Start starts etcd and kube-apiserver, and returns when /readyz answers ok and the namespaces default and kube-system
// exist. It may first build the programs, which takes minutes. The context limits all of this, and nothing after it.
// After an error nothing remains, running or on disk. The caller has to call Stop.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	if o, err = o.complete(); err != nil {
		return nil, err
	}
	if o.Port != 0 {
		if err := claimPort(o.Port); err != nil {
			return nil, err
		}
	}
	programs, err := findPrograms(ctx, o)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	run, err := newRunDir(ctx, o.Release.Version, o.Keep)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{run: run, opts: o, port: o.Port, done: make(chan struct{}), joined: map[*ControlPlane]bool{}}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.owner = c
	if o.Join != nil {
		c.owner = o.Join.owner
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	c.life.Lock()
	defer c.life.Unlock()
	if err := c.prepareEtcd(ctx, programs.Etcd.Path); err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx, o, programs); err != nil {
		return nil, err
	}
	return c, noteStart(time.Since(began))
}

// Programs are those of a control plane.
type Programs struct{ Etcd, KubeAPIServer Program }

func findPrograms(ctx context.Context, o Options) (out Programs, err error) {
	switch {
	case o.Join != nil:
		out.Etcd = o.Join.Programs().Etcd
	case o.EtcdPath != "":
		out.Etcd = Program{Name: "etcd", Path: o.EtcdPath, Origin: originGiven}
	default:
		if out.Etcd, err = o.Binaries.find(ctx, etcd()); err != nil {
			return out, err
		}
	}
	if o.KubeAPIServerPath != "" {
		out.KubeAPIServer = Program{Name: "kube-apiserver", Path: o.KubeAPIServerPath, Origin: originGiven}
		return out, nil
	}
	out.KubeAPIServer, err = o.Binaries.findAPIServer(ctx, o.Release)
	return out, err
}

// prepareEtcd starts etcd and makes the keys, or uses those of the control plane that is joined.
func (c *ControlPlane) prepareEtcd(ctx context.Context, path string) error {
	if c.owner != c {
		return c.join()
	}
	if err := c.startEtcd(path); err != nil {
		return err
	}
	// The keys are made while etcd starts.
	keys, err := newPKI(time.Now())
	if err != nil {
		return err
	}
	if err := c.writeKeys(keys); err != nil {
		return err
	}
	ctx, cancel := withReadyTimeout(ctx, c.opts)
	defer cancel()
	return c.waitEtcd(ctx)
}

func (c *ControlPlane) startEtcd(path string) error {
	etcd, err := startProcess(processSpec{name: "etcd", path: path, args: arguments.Etcd, dir: c.run.path})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.etcd = etcd
	c.mu.Unlock()
	c.watch(etcd, c.etcdLost)
	return nil
}

// waitEtcd waits until etcd's socket exists. kube-apiserver itself waits for etcd's answers, and starts meanwhile.
func (c *ControlPlane) waitEtcd(ctx context.Context) error {
	const interval = 2 * time.Millisecond
	return c.await(ctx, c.etcd, nil, interval, func() bool {
		_, err := os.Stat(filepath.Join(c.run.path, etcdSocket))
		return err == nil
	})
}

func (c *ControlPlane) watch(p *process, report func(error)) {
	c.watchers.Go(func() {
		<-p.done
		c.countTime(p)
		if !p.stopRequested() {
			report(p.ended())
		}
	})
}

func (c *ControlPlane) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// Done returns a channel that is closed when kube-apiserver or the etcd that it uses ends by itself, and not by Stop or
// another method here.
func (c *ControlPlane) Done() <-chan struct{} { return c.done }

// Err returns why results can no longer be trusted: a [*ProcessError] once a process has ended by itself, or an error
// of the audit sink, which means that events were lost. Otherwise it returns nil, also after Stop. The death of an etcd
// is reported by every control plane that uses it, and that of a kube-apiserver only by its own. It is also an error if
// a joined control plane was stopped first.
func (c *ControlPlane) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.auditFailure()
}

func (c *ControlPlane) auditFailure() error {
	if c.audit == nil || c.audit.failure() == nil {
		return nil
	}
	return fmt.Errorf("audit events were lost: the audit sink failed: %w", c.audit.failure())
}

// Stop ends kube-apiserver, and then etcd if that is its own, and removes the run's folder unless Options.Keep is set.
// Both are killed, because nothing of theirs is needed again, unless the folder is kept: then they end in order, which
// takes about 2 s. Further calls wait for the first one and return the same. An error says what could not be cleaned
// up, or that audit events were lost. Only Err reports that a process ended by itself.
func (c *ControlPlane) Stop() error {
	c.stopOnce.Do(func() {
		c.cancel(ErrStopped)
		c.life.Lock()
		defer c.life.Unlock()
		c.stopErr = c.stopAll()
	})
	return c.stopErr
}

func (c *ControlPlane) stopAll() error {
	c.mu.Lock()
	etcd, apiServer := c.etcd, c.apiServer
	orderly := c.opts.Keep && c.err == nil
	c.mu.Unlock()
	var grace time.Duration
	if orderly {
		grace = shutdownGrace
	}
	c.leave()
	var errs []error
	for _, p := range []*process{apiServer, etcd} {
		if p != nil {
			errs = append(errs, p.stop(grace))
		}
	}
	if errors.Join(errs...) == nil {
		c.watchers.Wait()
	}
	c.owner.dismiss(c)
	c.mu.Lock()
	errs = append(errs, c.auditFailure())
	c.mu.Unlock()
	return errors.Join(append(errs, c.run.remove())...)
}

// PIDs are the ids of the processes.
type PIDs struct{ Etcd, KubeAPIServer int }

// PIDs returns the IDs of the running processes. It is 0 for a process that does not run, or that is another control
// plane's.
func (c *ControlPlane) PIDs() (out PIDs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etcd != nil && !c.etcd.hasExited() {
		out.Etcd = c.etcd.pid
	}
	if c.apiServer != nil && !c.apiServer.hasExited() {
		out.KubeAPIServer = c.apiServer.pid
	}
	return out
}

// Dir returns the absolute path of the run's folder. It contains etcd.log, kube-apiserver.log and everything else of
// the run.
func (c *ControlPlane) Dir() string { return c.run.path }

// Port returns the port of the API server on 127.0.0.1.
func (c *ControlPlane) Port() int { return guarded(&c.mu, &c.port) }

// Options returns a copy of the current options of the control plane, with defaults filled in.
func (c *ControlPlane) Options() Options { return guarded(&c.mu, &c.opts).clone() }

// Programs returns the programs it runs now.
func (c *ControlPlane) Programs() Programs { return guarded(&c.mu, &c.programs) }

// ReadyIn returns how long the last start of the API server took until it was ready.
func (c *ControlPlane) ReadyIn() time.Duration { return guarded(&c.mu, &c.readyIn) }

func guarded[T any](mu *sync.Mutex, value *T) T {
	mu.Lock()
	defer mu.Unlock()
	return *value
}

// Admin returns a client configuration for a member of system:masters, whom no authorizer ever sees. It is for
// preparations, and never for the requestor of a test. Like all of these configurations it has no limit of rate, and
// names the current port: after RestartAPIServer ask for it again.
func (c *ControlPlane) Admin() *rest.Config { return c.config(c.pki.admin) }

// FrontProxy returns a client configuration for an authenticating proxy. The API server believes its headers
// X-Remote-User, X-Remote-Uid, X-Remote-Group and X-Remote-Extra-<key>, so that it can act as any requestor. A request
// without X-Remote-User is unauthorized.
func (c *ControlPlane) FrontProxy() *rest.Config { return c.config(c.pki.frontProxy) }

// SignClient returns a new client certificate for a user with groups, and its key, in PEM.
func (c *ControlPlane) SignClient(user string, groups []string) (cert, key []byte, err error) {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: groups}}
	pair, err := c.pki.clients.sign(leaf, x509.ExtKeyUsageClientAuth, time.Now())
	return pair.cert, pair.key, err
}

// ServiceAccountKey is the key, in PEM, with which the API server signs tokens.
func (c *ControlPlane) ServiceAccountKey() []byte { return c.pki.serviceAccountKey }

// Anonymous returns a client configuration without credentials, to which a token can be added.
func (c *ControlPlane) Anonymous() *rest.Config { return c.config(keyPair{}) }

func (c *ControlPlane) config(client keyPair) *rest.Config {
	return &rest.Config{
		Host: c.url(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.pki.servingCA,
			CertData: client.cert,
			KeyData:  client.key,
		},
		// A negative rate means no limit; 0 would mean client-go's default.
		QPS: -1,
	}
}

// KubeconfigPath is a kubeconfig for the admin, readable by this user only.
func (c *ControlPlane) KubeconfigPath() string { return filepath.Join(c.run.path, kubeconfigFile) }

func (c *ControlPlane) writeKubeconfig() error {
	data, err := clusters.Kubeconfig("authzconf", c.Admin())
	if err != nil {
		return err
	}
	return c.run.write(kubeconfigFile, data)
}
