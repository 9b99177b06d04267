package target

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
)

// Providers of clusters, as in verdicts.Cell.
const (
	// Local is etcd and kube-apiserver as child processes.
	Local = "local"
	// Kind is a cluster of kind, with nodes.
	Kind = "kind"
)

// kindWorkers is the number of nodes beside the control plane: scenarios about nodes need two in all.
const kindWorkers = 1

// joinNetwork lets the recorder listen where the nodes, and only they, reach it.
func (t *Target) joinNetwork(ctx context.Context, o *recorder.Options) error {
	network, err := kind.FindNetwork(ctx)
	if err != nil {
		return err
	}
	t.network = &network
	o.Listener, err = network.Listen(ctx)
	return err
}

func (t *Target) startKind(ctx context.Context, o Options, lo local.Options) (clusters.Cluster, error) {
	ko := kindOptions(o, lo)
	ko.Network = t.network
	cluster, err := kind.Start(ctx, ko)
	if err != nil {
		return nil, err
	}
	return cluster, nil
}

// kindOptions is the same API server as on a local control plane.
func kindOptions(o Options, lo local.Options) kind.Options {
	lo.KubeAPIServerArgs, lo.Keep = inDir(lo.KubeAPIServerArgs), o.Keep
	return kind.Options{
		Name:    strings.NewReplacer(".", "-").Replace(o.Cell.Name),
		Image:   o.NodeImage,
		Version: o.Cell.Kubernetes,
		Workers: kindWorkers,
		Options: lo,
	}
}

// inDir names files by their place: the local API server runs in the folder with
// its files, the other one does not.
func inDir(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if name, file, _ := strings.Cut(a, "="); strings.HasSuffix(name, "-file") && !strings.Contains(file, "/") {
			args[i] = name + "=" + local.DirPlaceholder + "/" + file
		}
	}
	return args
}

// componentSpaces hold the accounts of components; the second is where kind's default storage runs.
var componentSpaces = []string{"system:serviceaccount:kube-system:", "system:serviceaccount:local-path-storage:"}

// componentUsers are those by which the components of a cluster act that have no certificate of their own.
var componentUsers = []string{"system:apiserver", "kube-apiserver-kubelet-client"}

// probePaths are what a kubelet asks an API server for without credentials. No
// scenario sends an anonymous request for one.
var probePaths = []string{"/livez", "/readyz", "/healthz"}

const certificatePrefix = "X509SHA256="

// others says whether a review is about the components of a cluster with nodes, which talk all the time: kubelets,
// controllers, the scheduler. They have certificates of their own, which is what their credential says, or
// accounts in their own namespaces; no requestor of a scenario has either.
func (t *Target) others(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if t.network == nil {
		return false
	}
	if a := spec.NonResourceAttributes; spec.User == "system:anonymous" && a != nil && slices.Contains(probePaths, a.Path) {
		return true
	}
	credential := spec.Extra[user.CredentialIDKey]
	return isComponent(spec.User, len(credential) > 0 && strings.HasPrefix(credential[0], certificatePrefix))
}

func isComponent(user string, certificate bool) bool {
	return certificate || slices.Contains(componentUsers, user) ||
		slices.ContainsFunc(componentSpaces, func(space string) bool { return strings.HasPrefix(user, space) })
}
