package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// All is the word for all versions that can be run, or emulated.
const All = "all"

// ClusterFlags are the flags that say how clusters are made, whatever runs on them.
type ClusterFlags struct {
	provider string
	images   []string
	planes   int
	servers  []string
	nodes    []string
	gates    map[string]string
	keep     bool
	binaries local.Binaries
}

// Register adds the flags to a flag set.
func (f *ClusterFlags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.provider, "provider", providers.Default(), "where clusters come from: "+providers.Help(isChosen))
	flags.StringSliceVar(
		&f.images,
		"kind-node-image",
		nil,
		"node images of kind: IMAGE, or MINOR=IMAGE where several versions are run (default kindest/node of the version)",
	)
	flags.IntVar(
		&f.planes,
		"control-planes",
		1,
		"how many nodes of a cluster of kind are its control plane, each with an API server, behind kind's load balancer: 1 or 3",
	)
	flags.StringSliceVar(
		&f.servers,
		"control-planes-kubernetes",
		nil,
		"versions of the other two of three API servers of kind, such as 1.36,1.36 (default that of --kubernetes)",
	)
	flags.StringSliceVar(
		&f.nodes,
		"nodes-kubernetes",
		nil,
		"versions of the nodes of kind beside the control plane, one node each, such as 1.34,1.36 (default one node of the API server's version)",
	)
	flags.StringToStringVar(&f.gates, "feature-gate", nil, "further feature gates, NAME=true|false")
	flags.BoolVar(&f.keep, "keep", false, "keep the folders of the control planes (logs, keys) afterwards, or the clusters of kind")
	f.binaries.RegisterFlags(flags)
	f.binaries.RegisterSource(flags)
	f.binaries.RegisterAPIServers(flags)
}

// Resolve returns the versions that markers and the word source stand for.
func (f *ClusterFlags) Resolve(i *product.Invocation, versions ...string) ([]string, error) {
	return f.binaries.Resolve(context.Background(), i.Fact, versions...)
}

// ResolveOne is Resolve of one version.
func (f *ClusterFlags) ResolveOne(i *product.Invocation, version string) (string, error) {
	return f.binaries.ResolveOne(context.Background(), i.Fact, version)
}

// isChosen reports whether versions and gates of clusters can be chosen.
func isChosen(can clusters.Capabilities) bool { return !can.Foreign }

// Capabilities returns what the clusters can do; nothing if their provider is not known.
func (f *ClusterFlags) Capabilities() clusters.Capabilities {
	return providers.CapabilitiesOf(f.provider)
}

// Matrix returns a matrix of some versions, without states of the gate. messages is where downloads and builds say what
// they do.
func (f *ClusterFlags) Matrix(kubernetes []string, messages io.Writer) (m Matrix, err error) {
	f.binaries.Progress = messages
	m = Matrix{
		Provider:     f.provider,
		Kubernetes:   kubernetes,
		Binaries:     &f.binaries,
		Keep:         f.keep,
		FeatureGates: map[string]bool{},
		Nodes:        f.nodes,
	}
	if m.ControlPlanes, err = f.controlPlanes(); err != nil {
		return m, err
	}
	if m.NodeImages, err = parseImages(f.images, slices.Concat(kubernetes, f.servers, f.nodes)); err != nil {
		return m, err
	}
	for name, value := range f.gates {
		if value != "true" && value != "false" {
			return m, fmt.Errorf("--feature-gate %s=%s: the value is true or false", name, value)
		}
		m.FeatureGates[name] = value == "true"
	}
	return m, nil
}

// controlPlanes returns the versions of the API servers beside the first; empty is that of the first.
func (f *ClusterFlags) controlPlanes() ([]string, error) {
	count := f.planes
	if len(f.servers) > 0 && count == 1 {
		count += len(f.servers)
	}
	if err := checkControlPlanes(count); err != nil {
		return nil, err
	}
	others := count - 1
	switch {
	case len(f.servers) == others:
		return f.servers, nil
	case len(f.servers) > 0:
		return nil, fmt.Errorf(
			"--control-planes-kubernetes has %s beside that of --kubernetes, and --control-planes is %d",
			reports.Plural(len(f.servers), "version"),
			count,
		)
	}
	return slices.Repeat([]string{""}, others), nil
}

// checkControlPlanes checks how many nodes the control plane has. etcd needs an odd number to outlive one of them.
func checkControlPlanes(count int) error {
	if count != 1 && count != 3 {
		return fmt.Errorf("%d control planes: expected 1 or 3, because each has a member of etcd, which needs a majority", count)
	}
	return nil
}

// parseImages returns the node images by minor.
func parseImages(images, kubernetes []string) (map[string]string, error) {
	byMinor := map[string]string{}
	for _, text := range images {
		minor, image, isPair := strings.Cut(text, "=")
		isKnown := slices.Contains(Minors(), minor) && image != ""
		switch {
		case isPair && isKnown:
			byMinor[minor] = image
		case isPair:
			return nil, fmt.Errorf("--kind-node-image %s: expected IMAGE or MINOR=IMAGE, with a minor of %s", text, Known())
		case len(images) > 1, len(kubernetes) > 1:
			return nil, fmt.Errorf("--kind-node-image %s: with several versions it is MINOR=IMAGE", text)
		default:
			for _, version := range kubernetes {
				release, err := local.ParseRelease(version)
				if err != nil {
					return nil, err
				}
				byMinor[release.Minor] = text
			}
		}
	}
	return byMinor, nil
}

// Flags are the flags that say which cells there are.
type Flags struct {
	ClusterFlags
	kubernetes []string
	emulate    []string
	gates      Gates
	unchanged  Gates
	file       string
	flags      *pflag.FlagSet
}

// Register adds the flags to a flag set.
func (f *Flags) Register(flags *pflag.FlagSet) {
	f.flags = flags
	f.ClusterFlags.Register(flags)
	flags.StringSliceVar(&f.kubernetes, "kubernetes", []string{Newest()}, "versions to run, each "+local.VersionsHelp()+"; or all")
	flags.StringSliceVar(
		&f.emulate,
		"emulate",
		nil,
		"versions that each of them emulates (--emulated-version of the API server), such as 1.35; or all that it can",
	)
	f.gates = Gates{scenarios.GateDefault}
	flags.Var(
		&gatesList{gates: &f.gates},
		"gate",
		"ConstrainedImpersonation: on, off, default, absent, both (on and off) or all that each version has",
	)
}

// RegisterMore adds the flags of who runs several kinds of cells to a flag set.
func (f *Flags) RegisterMore(flags *pflag.FlagSet) {
	flags.Var(
		&gatesList{gates: &f.unchanged},
		"unchanged",
		"states of the gate for further cells, whose API servers keep their default admission plugins and metrics; alone, without those of --gate, if only this is given",
	)
	flags.StringVar(&f.file, "matrix", "", "take the cells from a matrix file, such as ci/matrix.yaml")
}

// Cells returns the cells.
func (f *Flags) Cells(i *product.Invocation) ([]server.Options, error) {
	versions, err := f.binaries.ResolveFlag(context.Background(), i.Fact, expandVersions(f.kubernetes)...)
	if err != nil {
		return nil, err
	}
	m, err := f.Matrix(versions, i.Messages)
	if err != nil {
		return nil, err
	}
	if f.file != "" {
		data, err := i.ReadInput(f.file)
		if err != nil {
			return nil, err
		}
		m.Resolve = func(versions []string) ([]string, error) { return f.Resolve(i, versions...) }
		return Load(f.file, data, m)
	}
	if len(f.unchanged) == 0 {
		m.Gates = f.gates
		return f.expand(m)
	}
	var ordinary []server.Options
	if f.flags.Changed("gate") {
		m.Gates = f.gates
		if ordinary, err = f.expand(m); err != nil {
			return nil, err
		}
	}
	m.Gates, m.Unchanged = f.unchanged, true
	unchanged, err := f.expand(m)
	return append(ordinary, unchanged...), err
}

// expand returns the cells of a matrix with each emulated version of the command line.
func (f *Flags) expand(m Matrix) ([]server.Options, error) {
	switch {
	case len(f.emulate) == 0:
		return m.Cells()
	case !slices.Contains(f.emulate, All):
		return m.Emulating(f.emulate)
	case len(f.emulate) > 1:
		return nil, errors.New("--emulate all has no effect with other versions beside it")
	}
	return m.emulatingAll()
}

// expandVersions returns all versions where all are meant.
func expandVersions(versions []string) []string {
	if slices.Equal(versions, []string{All}) {
		return Minors()
	}
	return versions
}

// emulatingAll is the matrix with each version once for each version that it can emulate and that can be run for real, to
// be compared.
func (m Matrix) emulatingAll() (cells []server.Options, _ error) {
	for _, version := range m.Kubernetes {
		release, err := local.ParseRelease(version)
		if err != nil {
			return nil, err
		}
		m.Kubernetes = []string{version}
		more, err := m.Emulating(emulatedBy(release))
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, checkDistinct(cells)
}
