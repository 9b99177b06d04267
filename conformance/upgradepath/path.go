// Package upgradepath says what an upgrade path is: the stages that one cluster goes through, version by version
// and gate by gate, with its etcd and everything in it kept. It is pure.
package upgradepath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/gates"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Fault is what goes wrong on the way to a stage.
type Fault string

const (
	// KillAPIServer kills the API server (SIGKILL) while a request is under way, instead of ending it in order.
	KillAPIServer Fault = "kill-apiserver"
	// RestartEtcd kills etcd and starts it again on its data, with the API server running.
	RestartEtcd Fault = "restart-etcd"
	// WebhookDown takes the webhook authorizers away while the API server is replaced, until it is ready.
	WebhookDown Fault = "webhook-down"
)

// Faults lists all faults.
func Faults() []Fault { return []Fault{KillAPIServer, RestartEtcd, WebhookDown} }

// Stage is one version and state of the gate on an upgrade path.
type Stage struct {
	Kubernetes string `yaml:"kubernetes"`        // the version of the binary, such as "1.37"
	Emulate    string `yaml:"emulate,omitempty"` // the minor that it emulates; empty is its own
	// Gate is what the stage asks of the path's gate: on, off or default, which it is where left out.
	Gate scenarios.Gate `yaml:"gate,omitempty"`
	// Chain names the authorizer chain, a file of fixtures/chains; empty is Node and RBAC.
	Chain string `yaml:"chain,omitempty"`
	// Fault goes wrong on the way here.
	Fault Fault `yaml:"fault,omitempty"`
	// Nodes, if it is given, is the version that the kubelets of all nodes become on the way here. The API server stays what
	// it is on the stage before, so that nothing else is stated.
	Nodes string `yaml:"nodes,omitempty"`
	// Make names the setups that are made on this stage. A setup that no stage names is made on the first.
	Make []string `yaml:"make,omitempty"`
}

// Path is the versions and gates that one cluster goes through while its etcd is kept.
type Path struct {
	// Name is the file's name without extension, or how it was written on the command line.
	Name string `yaml:"-"`
	// Description says what is shown and where it is asked for.
	Description string `yaml:"description"`
	// FeatureGate is the gate that the stages are about; empty is ConstrainedImpersonation.
	FeatureGate string `yaml:"featureGate,omitempty"`
	// HighAvailability runs two API servers on one etcd behind a balancer, or those of a cluster with several behind its own,
	// replaced one after the other while requests flow.
	HighAvailability bool `yaml:"highAvailability,omitempty"`
	// Direct lets requests flow straight to the API server, also before it is ready: otherwise a balancer waits for that.
	Direct bool     `yaml:"direct,omitempty"`
	Setups []string `yaml:"setups,omitempty"` // the setups that take part; empty is all
	Stages []Stage  `yaml:"stages"`           // two at least
}

// String is the stage as it is written on the command line: 1.37@1.36+gate/chain, or nodes=1.37.
func (l Stage) String() string {
	if l.ReplacesNodes() {
		return nodesPrefix + l.Nodes
	}
	text := l.Kubernetes
	if l.Emulate != "" {
		text += "@" + l.Emulate
	}
	switch l.Gate {
	case scenarios.GateOn:
		text += "+gate"
	case scenarios.GateOff:
		text += "-gate"
	}
	if l.Chain != "" {
		text += "/" + l.Chain
	}
	return text
}

// Parse reads a path as it is written on the command line: stages separated by
// commas, each a version, optionally @ and the version it emulates, +gate or
// -gate, and / and an authorizer chain; or nodes= and the version that all nodes become.
func Parse(text string, o Options) (*Path, error) {
	p := &Path{Name: text, HighAvailability: o.HighAvailability, FeatureGate: o.FeatureGate}
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, fmt.Errorf(
				"path %q: stage %d is empty; write versions separated by commas, such as 1.35+gate,1.36,1.35+gate",
				text,
				i+1,
			)
		}
		if strings.HasSuffix(part, "@") || strings.HasSuffix(part, "/") || strings.Contains(part, "@/") {
			return nil, fmt.Errorf("path %q: stage %d, %q, breaks off: a version follows @, an authorizer chain /", text, i+1, part)
		}
		var stage Stage
		if nodes, replaces := strings.CutPrefix(part, nodesPrefix); replaces {
			p.Stages = append(p.Stages, Stage{Nodes: nodes})
			continue
		}
		part, stage.Chain = cutChain(part)
		switch {
		case strings.HasSuffix(part, "+gate"):
			part, stage.Gate = strings.TrimSuffix(part, "+gate"), scenarios.GateOn
		case strings.HasSuffix(part, "-gate"):
			part, stage.Gate = strings.TrimSuffix(part, "-gate"), scenarios.GateOff
		}
		stage.Kubernetes, stage.Emulate, _ = strings.Cut(part, "@")
		p.Stages = append(p.Stages, stage)
	}
	at := func(stage int) string { return fmt.Sprintf("path %q: stage %d", text, stage+1) }
	if err := p.complete(at, o.Resolve); err != nil {
		return nil, err
	}
	return p, p.check(fmt.Sprintf("path %q", text), at)
}

// Options are what a path takes from elsewhere than its stages.
type Options struct {
	// HighAvailability and FeatureGate are those of Path, for a path of the command line.
	HighAvailability bool
	FeatureGate      string
	// Resolve returns the version that the one of a stage stands for, if it is a marker or a source tree; nil if each stands
	// for itself.
	Resolve func(version string) (string, error)
}

// cutChain separates the authorizer chain of a stage from the rest. The names of markers have a slash, too.
func cutChain(part string) (rest, chain string) {
	bucket := ""
	for _, prefix := range []string{"ci/", "release/"} {
		if after, isMarker := strings.CutPrefix(part, prefix); isMarker {
			bucket, part = prefix, after
		}
	}
	rest, chain, _ = strings.Cut(part, "/")
	return bucket + rest, chain
}

// complete fills in what follows for the stages from what is written: which versions there are, and what stages with other
// nodes take from the stage before.
func (p *Path) complete(at func(stage int) string, resolve func(version string) (string, error)) error {
	if err := p.checkFeatureGate(); err != nil {
		return err
	}
	for i := range p.Stages {
		if resolve == nil || p.Stages[i].Kubernetes == "" {
			continue
		}
		version, err := resolve(p.Stages[i].Kubernetes)
		if err != nil {
			return fmt.Errorf("%s: %w", at(i), err)
		}
		p.Stages[i].Kubernetes = version
	}
	return p.inheritServers(at)
}

// Targets are the options of every stage, in order. Of base what is not the stage's
// own counts: the provider, node images, programs. An empty provider is local.
func (p *Path) Targets(base matrix.Matrix) (out []server.Options, _ error) {
	base.Provider = cmp.Or(base.Provider, providers.Default())
	if err := p.checkProvider(base); err != nil {
		return nil, err
	}
	for i, stage := range p.Stages {
		o, err := p.target(i, stage, base)
		if err != nil {
			return nil, err
		}
		SetOthers(&o, base, slices.Repeat([]local.Release{o.Release}, len(base.ControlPlanes)))
		out = append(out, o)
	}
	return out, p.followNodes(base, out)
}

// target returns the options of the server of a stage, whose index is i.
func (p *Path) target(i int, l Stage, base matrix.Matrix) (server.Options, error) {
	gate := cmp.Or(l.Gate, scenarios.GateDefault)
	impersonation := gate
	if p.HasOtherGate() {
		impersonation = scenarios.GateDefault
	}
	base.Kubernetes, base.Emulate, base.Gates, base.ControlPlanes = []string{l.Kubernetes}, l.Emulate, matrix.Gates{impersonation}, nil
	cells, err := base.Cells()
	if err != nil {
		return server.Options{}, err
	}
	o := cells[0]
	o.Chain = l.Chain
	o.Cell.Name = fmt.Sprintf("%d-%s", i+1, strings.TrimSuffix(o.Cell.Name, "-gate-"+string(impersonation)))
	if gate != scenarios.GateDefault {
		o.Cell.Name += "-gate-" + string(gate)
	}
	if p.HasOtherGate() {
		o.Cell.FeatureGate = verdicts.FeatureGate{Name: p.FeatureGate, Gate: gate}
	}
	if l.Chain != "" {
		o.Cell.Name += "-" + l.Chain
	}
	return o, nil
}

// checkProvider refuses what the clusters of a provider cannot do. A provider that is not known is refused by Cells.
func (p *Path) checkProvider(base matrix.Matrix) error {
	can := base.Capabilities()
	if !can.Restart {
		return nil // nothing at all can be upgraded, which Cells says
	}
	if err := p.checkServers(base); err != nil {
		return err
	}
	for i, stage := range p.Stages {
		if !canSuffer(can, stage.Fault) {
			return fmt.Errorf("stage %d: the fault %s is for --provider local", i+1, stage.Fault)
		}
	}
	return nil
}

// checkServers refuses API servers that the path cannot have.
func (p *Path) checkServers(base matrix.Matrix) error {
	can := base.Capabilities()
	isAlone := len(base.ControlPlanes) == 0
	switch {
	case !can.Members && !isAlone:
		return fmt.Errorf(
			"--control-planes %d: clusters of the provider %s have one node at most",
			1+len(base.ControlPlanes),
			base.Provider,
		)
	case slices.ContainsFunc(base.ControlPlanes, func(version string) bool { return version != "" }):
		return errors.New("--control-planes-kubernetes: on an upgrade path the stages say which versions API servers have (expected --control-planes alone)")
	case !p.HighAvailability, can.SeveralServers:
		return nil
	case can.Members && isAlone:
		return fmt.Errorf("highAvailability on a cluster of %s needs several API servers: expected --control-planes 3", base.Provider)
	case can.Members:
		return nil
	}
	return fmt.Errorf("a cluster of %s has one API server: highAvailability is for --provider local", base.Provider)
}

// canSuffer reports whether a cluster can have a fault, if any.
func canSuffer(can clusters.Capabilities, fault Fault) bool {
	switch fault {
	case "":
		return true
	case KillAPIServer:
		return can.Kill
	}
	return can.Processes
}

// servers is how many API servers a highly available local control plane has.
const servers = 2

// CountServers returns how many API servers are replaced one by one: one, if not for high availability.
func (p *Path) CountServers(base matrix.Matrix) int {
	switch {
	case !p.HighAvailability:
		return 1
	case base.Capabilities().Members:
		return 1 + len(base.ControlPlanes)
	}
	return servers
}

// SetOthers says of which versions the API servers are beside that of a stage.
func SetOthers(o *server.Options, base matrix.Matrix, others []local.Release) {
	if !base.Capabilities().Members {
		return // they are targets of their own from the start
	}
	o.ControlPlanes = seq.Map(others, func(r local.Release) kind.Worker {
		return kind.Worker{Version: r.Version, Image: base.NodeImages[r.Minor]}
	})
	o.Cell.ControlPlanes = strings.Join(seq.Map(others, func(r local.Release) string { return r.Version }), ",")
}

// MadeOn returns the index of the stage that a setup is made on.
func (p *Path) MadeOn(setup string) int {
	return max(0, slices.IndexFunc(p.Stages, func(l Stage) bool { return slices.Contains(l.Make, setup) }))
}

// TakesPart reports whether a setup is one of the path's.
func (p *Path) TakesPart(setup string) bool {
	if setup == "" {
		return false
	}
	return len(p.Setups) == 0 || slices.Contains(p.Setups, setup)
}

// Load reads a path file. It is strict; an error names file, line and column. Of the options only Resolve counts, and
// FeatureGate where the file names no gate.
func Load(name string, data []byte, o Options) (*Path, error) {
	p := &Path{Name: strings.TrimSuffix(path.Base(name), path.Ext(name))}
	file, err := scenarios.Decode(name, data, "an upgrade path", p)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(p.Description) == "" {
		return nil, fmt.Errorf("%s: description is missing (expected what the path shows)", file.At("$.description"))
	}
	at := func(stage int) string {
		return file.At(fmt.Sprintf("$.stages[%d]", stage)) + fmt.Sprintf(": stage %d", stage+1)
	}
	p.FeatureGate = cmp.Or(p.FeatureGate, o.FeatureGate)
	if err := p.complete(at, o.Resolve); err != nil {
		return nil, err
	}
	return p, p.check(file.At("$.stages"), at)
}

// check refuses a path that is not possible, before anything is started. whole says where the path is written, and at where
// a stage is.
func (p *Path) check(whole string, at func(stage int) string) error {
	if len(p.Stages) < 2 {
		return fmt.Errorf("%s: a path has two stages at least, this one has %d", whole, len(p.Stages))
	}
	if p.Direct && p.HighAvailability {
		return fmt.Errorf("%s: direct and highAvailability exclude each other: high availability is a balancer", whole)
	}
	var errs []error
	createdBy := map[string]int{}
	for i, stage := range p.Stages {
		for _, setup := range stage.Make {
			switch first, twice := createdBy[setup]; {
			case twice:
				errs = append(errs, fmt.Errorf("%s: the setup %s is made on stage %d already", at(i), setup, first+1))
			case !p.TakesPart(setup):
				errs = append(errs, fmt.Errorf("%s: the setup %s is made here and is none of setups", at(i), setup))
			}
			createdBy[setup] = i
		}
		if err := p.checkStage(i, stage); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at(i), err))
		}
	}
	return errors.Join(errs...)
}

// checkStage checks a stage, the index of which is i, by itself and against the one before it.
func (p *Path) checkStage(i int, stage Stage) error {
	if stage.Kubernetes == "" {
		return errors.New("kubernetes is missing (expected a version such as 1.36)")
	}
	o, err := p.checkTarget(i, stage)
	if err != nil {
		return err
	}
	if err := checkChain(stage.Chain); err != nil {
		return err
	}
	if err := p.checkFault(i, stage); err != nil {
		return err
	}
	if stage.ReplacesNodes() {
		return p.checkNodes(i, stage)
	}
	if i == 0 {
		return nil
	}
	return p.checkChange(i, stage, o)
}

// checkTarget returns the options of the server that a stage asks for, if there can be such a server.
func (p *Path) checkTarget(i int, stage Stage) (server.Options, error) {
	gate := stage.Gate
	stage.Gate = "" // the matrix's error about a gate is about its flag
	o, err := p.target(i, stage, matrix.Matrix{Provider: server.Local})
	if err != nil {
		return o, errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // a hint has a line of its own
	}
	requestedGate := cmp.Or(gate, scenarios.GateDefault)
	if !slices.Contains([]scenarios.Gate{scenarios.GateOn, scenarios.GateOff, scenarios.GateDefault}, requestedGate) {
		return o, fmt.Errorf("gate %q is not one of on, off, default", gate)
	}
	if p.HasOtherGate() {
		o.Cell.FeatureGate.Gate = requestedGate
		return o, gates.CheckState(p.FeatureGate, o.Effective(), requestedGate)
	}
	if requestedGate != scenarios.GateDefault && !server.HasGate(o.Effective()) {
		return o, fmt.Errorf(
			"Kubernetes %s has no feature gate %s, which came with 1.35: leave the gate out",
			o.Effective(),
			server.GateName,
		)
	}
	o.Cell.Gate = requestedGate
	return o, nil
}

// checkChain checks that there is an authorizer chain of this name, unless it is empty.
func checkChain(name string) error {
	if name == "" {
		return nil
	}
	if _, err := fs.Stat(fixtures.FS, "chains/"+name+".yaml"); err != nil {
		return fmt.Errorf("there is no authorizer chain %q in fixtures/chains", name)
	}
	return nil
}

// checkFault checks that the fault of a stage exists, and that the stage has what it breaks.
func (p *Path) checkFault(i int, stage Stage) error {
	switch {
	case stage.Fault == "":
		return nil
	case !slices.Contains(Faults(), stage.Fault):
		return fmt.Errorf("fault %q is not one of %v", stage.Fault, Faults())
	case stage.Fault == WebhookDown && !strings.Contains(stage.Chain, "webhook"):
		return fmt.Errorf("the fault %s needs an authorizer chain with a webhook, such as webhook-first", stage.Fault)
	case i == 0:
		return fmt.Errorf("the fault %s needs a stage before it", stage.Fault)
	case p.HighAvailability && stage.Fault == RestartEtcd:
		return fmt.Errorf("the fault %s is for one API server", stage.Fault)
	}
	return nil
}

// checkChange checks that a stage with the options o changes something, and no more than its path can change at once.
func (p *Path) checkChange(i int, stage Stage, o server.Options) error {
	before, err := p.target(i-1, p.Stages[i-1], matrix.Matrix{Provider: server.Local})
	if err != nil {
		return nil //nolint:nilerr // check reports it with the position of the stage before, and there is nothing to compare with
	}
	if isSame(o, before) && stage.Fault == "" {
		return fmt.Errorf("%s is what stage %d is: a stage has to change something", stage, i)
	}
	to, from := version.MustParseGeneric(o.Release.Version).Minor(), version.MustParseGeneric(before.Release.Version).Minor()
	if p.HighAvailability && max(to, from)-min(to, from) > 1 {
		return fmt.Errorf(
			"from %s to %s in one step: API servers that run side by side may differ by one minor version",
			p.Stages[i-1].Kubernetes,
			stage.Kubernetes,
		)
	}
	return nil
}

// isSame reports whether two stages are the same server. A gate that is set to its default is a change: the server has
// another command line.
func isSame(a, b server.Options) bool {
	hasSameGates := a.Cell.Gate == b.Cell.Gate && a.Cell.FeatureGate == b.Cell.FeatureGate
	return a.Release == b.Release && a.Cell.Emulated == b.Cell.Emulated && hasSameGates && a.Chain == b.Chain
}
