// Package server starts what scenarios run on: a cluster whose authorizer chain has the recorder at both ends,
// with its audit events and metrics at hand, and the witness that it is what was asked for.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Options says what to start.
type Options struct {
	// Cell names the target and says what is asked of it.
	Cell verdicts.Cell
	// Provider creates the cluster; nil is the one that Cell.Provider names in the table of package providers, with the
	// settings that are below. One that is not in the table has the name that Cell.Provider says.
	Provider     clusters.Provider
	Release      local.Release   // the binary's version
	FeatureGates map[string]bool // set besides ConstrainedImpersonation, which Cell.Gate sets
	// Binaries finds or builds etcd and kube-apiserver.
	Binaries *local.Binaries
	// KubeAPIServerPath and KubeAPIServerEnv are those of local.Options: another program than the release's.
	KubeAPIServerPath string
	KubeAPIServerEnv  []string
	// Chain names a file of fixtures/chains: what stands between the recorder's two points. Empty is Node and RBAC.
	Chain    string
	Existing *existing.Cluster // the cluster of a cell of the provider existing
	// Webhooks are kubeconfigs of webhooks that ReloadAuthorizer puts into the chain, by name.
	Webhooks map[string][]byte
	// Kubectl are the programs that scenarios with kubectl steps run, by minor; that of the empty minor is the newest.
	Kubectl map[string]string
	// NodeImage is the node image of a cluster of kind. Empty is kindest/node of the version.
	NodeImage string
	// ControlPlanes are the nodes of the control plane of a cluster of kind beside the first.
	ControlPlanes []kind.Worker
	// Workers are the nodes of a cluster of kind beside the control plane. None stands for one like the control plane.
	Workers []kind.Worker
	// Keep leaves the cluster's folder after Stop, or the whole cluster of kind.
	Keep bool
	// NoAudit switches auditing, and Observe, off: a storm would fill the memory with events that nobody asks for.
	NoAudit bool
	// KeepMetrics are families that stay on, of those that are switched off because they are bulky.
	KeepMetrics []string
	// Plain, if given, is the authorizer chain, and nothing is recorded.
	Plain *Plain
	// Front, if given, answers at the recorder's first point, so that permissions can be given and taken at once,
	// without objects that have to get around. What it has no opinion about is for the authorizers behind it.
	Front recorder.Script
	// Join is a target whose etcd and keys are used; it has to outlive this one. Each has its own recorder and audit log.
	Join *Server
	// Elsewhere, if given, is the recorder: one that runs already, and goes on when the target is stopped.
	Elsewhere Recording
	// Cached has the API server remember the recorder's answers for as long as it does by default.
	Cached bool
	// Recorder says where the recorder listens; the zero value is a free port of the loopback interface.
	Recorder recorder.Options
}

// Effective is the version that the API server is to behave as.
func (o Options) Effective() string {
	return cmp.Or(o.Cell.Emulated, o.Cell.Kubernetes)
}

// NoteVersions adds to a report, for each version of some targets of which nothing is pinned, by which expectations it is
// judged.
func NoteVersions(r *reports.Report, targets ...Options) {
	noted := map[string]bool{}
	for _, o := range targets {
		isChosen := o.Release != local.Release{} // a cluster that exists has the version that it has
		note := o.Release.Standing()
		if !isChosen || note == "" || noted[note] {
			continue
		}
		noted[note] = true
		r.AddNote(note)
	}
}

// Recording is a recorder, of this process or another; see recorder.Recorder.
type Recording interface {
	Mark() uint64
	Since(mark uint64, users ...string) []recorder.Record
	Reset()
	Kubeconfig(point recorder.Point) []byte
	Err() error
}

// Server is a control plane that scenarios run on, with its recorder, audit log and metrics.
//
// Scenarios may be run on it from several goroutines: requests
// are sent one at a time, so that everything seen between two of them belongs to the one.
type Server struct {
	// Cell is what was asked, Witness what was read back, Facts what scenarios are selected by.
	Cell    verdicts.Cell
	Witness reports.Witness
	Facts   scenarios.Facts
	Kubectl map[string]string // the programs of Options

	cluster     clusters.Cluster
	recorder    Recording
	ownRecorder *recorder.Recorder // the same, if it is this target's and not Options.Elsewhere
	events      *auditIndex
	policy      policy
	between     middle
	host        string
	adminHTTP   *http.Client
	aggregated  aggregated
	can         clusters.Capabilities
	network     clusters.Network // on which the cluster reaches this process; nil is the loopback interface

	users                    sync.RWMutex // held while a scenario runs
	askedChain, currentChain string       // the authorizer chain that was asked for, and the one in force
	replaced                 time.Time    // see Replaced
	started                  Options      // what runs now
	broken                   error        // why the chain that was asked for is not in force

	mu   sync.Mutex // held while a request is under way
	last counters   // after the previous request
}

// Start creates a cluster with its recorder and reads the witness back. A witness that does not match is not an error
// here: Witness.Mismatches says so, and makes every result invalid.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{Cell: o.Cell, Kubectl: o.Kubectl, events: newAuditIndex(), askedChain: o.Chain, currentChain: o.Chain, started: o}
	provider, err := o.provider()
	if err != nil {
		return nil, err
	}
	s.can = provider.Capabilities()
	s.events.ignore = s.can.Nodes // before anything writes to it
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if o.Plain != nil && !s.can.Processes {
		return nil, fmt.Errorf(
			"clusters of the provider %s cannot be without a recorder: expected one whose API servers are processes of this machine",
			provider.Name(),
		)
	}
	if err := s.startRecorder(ctx, provider, o); err != nil {
		return nil, err
	}
	request, err := s.request(o)
	if err != nil {
		return nil, err
	}
	cluster, err := provider.Create(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := s.connect(cluster); err != nil {
		return nil, err
	}
	return s, s.witness(ctx, o)
}

// startRecorder starts what stands in the authorizer chain of the cluster, unless nothing of the harness does.
func (s *Server) startRecorder(ctx context.Context, provider clusters.Provider, o Options) (err error) {
	if !s.sees(o) {
		return nil
	}
	if s.between, err = loadMiddle(o.Chain); err != nil {
		return err
	}
	if networked, is := provider.(clusters.Networked); is {
		if s.network, err = networked.Network(ctx); err != nil {
			return err
		}
	}
	if s.recorder = o.Elsewhere; s.recorder != nil {
		return nil
	}
	if s.network != nil {
		if o.Recorder.Listener, err = s.network.Listen(ctx); err != nil {
			return err
		}
	}
	o.Recorder.Scripts = map[recorder.Point]recorder.Script{policyPoint: s.policy.answer, behindPoint: noOpinion, recorder.Front: o.Front}
	if s.ownRecorder, err = recorder.Start(o.Recorder); err != nil {
		return fmt.Errorf("starting the recorder: %w", err)
	}
	s.recorder = s.ownRecorder
	return nil
}

// sees reports whether more is seen of a request than its answer: the recorder is in the authorizer chain.
func (s *Server) sees(o Options) bool { return s.can.Recorder && o.Plain == nil }

// request says what cluster the provider is to create, or what its API server is to be replaced by.
func (s *Server) request(o Options) (r clusters.Request, err error) {
	r = clusters.Request{
		Name: o.Cell.Name, Version: cmp.Or(o.Release.Version, o.Cell.Kubernetes), EmulatedVersion: o.Cell.Emulated,
		FeatureGates: featureGates(o), Network: s.network, Keep: o.Keep, Unchanged: o.Cell.Unchanged,
	}
	if o.Join != nil {
		r.Join = o.Join.cluster
	}
	if o.Plain != nil {
		r.AuthorizationConfig, r.Files, r.Args = o.Plain.Authorization, o.Plain.Files, o.Plain.Args
		return r, nil
	}
	if !s.sees(o) {
		return r, nil
	}
	if !o.NoAudit {
		r.AuditSink = s.events
		if r.AuditPolicy, err = fixtures.FS.ReadFile("audit-policy.yaml"); err != nil {
			return r, err
		}
	}
	if !o.Cell.Unchanged {
		r.Args = Args(o.KeepMetrics...)
	}
	authorizers := chain{middle: s.between, recorder: s.recorder, cacheFields: s.cacheFields(), cached: o.Cached}
	if err := authorizers.apply(&r); err != nil {
		return r, fmt.Errorf("writing the authorizer chain: %w", err)
	}
	for name, kubeconfig := range o.Webhooks {
		r.Files[webhookFile(name)] = kubeconfig
	}
	return r, nil
}

// Args are the arguments that make an API server quicker and quieter. One that is to keep its defaults does not have them,
// and neither has a plain one, which may be given them. keep are metric families that are not switched off.
func Args(keep ...string) []string {
	off := slices.DeleteFunc(slices.Clone(knownFamilies.Bulky), func(family string) bool { return slices.Contains(keep, family) })
	return []string{
		"--disabled-metrics=" + strings.Join(off, ","),
		// It sleeps 50 ms over every object in a namespace that its informer has not seen, and has no part in authorization.
		"--disable-admission-plugins=NamespaceLifecycle",
	}
}

// LocalOptions is the control plane that is asked for, without a recorder and audit. Port 0 is a free one.
func (o Options) LocalOptions(port int) local.Options {
	return local.Options{
		Release: o.Release, EmulatedVersion: o.Cell.Emulated, FeatureGates: featureGates(o),
		Port: port, Binaries: o.Binaries, Keep: o.Keep,
		KubeAPIServerPath: o.KubeAPIServerPath, KubeAPIServerEnv: o.KubeAPIServerEnv,
	}
}

func featureGates(o Options) map[string]bool {
	set := map[string]bool{}
	maps.Copy(set, o.FeatureGates)
	// Where the version has no such gate, off is what it is; naming the gate would be a start-up error.
	if HasGate(o.Effective()) && o.Cell.Gate != scenarios.GateDefault {
		set[GateName] = o.Cell.Gate == scenarios.GateOn
	}
	if gate := o.Cell.FeatureGate; gate.Name != "" && gate.Gate != scenarios.GateDefault {
		set[gate.Name] = gate.Gate == scenarios.GateOn
	}
	return set
}

func (s *Server) connect(c clusters.Cluster) (err error) {
	s.cluster = c
	s.host = c.Admin().Host
	s.adminHTTP, err = rest.HTTPClientFor(c.Admin())
	return err
}

// Admin is a member of system:masters, for provisioning. Reviews and audit events of its requests are not recorded.
func (s *Server) Admin() *rest.Config { return rest.CopyConfig(s.cluster.Admin()) }

// Anonymous is the way in without credentials, for clients that bring their own.
func (s *Server) Anonymous() *rest.Config { return s.cluster.Anonymous() }

// Host is the API server's URL without a path.
func (s *Server) Host() string { return s.host }

// Balancer is the URL of the balancer that belongs to a cluster with several API servers; empty where there is none.
func (s *Server) Balancer() string {
	several, is := s.cluster.(clusters.Several)
	if !is {
		return ""
	}
	return several.Balancer()
}

// ServiceAccountKey is the key, in PEM, with which the API server signs tokens; nil where it is not at hand.
func (s *Server) ServiceAccountKey() []byte {
	if plane, isLocal := s.Plane(); isLocal {
		return plane.ServiceAccountKey()
	}
	return nil
}

// Err says what of the target has broken by itself; nil while all is well.
func (s *Server) Err() error {
	if s.cluster != nil && s.cluster.Err() != nil {
		return s.cluster.Err()
	}
	if s.recorder != nil && s.recorder.Err() != nil {
		return fmt.Errorf("the recorder: %w", s.recorder.Err())
	}
	return s.broken
}

// ClusterErr says what of the cluster has broken by itself, for who reads no reviews: a client that hangs up cuts off
// those that are under way, and the recorder tells of that.
func (s *Server) ClusterErr() error { return s.cluster.Err() }

// Stop ends the cluster and the recorder and removes what they left. It is idempotent.
func (s *Server) Stop() error {
	var errs []error
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	errs = append(errs, s.aggregated.stop())
	if s.ownRecorder != nil {
		errs = append(errs, s.ownRecorder.Close())
	}
	return errors.Join(errs...)
}

// StopAll ends targets, last the one whose etcd the others use, and before them the balancer if there is one.
func StopAll(before *balancer.Balancer, targets []*Server) error {
	var err error
	if before != nil {
		err = before.Close()
	}
	for _, t := range slices.Backward(targets) {
		err = errors.Join(err, t.Stop())
	}
	return err
}

// TempDir makes a folder for this user alone, within the cluster's if it has one, to go with that even after a kill.
func (s *Server) TempDir(prefix string) (string, error) { return os.MkdirTemp(s.Dir(), prefix) }

// Dir is the cluster's own folder, with the logs of local processes; "" if it has none.
func (s *Server) Dir() string {
	if c, ok := s.cluster.(interface{ Dir() string }); ok {
		return c.Dir()
	}
	return ""
}

// ExportLogs writes the logs of the cluster to a folder, which is there.
func (s *Server) ExportLogs(ctx context.Context, dest string) error {
	logs, has := s.cluster.(interface {
		ExportLogs(ctx context.Context, dest string) error
	})
	if !has {
		return errors.New("the cluster has no logs to export")
	}
	return logs.ExportLogs(ctx, dest)
}
