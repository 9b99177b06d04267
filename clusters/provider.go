package clusters

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/scenarios"
)

// Provider is where a control plane comes from: `local` processes, `kind`, an `existing` cluster, or in tests whatever
// e2e-framework supports.
//
// The table of all providers is in package providers.
type Provider interface {
	// Name returns the name of the provider for --provider and in the cells of a report.
	Name() string
	// Capabilities returns what every cluster of the provider can do and show.
	Capabilities() Capabilities
	// Create starts a cluster, and returns when its API server is ready. After an error nothing remains. A request that
	// the provider cannot fulfil is a *usage.Error.
	Create(ctx context.Context, r Request) (Cluster, error)
}

// Capabilities are what a cluster of a provider can do and show.
//
// They are what anybody asks who has to know what kind of cluster there
// is: nobody outside of this folder compares the name of a provider.
type Capabilities struct {
	// Recorder means that the authorizer chain is that of the request, so that the recorder can be at both ends of it.
	Recorder bool
	// AuditLog means that the audit event of each request can be read.
	AuditLog bool
	// Metrics means that the API server's counters count only the requests of the harness.
	Metrics bool
	// Reload means that a running API server accepts another authorizer chain. The Cluster is a Reloader.
	Reload bool
	// Restart means that the API server can be replaced by one of another version or gate. The Provider is a Restarter.
	Restart bool
	// Kill means that the API server can be killed before it is replaced. The Cluster is a Killer.
	Kill bool
	// Members means that a cluster is created with all its API servers behind a balancer of its own, and that those
	// after the first can become targets of their own (see Request.Join). The Cluster is a Several.
	Members bool
	// SeveralServers means that further API servers can be started on the etcd of a cluster (see Request.Join).
	SeveralServers bool
	// Nodes means that there are nodes whose kubelets run pods, and components that send requests all the time. The
	// Cluster is an image.Loader.
	Nodes bool
	// Processes means that etcd and the API server are child processes of this one. Their memory, programs and keys are
	// accessible, and they can be broken on purpose.
	Processes bool
	// Cheap means that a cluster starts in seconds. It is created anew rather than used twice, and several run at the
	// same time.
	Cheap bool
	// Foreign means that nothing of the harness is in the cluster, which is observed from outside. Its version and gate
	// are its own, only ServiceAccounts get credentials, so that they are substituted for users, and what is created in
	// it is removed again.
	Foreign bool
}

// Request describes the cluster that is wanted. For a foreign cluster only the name matters.
type Request struct {
	// Name says what the cluster is for. A provider that needs unique names makes one from it.
	Name string
	// Version is the version of the API server, such as 1.37.1. EmulatedVersion is the minor that it emulates, if it
	// does.
	Version, EmulatedVersion string
	FeatureGates             map[string]bool
	// AuthorizationConfig is an AuthorizationConfiguration in YAML. Without it the authorizers are Node and RBAC.
	AuthorizationConfig []byte
	// AuditPolicy is an audit Policy in YAML. AuditSink receives the events: each Write is one JSON document and a
	// newline. Without a policy nothing is audited.
	AuditPolicy []byte
	AuditSink   io.Writer
	// Args are further arguments of kube-apiserver, of the form --name=value.
	Args []string
	// Unchanged keeps the default admission plugins of the API server, even those that need controllers which do not
	// run.
	Unchanged bool
	// Files are put where the API server reads them. In arguments and in AuthorizationConfig, DirPlaceholder stands for
	// their folder.
	Files map[string][]byte
	// Network is what the provider has returned before, if it is Networked; otherwise it is nil.
	Network Network
	// Join is a cluster of the same provider whose etcd and keys are used. One that has SeveralServers starts another
	// API server, and one that has Members provides one of its own.
	Join Cluster
	// Keep leaves the cluster, or what it wrote, behind after Stop.
	Keep bool
}

// DirPlaceholder stands for the folder with the files of a Request. An AuthorizationConfiguration names its webhook's
// kubeconfig by an absolute path, which is not known before the cluster is created.
const DirPlaceholder = "${RUN_DIR}"

// Preparer is a Provider that has something to build or download before its first cluster, which takes minutes.
type Preparer interface {
	Prepare(ctx context.Context, r Request) error
}

// Networked is a Provider whose clusters do not reach the loopback interface of this machine.
type Networked interface {
	// Network returns the network on which clusters reach this process, which may have to be made.
	Network(ctx context.Context) (Network, error)
}

// Network is a network between clusters and this process.
type Network interface {
	// Listen opens a port to which clusters can connect, and nobody else.
	Listen(ctx context.Context) (net.Listener, error)
	// Address returns the address of this machine on the network.
	Address() netip.Addr
}

// Reloader is a Cluster that can be given another authorizer chain while it runs.
type Reloader interface {
	// ReloadAuthorization replaces the AuthorizationConfiguration. It does not wait until the API server uses it.
	ReloadAuthorization(config []byte) error
}

// ClientSigner is a Cluster whose authority of client certificates is at hand.
type ClientSigner interface {
	// SignClient returns a new certificate, in PEM, that authenticates a user with groups, and its key.
	SignClient(user string, groups []string) (cert, key []byte, err error)
}

// Restarter is a Provider that can replace the API server of a cluster of its own.
type Restarter interface {
	// Restart ends the API server, starts it as the request says on the same etcd and with the same keys, and returns
	// how long that took. After an error there may be none running, and Restart may be called again.
	Restart(ctx context.Context, c Cluster, r Request) (time.Duration, error)
}

// CommandReader is a Cluster that can read the command line of its API server from the process that runs.
type CommandReader interface {
	// ReadCommand returns the arguments of the process, without its program.
	ReadCommand(ctx context.Context) ([]string, error)
}

// NodeReplacer is a Cluster whose nodes can get other kubelets while their pods stay.
type NodeReplacer interface {
	// ReplaceKubelets gives one node after the other, beginning with those of the control plane, the kubelet of a
	// version such as 1.37.1, from a node image if one is named. It returns when all nodes are ready.
	ReplaceKubelets(ctx context.Context, version, image string) error
}

// Killer is a Cluster whose API server can be killed.
type Killer interface {
	// KillAPIServer ends the API server at once (SIGKILL) on purpose, so that Err does not report it. None runs until
	// Restart.
	KillAPIServer() error
}

// Several is a Cluster that may have more than one API server.
type Several interface {
	// Balancer returns the URL of the balancer in front of all API servers of the cluster, which is part of the
	// cluster, or "" if there is none.
	Balancer() string
	// APIServers returns configurations of an administrator of each API server by itself, by the name of its node.
	APIServers() map[string]*rest.Config
}

// Describer is a Cluster that reports what it is, because nobody here has chosen that.
type Describer interface {
	Facts(ctx context.Context) (Facts, error)
}

// Facts are what a cluster reports about itself.
type Facts struct {
	// GitVersion is the version of the API server, such as v1.37.1. Emulated is the minor that it emulates.
	GitVersion, Emulated string
	// Gate is the state of ConstrainedImpersonation: on or off.
	Gate scenarios.Gate
}
