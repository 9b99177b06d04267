package scenarios

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Facts are what a target is and can show, as read back from it.
type Facts struct {
	// Kubernetes is the effective minor version: the emulated one where emulation is used, "1.35".
	Kubernetes string `json:"kubernetes"`
	// Binary is the minor version of the binary, "1.37".
	Binary string `json:"binary"`
	// Gate is the effective state of ConstrainedImpersonation, on or off.
	Gate Gate `json:"gate"`
	// Chain names the authorizer chain, as Requires.Chain does.
	Chain string `json:"chain,omitempty"`
	// Capabilities are what the target can show and do.
	Capabilities []Capability `json:"capabilities"`
}

// Selected tells whether the scenario can run on a target with these facts.
//
// If it cannot, either missing is empty, and the scenario is not meant for such a target (another version or
// gate), or missing names the capabilities that the target lacks, and the scenario is not supported there. Why
// says the same in words.
func (s *Scenario) Selected(f Facts) (ok bool, missing []Capability, why string) {
	for _, v := range []struct{ what, want, have string }{
		{"Kubernetes", s.Requires.Kubernetes, f.Kubernetes},
		{"a kube-apiserver binary", s.Requires.Binary, f.Binary},
	} {
		if why := outside(v.what, v.want, v.have); why != "" {
			return false, nil, why
		}
	}
	if s.Requires.Gate != GateAny && s.Requires.Gate != f.Gate {
		return false, nil, fmt.Sprintf("needs the gate ConstrainedImpersonation %s, the target has it %s", s.Requires.Gate, f.Gate)
	}
	if s.Requires.Chain != f.Chain {
		return false, nil, fmt.Sprintf("needs the authorizer chain %q, the target has %q", s.Requires.Chain, f.Chain)
	}
	for _, c := range s.Needs() {
		if !slices.Contains(f.Capabilities, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return false, missing, fmt.Sprintf("needs %s, which the target does not offer", joinStrings(missing, ", "))
	}
	return true, nil, ""
}

// Needs lists the capabilities without which the scenario cannot run: those that it requires, and those that
// follow from its requestors, grants and manifests. The order is that of AllCapabilities.
func (s *Scenario) Needs() []Capability {
	need := map[Capability]bool{}
	for _, c := range s.Requires.Capabilities {
		need[c] = true
	}
	for _, r := range s.Requestors {
		switch {
		case r.ServiceAccount != nil:
			need[Tokens] = true
		case !r.Anonymous:
			need[RequestHeader] = true
		}
	}
	if len(s.Nodes) > 0 {
		need[KubeletNodes] = true
	}
	if len(s.Grants) > 0 || slices.ContainsFunc(s.Manifests, isRBAC) || slices.ContainsFunc(s.Objects, isRBAC) {
		need[RBAC] = true
	}
	var out []Capability
	for _, c := range AllCapabilities() {
		if need[c] {
			out = append(out, c)
		}
	}
	return out
}

// outside says why a version is not in a range, or "" if it is.
func outside(what, want, have string) string {
	if want == "" {
		return ""
	}
	c, err := versionRange(want)
	if err != nil {
		return fmt.Sprintf("%q is not a version range: %s", want, err) // Load refuses such a scenario
	}
	v, err := minorVersion(have)
	if err != nil {
		return fmt.Sprintf("needs %s %s, the target's version %q is unknown", what, want, have)
	}
	if !c.Check(v) {
		return fmt.Sprintf("needs %s %s, the target is %d.%d", what, want, v.Major(), v.Minor())
	}
	return ""
}

// minorVersion cuts "v1.35.4-rc.1" to 1.35.0, the form that ranges of minor versions are compared with.
func minorVersion(v string) (*semver.Version, error) {
	full, err := semver.NewVersion(v)
	if err != nil {
		return nil, err
	}
	return semver.New(full.Major(), full.Minor(), 0, "", ""), nil
}

// patchVersion finds a third number in a version range.
var patchVersion = regexp.MustCompile(`\d+\.\d+\.[0-9xX*]`)

// versionRange parses a range of minor versions.
func versionRange(text string) (*semver.Constraints, error) {
	if patchVersion.MatchString(text) {
		return nil, fmt.Errorf("it names a patch version")
	}
	return semver.NewConstraint(text)
}

// joinStrings joins values whose type is a string.
func joinStrings[T ~string](list []T, sep string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, sep)
}
