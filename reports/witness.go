package reports

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Witness is what a server was found to be after it had started: version, gate, chain, digest of the program. A flag
// that was passed proves nothing.
//
// A gate may be locked, an old binary may lie about, a chain may have been loaded from another file. So each property
// is read back from the server, by more than one way where there is one, and Mismatches lists where the answers are not
// what was asked. Any mismatch makes the run invalid: whatever passed was not the thing to be judged.
//
// What was asked of the version, the emulation and the gate is in Cell, beside the witness.
type Witness struct {
	GitVersion string `json:"gitVersion,omitempty"` // gitVersion of GET /version, for example v1.37.1
	Platform   string `json:"platform,omitempty"`   // platform of GET /version, for example linux/amd64
	// EmulatedVersion is emulationMajor.emulationMinor of GET /version, for example 1.35. Without emulation it is the
	// minor of the binary. It is empty if the server does not report it (before 1.33).
	EmulatedVersion string `json:"emulatedVersion,omitempty"`

	// ExpectedGate is the state, on or off, that the gate must have: as requested, or by the effective version's
	// default.
	ExpectedGate scenarios.Gate `json:"expectedGate,omitempty"`
	// GateMetric is the sample kubernetes_feature_enabled{name="ConstrainedImpersonation"} of GET /metrics: on (1), off
	// (0), or absent (the version has no such gate, which counts as off). It is empty if metrics cannot be read.
	GateMetric scenarios.Gate `json:"gateMetric,omitempty"`
	// GateProbe is the answer to a request with Impersonate-Group and without Impersonate-User. The request needs no
	// permission, so it works on every cluster. The text of the refusal differs between the constrained handler and the
	// old one. It decides if there is no metric.
	GateProbe *GateProbe `json:"gateProbe,omitempty"`

	// FeatureGate is another gate that the target is about. It is nil if the target is only about
	// ConstrainedImpersonation.
	FeatureGate *FeatureGate `json:"featureGate,omitempty"`

	// AskedAuthorizers is the authorizer chain that was asked for, in order.
	AskedAuthorizers []Authorizer `json:"askedAuthorizers,omitempty"`
	// SeenAuthorizers say what proves each authorizer: for a webhook the review that reached it, and for the others the
	// apiserver_authorization_* metrics of GET /metrics or a probe request. An authorizer that nothing proved is not
	// listed.
	SeenAuthorizers []AuthorizerEvidence `json:"seenAuthorizers,omitempty"`

	// AskedSettings are the settings that were requested to differ from the defaults. SeenSettings are those that the
	// API server has according to its behaviour: dry runs of what an admission plugin refuses, and the metric
	// disabled_metrics_total. Arguments are the command line of its process, if it can be read; they have to agree with
	// both.
	AskedSettings *Settings `json:"askedSettings,omitempty"`
	SeenSettings  *Settings `json:"seenSettings,omitempty"`
	Arguments     []string  `json:"arguments,omitempty"`

	// Probes counts the requests of the witness and their reviews at both ends of the chain. It is nil without a
	// recorder.
	Probes *ProbeCount `json:"probes,omitempty"`

	// Programs are the programs that run, if they run on this machine.
	Programs []Program `json:"programs,omitempty"`

	// Components are the kubelets of the target's nodes and what else runs on the nodes, by name and node.
	Components []Component `json:"components,omitempty"`

	// Mismatches say, on one line each, what was requested and what is there instead. They follow from the other
	// fields: see Judge.
	Mismatches []string `json:"mismatches,omitempty"`
}

// FeatureGate is a feature gate with the state that it must have, and the state that the metric
// kubernetes_feature_enabled shows: on, off or absent.
type FeatureGate struct {
	Name     string         `json:"name"`
	Expected scenarios.Gate `json:"expected"`
	Metric   scenarios.Gate `json:"metric,omitempty"`
}

// Kubelet is the name of the component that every node has, and KubeAPIServer the name of the one that is judged.
const (
	Kubelet       = "kubelet"
	KubeAPIServer = "kube-apiserver"
)

// Component is a program on a node, with the version that the cluster's API says of it.
type Component struct {
	Name    string `json:"name"` // kubelet, kube-apiserver, kube-controller-manager, kube-scheduler, etcd, kube-proxy
	Node    string `json:"node"`
	Version string `json:"version"` // without a v
	// Worker is true for the kubelet of a node outside of the control plane.
	Worker bool `json:"worker,omitempty"`
	// Asked is true for that one of several API servers to which scenarios send their requests.
	Asked bool `json:"asked,omitempty"`
}

// Program is a program of a target. A release is judged by its own program, and not by one that was built from its
// source.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // the pinned one; empty if somebody else chose the program
	// Origin says where the program came from and how that was checked. SHA256 is the digest of its file.
	Origin string `json:"origin"`
	// Source names the text from which it was built, if that is not a release: a commit, or the digest of a tree.
	Source string `json:"source,omitempty"`
	SHA256 string `json:"sha256"`
}

// Provenance returns the origin with what it was built from.
func (p Program) Provenance() string {
	if p.Source == "" {
		return p.Origin
	}
	return p.Origin + ", " + p.Source
}

// Title is the name and version.
func (p Program) Title() string { return strings.TrimSpace(p.Name + " " + p.Version) }

// IsPublished reports whether the program was compared with the digest of a published one. Of a program that was built
// from modules, or that the environment or a flag names, only the user who ran it can say what it is.
func (p Program) IsPublished() bool { return strings.Contains(p.Origin, ", digest ") }

// GateProbe is the answer to the permission-free gate probe.
type GateProbe struct {
	// Code and Message are those of the Status in the answer.
	Code    int    `json:"code"`
	Message string `json:"message"`
	// Gate is the state that follows from them: on or off, or unknown if the text is neither of the known ones.
	Gate scenarios.Gate `json:"gate"`
}

// Authorizer is an entry of an authorizer chain.
type Authorizer struct {
	Type string `json:"type"` // as in AuthorizationConfiguration: Webhook, Node, RBAC, ABAC
	Name string `json:"name"`
}

// AuthorizerEvidence is why an authorizer is believed to be in the chain.
type AuthorizerEvidence struct {
	Authorizer `json:",inline"`
	// Evidence says what was seen, for example "review 1 of the probe arrived".
	Evidence string `json:"evidence"`
}

// ProbeCount is how many requests the witness sent, one of which nobody allows, and how many of their reviews arrived.
type ProbeCount struct {
	Sent  int `json:"sent"`
	Front int `json:"front"`
	Back  int `json:"back"`
}

// isComplete reports whether the recorder saw each request at the front of the chain, and the one that nobody allows
// also at the back.
func (p *ProbeCount) isComplete() bool { return p.Front == p.Sent && p.Back == 1 }

// judgeVersion returns how the version differs from the one that a cell asks for.
func (w *Witness) judgeVersion(cell verdicts.Cell, can scenarios.Capabilities) (mismatches []string) {
	version := w.GitVersion
	if can.Foreign() { // a build of somebody's
		version, _, _ = strings.Cut(version, "+")
	}
	mismatches = mismatch(nil, "version", "v"+cell.Kubernetes, version)
	if w.EmulatedVersion == "" && cell.Emulated == "" {
		return mismatches
	}
	parts := strings.SplitN(cell.Kubernetes, ".", 3)
	minor := strings.Join(parts[:min(2, len(parts))], ".")
	return mismatch(mismatches, "emulated version", cmp.Or(cell.Emulated, minor), cmp.Or(w.EmulatedVersion, "nothing"))
}

// mismatch adds a line to a list if a property, which is a version, a state of the gate or another text, is not as asked.
func mismatch[T ~string](list []string, what string, want, got T) []string {
	if want == got {
		return list
	}
	return append(list, fmt.Sprintf("%s: asked for %s, the server says %s", what, want, got))
}

// Unprobed is the mismatch of a target whose recorder no request of the witness has reached.
const Unprobed = "nothing shows that the recorder sees what the API server asks"

// Judge returns how what was read back differs from what a cell asks for. facts say what the cell's target can show.
func (w *Witness) Judge(cell verdicts.Cell, can scenarios.Capabilities) []string {
	if w.GateProbe == nil {
		return []string{"the witness was not read to its end"}
	}
	mismatches, probed := w.judgeVersion(cell, can), DetectGate(w.GateProbe.Message)
	switch {
	case can.Foreign(): // only answers are seen there
		probed = w.GateProbe.Gate
	case w.hasOtherMetric():
		mismatches = mismatch(mismatches, "gate ConstrainedImpersonation (metric)", w.ExpectedGate, w.GateMetric)
	case w.contradiction(can) != "": // it is what was requested by its own account, so it is judged
		probed = w.ExpectedGate
	}
	mismatches = mismatch(mismatches, "gate ConstrainedImpersonation (probe)", w.ExpectedGate, probed)
	if gate := DetectGate(w.GateProbe.Message); !can.Foreign() && w.GateProbe.Gate != "" {
		mismatches = mismatch(mismatches, "gate ConstrainedImpersonation (its answer)", gate, w.GateProbe.Gate)
	}
	if !can.Foreign() && w.Probes == nil {
		mismatches = append(mismatches, Unprobed)
	}
	if p := w.Probes; p != nil && !p.isComplete() {
		mismatches = append(mismatches,
			fmt.Sprintf(
				"the recorder must see %d probe reviews before the other authorizers and 1 behind them; it saw %d and %d",
				p.Sent,
				p.Front,
				p.Back,
			),
		)
	}
	if g := w.FeatureGate; g != nil {
		mismatches = mismatch(mismatches, "gate "+g.Name+" (metric)", g.Expected, g.Metric)
	}
	mismatches = append(mismatches, w.judgePrograms(cell, can)...)
	mismatches = append(mismatches, w.judgeSettings(cell)...)
	mismatches = append(mismatches, w.judgeNodes(cell)...)
	mismatches = append(mismatches, w.judgeAPIServers(cell)...)
	for i, a := range w.AskedAuthorizers {
		if !slices.ContainsFunc(w.SeenAuthorizers, func(e AuthorizerEvidence) bool { return e.Authorizer == a && e.Evidence != "" }) {
			mismatches = append(mismatches, fmt.Sprintf("authorizer %d, %s %q: nothing shows that it is in the chain", i, a.Type, a.Name))
		}
	}
	return mismatches
}

// hasOtherMetric reports whether the metric of a server shows another state of the gate than it must have. A gate that is
// absent is off.
func (w *Witness) hasOtherMetric() bool {
	isOffByAbsence := w.GateMetric == scenarios.GateAbsent && w.ExpectedGate != scenarios.GateOn
	return w.GateMetric != w.ExpectedGate && !isOffByAbsence
}

// judgeAPIServers returns how the versions of several API servers in a cluster differ from the requested ones.
func (w *Witness) judgeAPIServers(cell verdicts.Cell) []string {
	if cell.ControlPlanes == "" {
		return nil
	}
	var got []string
	for _, c := range w.Components {
		if c.Name == KubeAPIServer {
			got = append(got, c.Version)
		}
	}
	want := append(strings.Split(cell.ControlPlanes, ","), cell.Kubernetes)
	slices.Sort(want)
	slices.Sort(got)
	return mismatch(nil, "API servers", strings.Join(want, ", "), strings.Join(got, ", "))
}

// judgeNodes returns how the versions of the kubelets outside of the control plane differ from the requested ones.
func (w *Witness) judgeNodes(cell verdicts.Cell) []string {
	if cell.Nodes == "" {
		return nil
	}
	var got []string
	for _, c := range w.Components {
		if c.Worker {
			got = append(got, c.Version)
		}
	}
	want := strings.Split(cell.Nodes, ",")
	slices.Sort(want)
	slices.Sort(got)
	return mismatch(nil, "kubelets", strings.Join(want, ", "), strings.Join(got, ", "))
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// judgePrograms returns how the programs of a local target differ from those that it must have, each with its digest.
func (w *Witness) judgePrograms(cell verdicts.Cell, can scenarios.Capabilities) (mismatches []string) {
	names := seq.Map(w.Programs, func(p Program) string { return p.Name })
	if can.Processes() && !slices.Equal(names, []string{KubeAPIServer, "etcd"}) {
		mismatches = append(mismatches, fmt.Sprintf("programs: a local target has a kube-apiserver and an etcd, and it has %q", names))
	}
	for _, p := range w.Programs {
		if p.Name == KubeAPIServer && p.Version != "" {
			mismatches = mismatch(mismatches, "program", cell.Kubernetes, p.Version)
		}
		if p.Origin == "" || !digest.MatchString(p.SHA256) {
			mismatches = append(mismatches,
				fmt.Sprintf(
					"program %s: nothing says where it came from and which it is: origin %q, SHA-256 %q",
					p.Title(),
					p.Origin,
					p.SHA256,
				),
			)
		}
	}
	return mismatches
}

// contradiction returns that a server has the gate as requested according to its own metric but behaves otherwise, or
// "".
func (w *Witness) contradiction(can scenarios.Capabilities) string {
	if w.GateProbe == nil || can.Foreign() || w.GateMetric != w.ExpectedGate {
		return ""
	}
	if probed := DetectGate(w.GateProbe.Message); probed != w.GateMetric && probed != scenarios.GateUnknown {
		return fmt.Sprintf(
			"its metric says that the gate ConstrainedImpersonation is %s, and it answers as if it were %s",
			w.GateMetric,
			probed,
		)
	}
	return ""
}

// DetectGate returns the state of the gate that the answer to its probe shows: on, off or unknown. It tells the two
// handlers apart by their texts: processImpersonationHeaders and buildImpersonationRequests of
// k8s.io/apiserver/pkg/endpoints/filters/impersonation.
func DetectGate(message string) scenarios.Gate {
	switch {
	case strings.Contains(message, "&user.DefaultInfo{"):
		return scenarios.GateOn
	case strings.Contains(message, "without impersonating a user"):
		return scenarios.GateOff
	}
	return scenarios.GateUnknown
}
