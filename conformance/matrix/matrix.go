// Package matrix says which cells a run has: versions, emulation, gate states.
package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Matrix says which cells to run on, in the words of the command line.
type Matrix struct {
	Provider string // a name of the table of package providers
	// NodeImages are the node images of clusters of kind, by minor; a version that is not there has kindest/node.
	NodeImages map[string]string
	Kubernetes []string // versions such as "1.37" or "1.38.0-alpha.2"
	// ControlPlanes are the versions of the API servers beside that of Kubernetes, one node of the control plane each. An
	// empty one is that of Kubernetes.
	ControlPlanes []string
	// Nodes are the versions of the nodes beside the control plane, one node each. None stands for one node of the API
	// server's version.
	Nodes   []string
	Emulate string // an --emulated-version such as "1.35"; empty is none
	// Gates are the states of the gate: on, off, default or absent, or GateBoth or GateAll. At least one is needed.
	Gates Gates
	// Unchanged asks for API servers that keep their default admission plugins and metrics.
	Unchanged    bool
	FeatureGates map[string]bool // set besides ConstrainedImpersonation
	// Binaries finds or builds the programs of a control plane.
	Binaries *local.Binaries
	// Keep leaves what the targets have on disk.
	Keep bool
	// Resolve returns the versions that those of a matrix file stand for; nil if they stand for themselves.
	Resolve func(versions []string) ([]string, error)
}

// Capabilities returns what the clusters of the matrix can do; nothing if its provider is not known.
func (m Matrix) Capabilities() clusters.Capabilities { return providers.CapabilitiesOf(m.Provider) }

// Cells expands a matrix. An error is the user's: it says what is possible.
func (m Matrix) Cells() (cells []server.Options, _ error) {
	if _, err := providers.New(m.Provider, providers.Settings{}); err != nil {
		return nil, err
	}
	if m.Capabilities().Foreign {
		return nil, fmt.Errorf("versions and gates cannot be chosen with the provider %s: its cluster has its own", m.Provider)
	}
	if len(m.Kubernetes) == 0 {
		return nil, fmt.Errorf("no Kubernetes version is named; known are %s", Known())
	}
	for _, text := range m.Kubernetes {
		release, err := local.ParseRelease(text)
		if err != nil {
			return nil, err
		}
		emulated, err := emulation(release, m.Emulate)
		if err != nil {
			return nil, err
		}
		m := m.fillControlPlanes(release)
		states, err := m.states(release, emulated)
		if err != nil {
			return nil, err
		}
		nodes, err := m.nodes(release)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			cells = append(cells, m.cell(release, emulated, state, nodes))
		}
	}
	return cells, checkDistinct(cells)
}

// fillControlPlanes returns the matrix with API servers of a version where none is named.
func (m Matrix) fillControlPlanes(release local.Release) Matrix {
	m.ControlPlanes = seq.Map(m.ControlPlanes, func(v string) string { return cmp.Or(v, release.Minor) })
	return m
}

// checkDistinct refuses cells of the same name: each has one place in a report.
func checkDistinct(cells []server.Options) error {
	names := map[string]bool{}
	for _, c := range cells {
		if names[c.Cell.Name] {
			return fmt.Errorf("the cell %s is named twice", c.Cell.Name)
		}
		names[c.Cell.Name] = true
	}
	return nil
}

// states are the gate settings to run with. A version without the gate has absent, and the default, which is the same.
func (m Matrix) states(release local.Release, emulated string) (states []scenarios.Gate, _ error) {
	version := cmp.Or(emulated, release.Minor)
	hasGate := server.HasGate(version)
	if len(m.Gates) == 0 {
		return nil, fmt.Errorf("no state of the gate is named (expected on, off, default, absent, both, all)")
	}
	for _, gate := range m.Gates {
		isSet := gate == scenarios.GateOn || gate == scenarios.GateOff
		switch {
		case gate == GateBoth && hasGate:
			states = append(states, scenarios.GateOn, scenarios.GateOff)
		case gate == GateAll && hasGate:
			states = append(states, scenarios.GateOff, scenarios.GateOn, scenarios.GateDefault)
		case gate == GateBoth, gate == GateAll:
			states = append(states, scenarios.GateAbsent)
		case isSet && !hasGate:
			return nil, fmt.Errorf(
				"Kubernetes %s has no feature gate %s: it came with 1.35; its state is absent or default",
				version,
				server.GateName,
			)
		case gate == scenarios.GateAbsent && hasGate:
			return nil, fmt.Errorf("Kubernetes %s has the feature gate %s: its state is on, off or default", version, server.GateName)
		case isSet, gate == scenarios.GateDefault, gate == scenarios.GateAbsent:
			states = append(states, gate)
		default:
			return nil, fmt.Errorf("gate %q is not one of on, off, default, absent, both, all", gate)
		}
	}
	return states, nil
}

// nodes are those of a cluster of kind beside the first.
type nodes struct{ controlPlanes, workers []kind.Worker }

// versions returns the versions of nodes.
func versions(nodes []kind.Worker) []string {
	return seq.Map(nodes, func(w kind.Worker) string { return w.Version })
}

// nodes returns the nodes that the matrix asks for beside the one of an API server, if the version skew policy allows them.
func (m Matrix) nodes(server local.Release) (n nodes, err error) {
	if nodeVersions := slices.Concat(m.ControlPlanes, m.Nodes); len(nodeVersions) > 0 && !m.Capabilities().Nodes {
		return n, fmt.Errorf(
			"nodes of Kubernetes %s: clusters of the provider %s have no nodes",
			strings.Join(nodeVersions, ", "),
			m.Provider,
		)
	}
	if n.controlPlanes, err = m.readNodes(m.ControlPlanes); err != nil {
		return n, err
	}
	if n.workers, err = m.readNodes(m.Nodes); err != nil {
		return n, err
	}
	return n, kind.CheckSkew(append(versions(n.controlPlanes), server.Version), versions(n.workers))
}

// readNodes returns nodes of some versions, with the images that are named for these.
func (m Matrix) readNodes(versions []string) (nodes []kind.Worker, _ error) {
	for _, text := range versions {
		release, err := local.ParseRelease(text)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, kind.Worker{Version: release.Version, Image: m.NodeImages[release.Minor]})
	}
	return nodes, nil
}

func (m Matrix) cell(release local.Release, emulated string, state scenarios.Gate, n nodes) server.Options {
	name := providers.CellName(m.Provider, release.Name())
	if emulated != "" {
		name += "-as-" + emulated
	}
	if len(m.ControlPlanes) > 0 {
		name += "-control-planes-" + strings.Join(m.ControlPlanes, "-")
	}
	if len(m.Nodes) > 0 {
		name += "-nodes-" + strings.Join(m.Nodes, "-")
	}
	if m.Unchanged {
		name += "-unchanged"
	}
	return server.Options{
		NodeImage: m.NodeImages[release.Minor], ControlPlanes: n.controlPlanes, Workers: n.workers,
		Cell: verdicts.Cell{
			Name:          name + "-gate-" + string(state),
			Provider:      m.Provider,
			Kubernetes:    release.Version,
			Emulated:      emulated,
			Gate:          state,
			ControlPlanes: strings.Join(versions(n.controlPlanes), ","),
			Nodes:         strings.Join(versions(n.workers), ","),
			Unchanged:     m.Unchanged,
		},
		Release: release, FeatureGates: m.FeatureGates, Binaries: m.Binaries, Keep: m.Keep,
	}
}

// emulation checks that a binary can emulate a version: its own minor and up to three before it, not before 1.31
// (k8s.io/apiserver/pkg/util/compatibility/version.go).
func emulation(release local.Release, emulate string) (string, error) {
	if emulate == "" {
		return "", nil
	}
	emulate = strings.TrimPrefix(emulate, "v")
	minor := version.MustParseGeneric(release.Version).Minor()
	oldest := max(minor-3, 31)
	requestedVersion, err := version.ParseMajorMinor(emulate)
	isPossible := err == nil && requestedVersion.Major() == 1 && requestedVersion.Minor() >= oldest && requestedVersion.Minor() <= minor
	if !isPossible {
		return "", fmt.Errorf("emulated version %q: Kubernetes %s can emulate 1.%d to 1.%d", emulate, release.Minor, oldest, minor)
	}
	return emulate, nil
}

// Newest is the newest Kubernetes minor that can be run.
func Newest() string { return local.Newest().Minor }

// Minors are the Kubernetes minors that can be run, newest last.
func Minors() []string {
	return seq.Map(local.Releases(), func(r local.Release) string { return r.Minor })
}

// Known are the Kubernetes minors that can be run, as a text.
func Known() string { return strings.Join(Minors(), ", ") }

// Emulated are the minors that the newest release can emulate and that can be run for real, to be compared.
func Emulated() []string { return emulatedBy(local.Newest()) }

func emulatedBy(release local.Release) []string {
	return slices.DeleteFunc(Minors(), func(minor string) bool {
		_, err := emulation(release, minor)
		return err != nil
	})
}

// FileKind is the kind of a matrix file, of reports.FileVersion.
const FileKind = "Matrix"

type file struct {
	APIVersion string  `yaml:"apiVersion"`
	Kind       string  `yaml:"kind"`
	Cells      []entry `yaml:"cells"`
}

// entry is each of its versions with each of its gate states.
type entry struct {
	Kubernetes []string `yaml:"kubernetes"`
	Emulate    []string `yaml:"emulate"` // versions that each of Kubernetes emulates; none is its own
	Gate       Gates    `yaml:"gate"`
	// ControlPlanes are the versions of the API servers beside that of Kubernetes; none is one API server.
	ControlPlanes []string `yaml:"controlPlanes"`
	Nodes         []string `yaml:"nodes"`     // versions of the nodes beside the control plane; none is one of Kubernetes
	Unchanged     bool     `yaml:"unchanged"` // API servers keep their default admission plugins and metrics
}

// Load reads a matrix file and expands it; base has what the file does not say: provider, feature gates, binaries.
// It is strict: an unknown field, a version or a gate state that there is not, or a cell that is there twice is an
// error with file, line and column. name is for the messages.
func Load(name string, data []byte, base Matrix) (cells []server.Options, _ error) {
	var f file
	doc, err := scenarios.DecodeKind(name, data, "a matrix", reports.FileVersion, FileKind, &f)
	if err != nil {
		return nil, err
	}
	if len(f.Cells) == 0 {
		return nil, fmt.Errorf("%s: there are no cells", doc.At("$.cells"))
	}
	for i, e := range f.Cells {
		more, err := e.cells(base)
		if err == nil {
			err = checkDistinct(append(cells[:len(cells):len(cells)], more...))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doc.At(fmt.Sprintf("$.cells[%d]", i)), err)
		}
		cells = append(cells, more...)
	}
	return cells, nil
}

func (e entry) cells(base Matrix) ([]server.Options, error) {
	if len(e.Gate) == 0 {
		return nil, fmt.Errorf("gate is missing (expected a list of on, off, default, absent, both, all)")
	}
	base.Kubernetes, base.Gates, base.Unchanged = e.Kubernetes, e.Gate, e.Unchanged
	if base.Resolve != nil {
		resolved, err := base.Resolve(e.Kubernetes)
		if err != nil {
			return nil, err
		}
		base.Kubernetes = resolved
	}
	if len(e.Nodes) > 0 {
		base.Nodes = e.Nodes
	}
	if len(e.ControlPlanes) > 0 {
		base.ControlPlanes = e.ControlPlanes
	}
	if err := checkControlPlanes(1 + len(base.ControlPlanes)); err != nil {
		return nil, err
	}
	if len(e.Emulate) == 0 {
		return base.Cells()
	}
	return base.Emulating(e.Emulate)
}

// Emulating is the matrix once for each emulated version.
func (m Matrix) Emulating(versions []string) (cells []server.Options, _ error) {
	for _, v := range versions {
		m.Emulate = v
		more, err := m.Cells()
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, checkDistinct(cells)
}
