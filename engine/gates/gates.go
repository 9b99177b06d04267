// Package gates knows the feature gates of kube-apiserver: which version has which, and in which state they are by default.
// A test compares its table with the source code of the pinned releases.
package gates

import (
	_ "embed" // the table
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed gates.yaml
var tableYAML []byte

// table has for each gate what it is since which minor: the stage, the default and, where it cannot be changed, locked;
// or removed.
var table = fixtures.Table[map[string]map[string]string]("gates.yaml", tableYAML)

// removed is the entry of a minor since which a gate is not there any more.
const removed = "removed"

// Gate is a feature gate in a version of Kubernetes.
type Gate struct {
	Name string
	// Stage is ALPHA, BETA, GA or DEPRECATED.
	Stage string
	// Default is the state that the gate has if nobody sets it, on or off.
	Default scenarios.Gate
	// IsLocked is set if the state cannot be changed.
	IsLocked bool
}

// Find returns a gate in a version, such as 1.36 or 1.36.3; isThere reports whether that version has it. A version that is
// newer than the table has the gates of the newest version that is known.
func Find(name, kubernetes string) (g Gate, isThere bool) {
	entries := entriesUntil(name, kubernetes)
	if len(entries) == 0 || entries[len(entries)-1] == removed {
		return Gate{}, false
	}
	return parseEntry(name, entries[len(entries)-1]), true
}

// entriesUntil returns what a gate has been up to a version, in order.
func entriesUntil(name, kubernetes string) (entries []string) {
	release := version.MustParseGeneric(kubernetes)
	for _, since := range sortedVersions(table[name]) {
		if !release.LessThan(version.MustParseGeneric(since)) {
			entries = append(entries, table[name][since])
		}
	}
	return entries
}

func parseEntry(name, entry string) Gate {
	words := strings.Fields(entry)
	return Gate{Name: name, Stage: words[0], Default: scenarios.Gate(words[1]), IsLocked: len(words) > 2}
}

// State returns the state, on or off, that a feature has in a version if its gate is asked for as on, off or default. A feature
// whose gate has not come yet is off, whatever is asked, and one whose gate was removed is by default what it was before.
func State(name, kubernetes string, requestedGate scenarios.Gate) scenarios.Gate {
	entries := slices.DeleteFunc(entriesUntil(name, kubernetes), func(entry string) bool { return entry == removed })
	switch {
	case len(entries) == 0:
		return scenarios.GateOff
	case requestedGate == scenarios.GateDefault:
		return parseEntry(name, entries[len(entries)-1]).Default
	case requestedGate == scenarios.GateOn:
		return scenarios.GateOn
	}
	return scenarios.GateOff
}

// CheckName returns a [*usage.Error] unless some version that is known has a gate of this name.
func CheckName(name string) error {
	if len(table[name]) > 0 {
		return nil
	}
	problem := fmt.Sprintf("no version of Kubernetes that is known here has a feature gate %q", name)
	if suggestion := nearest(name); suggestion != "" {
		return &usage.Error{Problem: problem, Hint: "is it " + suggestion + "?"}
	}
	return &usage.Error{Problem: problem, Hint: "name one as --feature-gates of kube-apiserver has it, such as AuthorizeNodeWithSelectors"}
}

// CheckState returns why a version cannot have a gate in the state that is asked for.
func CheckState(name, kubernetes string, requestedGate scenarios.Gate) error {
	g, isThere := Find(name, kubernetes)
	switch {
	case requestedGate == scenarios.GateDefault:
		return nil
	case !isThere:
		return fmt.Errorf("Kubernetes %s has no feature gate %s%s: leave the gate out", kubernetes, name, describeSince(name, kubernetes))
	case g.IsLocked && g.Default != requestedGate:
		return fmt.Errorf("Kubernetes %s has the feature gate %s locked %s: it cannot be %s", kubernetes, name, g.Default, requestedGate)
	}
	return nil
}

// describeSince says since when there is a gate that a version does not have.
func describeSince(name, kubernetes string) string {
	versions := sortedVersions(table[name])
	if len(versions) > 0 && version.MustParseGeneric(kubernetes).LessThan(version.MustParseGeneric(versions[0])) {
		return ", which came with " + versions[0]
	}
	return " any more"
}

func sortedVersions(entries map[string]string) []string {
	return slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		if version.MustParseGeneric(a).LessThan(version.MustParseGeneric(b)) {
			return -1
		}
		return 1
	})
}

// nearest returns the gate whose name differs from a text in case only, or that begins with it or ends with it; empty if
// there is none or more than one.
func nearest(text string) string {
	var candidates []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		lower, lowerText := strings.ToLower(name), strings.ToLower(text)
		if lower == lowerText {
			return name
		}
		isPart := strings.Contains(lower, lowerText) || strings.Contains(lowerText, lower)
		if isPart && len(lowerText) > 3 {
			candidates = append(candidates, name)
		}
	}
	if len(candidates) != 1 {
		return ""
	}
	return candidates[0]
}
