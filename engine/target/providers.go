package target

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
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

// inDir names files by their place: the local API server runs in the folder with its files, the other one does not.
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
// controllers, the scheduler.
func (t *Target) others(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if t.network == nil {
		return false
	}
	if a := spec.NonResourceAttributes; spec.User == "system:anonymous" && a != nil && slices.Contains(probePaths, a.Path) {
		return true
	}
	return isComponent(spec.User, spec.Groups, spec.Extra[user.CredentialIDKey])
}

// isComponent: each has a credential, or more groups than its name brings with it. Somebody whom a scenario
// impersonates under such a name has neither.
func isComponent(user string, groups, credential []string) bool {
	if len(credential) > 0 {
		return strings.HasPrefix(credential[0], certificatePrefix) ||
			slices.ContainsFunc(componentSpaces, func(space string) bool { return strings.HasPrefix(user, space) })
	}
	return slices.Contains(componentUsers, user) && len(groups) > 1
}

// Plain is a control plane with nothing of the harness in its authorizer chain, for what is measured and must not
// pay for a recorder. Nothing is seen of a request but its answer.
type Plain struct {
	// Authorization is the AuthorizationConfiguration; unset, the API server has its own. Files and Args are Files and
	// KubeAPIServerArgs of local.Options.
	Authorization []byte
	Files         map[string][]byte
	Args          []string
}

// startPlain starts one, and reads back its version and gate.
func (t *Target) startPlain(ctx context.Context, o Options) error {
	if o.Cell.Provider != Local {
		return fmt.Errorf("a plain target is of the provider %s", Local)
	}
	lo, err := t.options(o)
	if err != nil {
		return err
	}
	cluster, err := startLocal(ctx, o, lo)
	if err != nil {
		return err
	}
	t.started = o
	if err := t.connect(cluster); err != nil {
		return err
	}
	t.Facts = ExpectedFacts(o)
	t.Facts.Capabilities = append(existingCapabilities(), scenarios.RequestHeader)
	return t.readBack(ctx, o)
}

// Existing is a cluster that somebody else made. It has no recorder, its audit log and flags are out of reach, its
// metrics count what others do as well, and it gives credentials to nobody but service accounts.
const Existing = verdicts.Existing

// existingCapabilities are what is left.
func existingCapabilities() []scenarios.Capability {
	return []scenarios.Capability{scenarios.Tokens, scenarios.RBAC}
}

// startExisting connects to a cluster that runs, and holds it to what it said when the run was planned.
func (t *Target) startExisting(ctx context.Context, o Options) error {
	if o.Existing == nil {
		return fmt.Errorf("the provider %s needs a kubeconfig", Existing)
	}
	if err := t.connect(o.Existing); err != nil {
		return err
	}
	facts, err := o.Existing.Inspect(ctx)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	t.Facts = ExpectedFacts(o)
	w := &t.Witness
	w.GitVersion, w.EmulatedVersion, w.ExpectedGate, w.GateMetric = facts.GitVersion, facts.Emulated, string(t.Facts.Gate), "absent"
	w.GateProbe = &reports.GateProbe{Gate: string(scenarios.GateOff)}
	if facts.GateOn {
		w.GateProbe.Gate = string(scenarios.GateOn)
	}
	w.Mismatches = w.Judge(o.Cell)
	return nil
}

// blind says that nothing is seen of a request but its answer.
func (t *Target) blind() bool { return t.Cell.Provider == Existing || t.started.Plain != nil }

// Substitutes says whether ServiceAccounts are substituted for the users of scenarios.
func (t *Target) Substitutes() bool { return t.Cell.Provider == Existing }
