package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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
func (s *Server) joinNetwork(ctx context.Context, o *recorder.Options) error {
	network, err := kind.FindNetwork(ctx)
	if err != nil {
		return err
	}
	s.network = &network
	o.Listener, err = network.Listen(ctx)
	return err
}

func (s *Server) startKind(ctx context.Context, o Options, lo local.Options) (clusters.Cluster, error) {
	ko := kindOptions(o, lo)
	ko.Network = s.network
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

// probePaths are what a kubelet asks for without credentials. No scenario sends an anonymous request for one.
var probePaths = []string{"/livez", "/readyz", "/healthz"}

const certificatePrefix = "X509SHA256="

// others says whether a review is about components of a cluster with nodes, which talk all the time.
func (s *Server) others(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if s.network == nil {
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

func (s *Server) startPlain(ctx context.Context, o Options) error {
	if o.Cell.Provider != Local {
		return fmt.Errorf("a plain target is of the provider %s", Local)
	}
	lo, err := s.options(o)
	if err != nil {
		return err
	}
	cluster, err := startLocal(ctx, o, lo)
	if err != nil {
		return err
	}
	s.started = o
	if err := s.connect(cluster); err != nil {
		return err
	}
	s.Facts = ExpectedFacts(o)
	s.Facts.Capabilities = append(existingCapabilities(), scenarios.RequestHeader)
	return s.readBack(ctx, o)
}

// Existing is a cluster that somebody else made. It has no recorder, its audit log and flags are out of reach, its
// metrics count what others do as well, and it gives credentials to nobody but service accounts.
const Existing = verdicts.Existing

// existingCapabilities are what is left.
func existingCapabilities() []scenarios.Capability {
	return []scenarios.Capability{scenarios.Tokens, scenarios.RBAC}
}

// startExisting connects to a cluster that runs, and holds it to what it said when the run was planned.
func (s *Server) startExisting(ctx context.Context, o Options) error {
	if o.Existing == nil {
		return fmt.Errorf("the provider %s needs a kubeconfig", Existing)
	}
	if err := s.connect(o.Existing); err != nil {
		return err
	}
	facts, err := o.Existing.Inspect(ctx)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	s.Facts = ExpectedFacts(o)
	w := &s.Witness
	w.GitVersion, w.EmulatedVersion, w.ExpectedGate, w.GateMetric = facts.GitVersion, facts.Emulated, string(s.Facts.Gate), "absent"
	w.GateProbe = &reports.GateProbe{Gate: string(scenarios.GateOff)}
	if facts.GateOn {
		w.GateProbe.Gate = string(scenarios.GateOn)
	}
	w.Mismatches = w.Judge(o.Cell)
	return nil
}

// blind says that nothing is seen of a request but its answer.
func (s *Server) blind() bool { return s.Cell.Provider == Existing || s.started.Plain != nil }

// Substitutes says whether ServiceAccounts are substituted for the users of scenarios.
func (s *Server) Substitutes() bool { return s.Cell.Provider == Existing }

func (s *Server) replaceAPIServer(ctx context.Context, o Options, wanted local.Options) (time.Duration, error) {
	switch cluster := s.cluster.(type) {
	case *local.ControlPlane:
		err := cluster.RestartAPIServer(ctx, func(lo *local.Options) { *lo = wanted })
		return cluster.ReadyIn(), err
	case *kind.Cluster:
		err := cluster.RestartAPIServer(ctx, func(ko *kind.Options) { *ko = kindOptions(o, wanted) })
		return cluster.ReadyIn(), err
	}
	return 0, errors.New("the API server of this cluster cannot be replaced")
}

// Restart ends the API server and starts it as o says: another version, gate or authorizer chain, on the same
// etcd, with the same keys, at the same address and with the same recorder. It reads the witness back anew. Nobody
// else may use the target meanwhile. After an error no API server runs, and Restart may be called again.
func (s *Server) Restart(ctx context.Context, o Options) error {
	s.users.Lock()
	defer s.users.Unlock()
	between, err := loadMiddle(o.Chain)
	if err != nil {
		return err
	}
	if o.Cell.Provider == Kind && Shared(s.started, o) && !s.started.hasABAC() && !o.hasABAC() {
		return s.changeChain(ctx, o)
	}
	s.Cell, s.between, s.asked, s.now, s.Kubectl = o.Cell, between, o.Chain, o.Chain, o.Kubectl
	s.Witness, s.last = reports.Witness{}, nil
	wanted, err := s.options(o)
	if err != nil {
		return err
	}
	s.adminHTTP.CloseIdleConnections()
	took, err := s.replaceAPIServer(ctx, o, wanted)
	if err != nil {
		return err
	}
	s.started, s.replaced = o, time.Now().Add(-took)
	if err := s.witness(ctx, o); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	return nil
}

// Renew ends the API server and starts it as it was, while others use it: its caches are empty. Version and gate are
// read back; that the chain is as before is not asked, for the recorder may be counting.
func (s *Server) Renew(ctx context.Context) error {
	s.users.Lock()
	defer s.users.Unlock()
	o := s.started
	wanted, err := s.options(o)
	if err != nil {
		return err
	}
	s.adminHTTP.CloseIdleConnections()
	s.Witness.Mismatches = nil
	if _, err := s.replaceAPIServer(ctx, o, wanted); err != nil {
		return err
	}
	return s.readBack(ctx, o)
}

// Replaced is when the API server that runs now was started by Restart: the one before had ended.
func (s *Server) Replaced() time.Time { return s.replaced }

// Mark is what Verbs counts from.
func (s *Server) Mark() uint64 { return s.recorder.Mark() }

// Verbs counts the access reviews that have arrived at the front of the chain since a mark, by verb, without the
// harness's own, and without those of an API server that Restart replaced since.
func (s *Server) Verbs(mark uint64) map[string]int {
	verbs := map[string]int{}
	for _, r := range s.recorder.Since(mark) {
		if r.Point != recorder.Front || r.At.Before(s.replaced) || s.others(r.Spec) {
			continue
		}
		if a := r.Spec.ResourceAttributes; a != nil {
			verbs[a.Verb]++
		} else if a := r.Spec.NonResourceAttributes; a != nil {
			verbs[a.Verb]++
		}
	}
	return verbs
}

// Rebase takes the impersonation counters now for those after the last request: others have sent some meanwhile.
func (s *Server) Rebase(ctx context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recount(ctx)
}

// recount is needed by the scenarios to come, also where the time of the one that asks for it is over. Counters that cannot
// be read are not taken for none: every scenario behind would be judged without.
func (s *Server) recount(ctx context.Context) error {
	if s.last == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	now, err := s.impersonationCounters(ctx)
	if err == nil {
		s.last = now
	}
	return err
}

// Shared says whether one cluster can be two targets, one after the other: they differ in nothing but the
// authorizer chain. An API server reads an ABAC policy only when it starts; a cluster of kind takes so long to make
// that its API server is restarted for one, while a local control plane is made anew.
func Shared(a, b Options) bool {
	if a.Chain == b.Chain || a.Cell.Provider == Existing {
		return false
	}
	if a.Cell.Provider == Local && (a.hasABAC() || b.hasABAC()) {
		return false
	}
	for _, o := range []*Options{&a, &b} {
		o.Cell.Name, o.Chain, o.Kubectl = "", "", ""
	}
	return reflect.DeepEqual(a, b)
}

// hasABAC says whether the chain has an ABAC authorizer. That there is no such chain is said when it is used.
func (o Options) hasABAC() bool {
	between, err := loadMiddle(o.Chain)
	return err == nil && between.ABACPolicy != ""
}

// Switch makes the target the one that o asks for, which shares its cluster. Where it can, the API server takes over
// the other authorizer chain while it runs. The witness is read anew. Nobody else may use the target meanwhile.
func (s *Server) Switch(ctx context.Context, o Options) error {
	if s.started.hasABAC() || o.hasABAC() {
		return s.Restart(ctx, o)
	}
	s.users.Lock()
	defer s.users.Unlock()
	return s.changeChain(ctx, o)
}

// changeChain makes the target another cell's by its chain alone.
func (s *Server) changeChain(ctx context.Context, o Options) error {
	if err := s.Reload(ctx, o.Chain); err != nil {
		return err
	}
	s.Cell, s.asked, s.started, s.Kubectl = o.Cell, o.Chain, o, o.Kubectl
	s.Witness, s.last = reports.Witness{}, nil
	return s.witness(ctx, o)
}

// What follows is for storms, in which many requests are under way and nothing is attributed to one of them.

// Count has the recorder count reviews instead of recording them; see recorder.Recorder.Count.
func (s *Server) Count(c *recorder.Counting) { s.own.Count(c) }

// Other says of a review that it is about a component of the cluster, and of nobody who was created for a storm.
func (s *Server) Other(_ recorder.Point, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return s.others(spec)
}

// Components says whether the cluster has components that ask all the time.
func (s *Server) Components() bool { return s.network != nil }

// PIDs are the process IDs of the API server and etcd; 0 if it does not run, is another target's, or not this machine's.
func (s *Server) PIDs() local.PIDs {
	if plane, ok := s.Plane(); ok {
		return plane.PIDs()
	}
	return local.PIDs{}
}

// Storage is the etcd of a local control plane, and nil of any other cluster.
func (s *Server) Storage() (*local.Storage, error) {
	if plane, ok := s.Plane(); ok {
		return plane.Storage()
	}
	return nil, nil //nolint:nilnil // none, and that is not an error
}

// Plane is the local control plane, whose processes can be broken on purpose; false of any other cluster.
func (s *Server) Plane() (*local.ControlPlane, bool) {
	plane, ok := s.cluster.(*local.ControlPlane)
	return plane, ok
}

// SetWebhookDown lets the scripted webhook authorizer answer 503 to everything, or no longer.
func (s *Server) SetWebhookDown(down bool) { s.policy.down.Store(down) }

// TakeEvent returns the audit event of an answered request if this API server wrote it, and forgets it.
func (s *Server) TakeEvent(auditID string) (json.RawMessage, bool) { return s.events.take(auditID) }
