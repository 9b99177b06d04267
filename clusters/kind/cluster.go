package kind

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"
)

// ErrStopped is the cause of whatever Stop breaks off.
var ErrStopped = errors.New("the kind cluster was stopped")

// Cluster is a running kind cluster. Its methods are safe for concurrent use. The API server is changed by one of them
// at a time.
type Cluster struct {
	name  string
	state *state
	// folders are the folders of the API servers on this machine, audits follow their audit logs, and hosts are their
	// addresses. All are by node.
	folders map[string]serverFolders
	audits  map[string]*auditLog
	hosts   map[string]string
	// balancer is the address of kind's load balancer in front of several API servers. It is empty if there is only
	// one.
	balancer string
	// joined are the nodes whose API servers are members.
	joined []string
	// manifests are the manifests that were written since the cluster was created, by node.
	manifests map[string]writtenManifest

	admin, frontProxy, anonymous *rest.Config

	life    sync.Mutex // locked while the API server is changed
	opts    Options
	readyIn time.Duration

	ctx      context.Context
	cancel   context.CancelCauseFunc
	stopOnce sync.Once
	stopErr  error
	done     chan struct{}
	err      error
}

// Start creates a cluster, and returns when its API server and its nodes are ready. An error that is caused by the
// request or by this machine's engine is a *usage.Error. After an error nothing remains.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	if o, err = o.complete(); err != nil {
		return nil, err
	}
	if o.Network == nil { // kind creates its network too, but without a lock
		if _, err := FindNetwork(ctx); err != nil {
			return nil, err
		}
	}
	if err := o.checkImages(ctx); err != nil {
		return nil, err
	}
	name, state, err := newState(o.Name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		name: name, state: state, opts: o, done: make(chan struct{}),
		manifests: map[string]writtenManifest{}, folders: map[string]serverFolders{}, audits: map[string]*auditLog{},
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			c.opts.Keep = false
			err = errors.Join(err, c.Stop())
		}
	}()
	start := time.Now()
	if err := c.create(ctx); err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	if err := c.bringVersions(ctx); err != nil {
		return nil, err
	}
	if err := c.mendAddOns(ctx); err != nil {
		return nil, err
	}
	c.readyIn = time.Since(start)
	go c.watch()
	return c, nil
}

// create has kind create the cluster. kind's own waiting cannot be interrupted, so when ctx ends its containers are
// removed, which makes it fail.
func (c *Cluster) create(ctx context.Context) error {
	folders, err := c.state.makeFolders(len(c.opts.servers()))
	if err != nil {
		return err
	}
	for i, node := range c.controlPlanes() {
		c.folders[node] = folders[i]
	}
	if err := c.writeFiles(c.controlPlanes(), c.opts.files()); err != nil {
		return err
	}
	if err := c.followAudits(); err != nil {
		return err
	}
	config, err := c.opts.config(c.name, folders)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the kind cluster was not ready after %s", readyTimeout))
	defer cancel()
	logger := &lineLogger{}
	program, err := findProgram(ctx)
	if err != nil {
		return err
	}
	provider := program.provider(kindcluster.ProviderWithLogger(logger))
	ended := make(chan error, 1)
	go func() {
		ended <- provider.Create(c.name,
			kindcluster.CreateWithV1Alpha4Config(config),
			kindcluster.CreateWithKubeconfigPath(filepath.Join(c.state.path, "kubeconfig")),
			kindcluster.CreateWithRetain(true), // its log is shown first
			kindcluster.CreateWithWaitForReady(readyTimeout),
			kindcluster.CreateWithDisplayUsage(false),
			kindcluster.CreateWithDisplaySalutation(false))
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		const grace = time.Minute
		for deadline := time.Now().Add(grace); time.Now().Before(deadline); {
			cleanup, stop := context.WithTimeout(context.Background(), grace)
			_ = removeContainers(cleanup, c.name) // Stop tries again, and returns what is wrong
			stop()
			select {
			case err := <-ended: // it failed, because its containers are gone
				return errors.Join(context.Cause(ctx), err)
			case <-time.After(time.Second):
			}
		}
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("creating a kind cluster: %w%s%s", err, outputOf(err), c.failureLog(logger))
	}
	return nil
}

// outputOf returns what the command that failed in kind had printed, on a line of its own.
func outputOf(err error) string {
	failed := kindexec.RunErrorForError(err)
	if failed == nil || len(failed.Output) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(failed.Output))
}

// auditLog is the audit log of an API server, which is followed, and its lines.
type auditLog struct {
	*tail
	lines *lines
}

// followAudits begins to read the audit logs of the API servers, if somebody wants their events.
func (c *Cluster) followAudits() error {
	if c.opts.AuditPolicy == nil || c.opts.AuditSink == nil {
		return nil
	}
	merger := &lineMerger{to: c.opts.AuditSink}
	for node, folders := range c.folders {
		l := &lines{merger: merger}
		audit, err := follow(filepath.Join(folders.Audit, auditFile), l)
		if err != nil {
			return err
		}
		c.audits[node] = &auditLog{audit, l}
	}
	return nil
}

// writeFiles writes the files that the API servers of some nodes read.
func (c *Cluster) writeFiles(nodes []string, files map[string][]byte) error {
	for _, node := range nodes {
		if err := c.folders[node].write(files); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) connect(ctx context.Context) error {
	program, err := findProgram(ctx)
	if err != nil {
		return err
	}
	raw, err := program.provider().KubeConfig(c.name, false)
	if err != nil {
		return err
	}
	base, err := clientcmd.RESTConfigFromKubeConfig([]byte(raw))
	if err != nil {
		return err
	}
	// RBAC authorizes the usual administrator, so the recorder would see all of its requests. This administrator is in
	// system:masters.
	var super, cert, key []byte
	for path, into := range map[string]*[]byte{"super-admin.conf": &super, "pki/front-proxy-client.crt": &cert, "pki/front-proxy-client.key": &key} {
		if *into, err = c.readNode(ctx, "/etc/kubernetes/"+path); err != nil {
			return err
		}
	}
	masters, err := clientcmd.RESTConfigFromKubeConfig(super)
	if err != nil {
		return err
	}
	if err := c.findHosts(ctx, base.Host); err != nil {
		return err
	}
	bare := &rest.Config{Host: c.hosts[c.controlPlane()], TLSClientConfig: rest.TLSClientConfig{CAData: base.CAData}, QPS: -1}
	c.anonymous = bare
	c.admin = rest.CopyConfig(bare)
	c.admin.CertData, c.admin.KeyData = masters.CertData, masters.KeyData
	c.frontProxy = rest.CopyConfig(bare)
	c.frontProxy.CertData, c.frontProxy.KeyData = cert, key
	return c.eachServer(ctx, c.waitReady)
}

func (c *Cluster) waitReady(ctx context.Context, node string) error {
	return c.await(ctx, "is not ready", func(ctx context.Context) error {
		_, err := c.get(ctx, node, "/readyz")
		return err
	})
}

// await tries again until there is no error, for as long as the API server may take to become ready.
func (c *Cluster) await(ctx context.Context, failed string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the API server of %s %s: %w%s", c.name, failed, last, c.failureLog(nil))
	}
	return err
}

const readyPoll = 50 * time.Millisecond

// get reads from the API server of a node.
func (c *Cluster) get(ctx context.Context, node, path string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(c.APIServers()[node])
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
}

func (c *Cluster) watch() {
	err := c.eachServer(c.ctx, func(ctx context.Context, node string) error {
		_, err := runEngine(ctx, "wait", node)
		return errors.Join(fmt.Errorf("the control-plane node %s ended by itself", node), err)
	})
	if c.ctx.Err() != nil {
		return
	}
	c.err = err
	close(c.done)
}

// Name is the cluster's name for kind.
func (c *Cluster) Name() string { return c.name }

// controlPlane is the container of the control-plane node, which is also the node's name.
func (c *Cluster) controlPlane() string { return c.name + "-control-plane" }

// Admin implements clusters.Cluster.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// FrontProxy implements clusters.Cluster.
func (c *Cluster) FrontProxy() *rest.Config { return rest.CopyConfig(c.frontProxy) }

// Anonymous implements clusters.Cluster.
func (c *Cluster) Anonymous() *rest.Config { return rest.CopyConfig(c.anonymous) }

// Dir returns the cluster's folder on this machine, which only this user can read.
func (c *Cluster) Dir() string { return c.state.path }

// ReadyIn returns how long the creation took. After a restart of the API server it is how long the new process took.
func (c *Cluster) ReadyIn() time.Duration {
	c.life.Lock()
	defer c.life.Unlock()
	return c.readyIn
}

// Err implements clusters.Cluster.
func (c *Cluster) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	for _, audit := range c.audits {
		if err := audit.failure(); err != nil {
			return err
		}
	}
	return nil
}

// Stop deletes the cluster and its folder, unless Options.Keep. It is idempotent.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		c.cancel(ErrStopped)
		c.life.Lock()
		defer c.life.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var errs []error
		if c.opts.Keep {
			// What remains works without this process.
			errs = append(errs, c.reloadOn(c.controlPlanes(), []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")))
		} else {
			errs = append(errs, removeAll(ctx, c.name))
		}
		for _, audit := range c.audits {
			errs = append(errs, audit.stop())
		}
		c.stopErr = errors.Join(append(errs, c.state.leave(c.opts.Keep))...)
	})
	return c.stopErr
}

// ReloadAuthorization replaces the AuthorizationConfiguration of the running API servers that are not members. They
// watch the file. It does not wait until they use it.
func (c *Cluster) ReloadAuthorization(config []byte) error {
	return c.reloadOn(c.own(), config)
}

func (c *Cluster) reloadOn(nodes []string, config []byte) error {
	return c.writeFiles(nodes, map[string][]byte{authorizationFile: []byte(expand(string(config)))})
}
