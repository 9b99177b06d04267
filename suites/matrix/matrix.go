// Package matrix says which cells a run has: versions, emulation, gate states.
package matrix

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/suites/target"
	"github.com/authzconf/authzconf/verdicts"
)

// Matrix says which cells to run on, in the words of the command line.
type Matrix struct {
	// Provider is local.
	Provider string
	// Kubernetes are versions such as "1.37" or "1.37.1".
	Kubernetes []string
	// Emulate is an --emulated-version such as "1.35"; empty is none.
	Emulate string
	// Gate is on, off, default or both.
	Gate string
	// FeatureGates are set besides ConstrainedImpersonation.
	FeatureGates map[string]bool
	// Binaries finds or builds the programs of a control plane.
	Binaries *local.Binaries
	// Keep leaves what the targets have on disk.
	Keep bool
}

// Cells expands a matrix. An error is the user's: it says what is possible.
func (m Matrix) Cells() ([]target.Options, error) {
	if m.Provider != "local" {
		return nil, fmt.Errorf("unknown provider %q: this version of authzconf has the provider local", m.Provider)
	}
	var cells []target.Options
	for _, asked := range m.Kubernetes {
		release, err := local.ParseRelease(asked)
		if err != nil {
			return nil, err
		}
		emulated, err := emulation(release, m.Emulate)
		if err != nil {
			return nil, err
		}
		states, err := m.states(release, emulated)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			cells = append(cells, m.cell(release, emulated, state))
		}
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("--kubernetes names no version; known are %s", Known())
	}
	return cells, nil
}

// states are the gate settings to run with. A version without the gate is off
// whatever is asked, but cannot be asked for on.
func (m Matrix) states(release local.Release, emulated string) ([]target.Asked, error) {
	effective := release.Minor
	if emulated != "" {
		effective = emulated
	}
	switch m.Gate {
	case "both":
		if !target.GateKnown(effective) {
			return []target.Asked{target.AskOff}, nil
		}
		return []target.Asked{target.AskOn, target.AskOff}, nil
	case string(target.AskOn):
		if !target.GateKnown(effective) {
			return nil, fmt.Errorf("Kubernetes %s has no feature gate %s: it came with 1.35; use --gate off or default", effective, target.GateName)
		}
		return []target.Asked{target.AskOn}, nil
	case string(target.AskOff), string(target.AskDefault):
		return []target.Asked{target.Asked(m.Gate)}, nil
	}
	return nil, fmt.Errorf("--gate %q is none of on, off, default, both", m.Gate)
}

func (m Matrix) cell(release local.Release, emulated string, state target.Asked) target.Options {
	name := release.Minor
	if emulated != "" {
		name += "-as-" + emulated
	}
	return target.Options{
		Cell: verdicts.Cell{
			Name:     name + "-gate-" + string(state),
			Provider: m.Provider, Kubernetes: release.Version, Emulated: emulated, Gate: string(state),
		},
		Release: release, FeatureGates: m.FeatureGates, Binaries: m.Binaries, Keep: m.Keep,
	}
}

// emulation checks that a binary can emulate a version: its own minor and up to
// three before it, not before 1.31
// (k8s.io/apiserver/pkg/util/compatibility/version.go).
func emulation(release local.Release, asked string) (string, error) {
	if asked == "" {
		return "", nil
	}
	asked = strings.TrimPrefix(asked, "v")
	minor, err := minorOf(release.Minor)
	if err != nil {
		return "", err
	}
	oldest := max(minor-3, 31)
	wanted, err := minorOf(asked)
	if err != nil || wanted > minor || wanted < oldest {
		return "", fmt.Errorf("--emulate %q: Kubernetes %s can emulate 1.%d to 1.%d", asked, release.Minor, oldest, minor)
	}
	return asked, nil
}

// minorOf is 37 of "1.37".
func minorOf(version string) (int, error) {
	rest, ok := strings.CutPrefix(version, "1.")
	if !ok {
		return 0, fmt.Errorf("%q is not a minor version such as 1.37", version)
	}
	return strconv.Atoi(rest)
}

// Newest is the newest Kubernetes minor that can be run.
func Newest() string {
	releases := local.Releases()
	return releases[len(releases)-1].Minor
}

// Known are the Kubernetes minors that can be run, as a text.
func Known() string {
	var names []string
	for _, r := range local.Releases() {
		names = append(names, r.Minor)
	}
	return strings.Join(names, ", ")
}
