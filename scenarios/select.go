package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/authzconf/authzconf/internal/seq"
)

// Facts are what a target is and what it can show, as read back from it.
type Facts struct {
	// Kubernetes is the effective minor version, such as "1.35". It is the emulated one if emulation is used.
	Kubernetes string `json:"kubernetes"`
	Binary     string `json:"binary"` // the minor version of the binary, such as "1.37"
	Gate       Gate   `json:"gate"`   // the effective state of ConstrainedImpersonation, on or off
	// Chain names the authorizer chain, as Requires.Chain does.
	Chain        string       `json:"chain,omitempty"`
	Capabilities Capabilities `json:"capabilities"` // what the target can show and do
	// FeatureGates are the effective states, on or off, of the other gates that were requested, by their names.
	FeatureGates map[string]Gate `json:"featureGates,omitempty"`
}

// Selected reports whether the scenario can run on a target with these facts.
//
// If it cannot, either missing is empty, and the scenario is not meant for such a target (another version or gate), or
// missing names the capabilities that the target lacks, and it is not supported there. Why says this in words.
func (s *Scenario) Selected(f Facts) (ok bool, missing []Capability, why string) {
	for _, v := range []struct{ what, want, have string }{
		{"Kubernetes", s.Requires.Kubernetes, f.Kubernetes},
		{"a kube-apiserver binary", s.Requires.Binary, f.Binary},
	} {
		if why := explainVersion(v.what, v.want, v.have); why != "" {
			return false, nil, why
		}
	}
	if s.Requires.Gate != GateAny && s.Requires.Gate != f.Gate {
		return false, nil, fmt.Sprintf("needs the gate ConstrainedImpersonation %s, the target has it %s", s.Requires.Gate, f.Gate)
	}
	if why := s.explainFeatureGates(f); why != "" {
		return false, nil, why
	}
	if s.Requires.Chain != f.Chain {
		return false, nil, fmt.Sprintf("needs the authorizer chain %q, the target has %q", s.Requires.Chain, f.Chain)
	}
	missing = slices.DeleteFunc(s.Needs(), func(c Capability) bool { return slices.Contains(f.Capabilities, c) })
	if len(missing) > 0 {
		return false, missing, fmt.Sprintf("needs %s, which the target does not offer", joinStrings(missing))
	}
	return true, nil, ""
}

// explainFeatureGates returns which gate is not in the state that the scenario needs, or "".
func (s *Scenario) explainFeatureGates(f Facts) string {
	for _, name := range slices.Sorted(maps.Keys(s.Requires.FeatureGates)) {
		gate, has := s.Requires.FeatureGates[name], f.FeatureGates[name]
		switch has {
		case gate:
		case "":
			return fmt.Sprintf("needs the gate %s %s, which nobody asked for on the target", name, gate)
		default:
			return fmt.Sprintf("needs the gate %s %s, the target has it %s", name, gate, has)
		}
	}
	return ""
}

// Needs returns the capabilities without which the scenario cannot run: those that it requires, and those that follow
// from its requestors, grants and manifests. They are in the order of AllCapabilities.
func (s *Scenario) Needs() []Capability {
	need := sets.New(s.Requires.Capabilities...)
	for _, r := range s.Requestors {
		switch {
		case r.ServiceAccount != nil:
			need.Insert(Tokens)
			if len(r.ServiceAccount.Times) > 0 {
				need.Insert(Signing)
			}
		case r.Certificate:
			need.Insert(Signing)
		case !r.Anonymous:
			need.Insert(RequestHeader)
		}
	}
	if len(s.Nodes) > 0 {
		need.Insert(KubeletNodes)
	}
	if len(s.Grants) > 0 || slices.ContainsFunc(slices.Concat(s.Manifests, s.Objects), isRBAC) {
		need.Insert(RBAC)
	}
	return seq.Filter(AllCapabilities(), func(c Capability) bool { return need.Has(c) })
}

// explainVersion returns why a version is not in a range, or "" if it is.
func explainVersion(what, want, have string) string {
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

// minorVersion shortens a version such as "v1.35.4-rc.1" to 1.35.0, in order to compare it with ranges of minor
// versions.
func minorVersion(v string) (*semver.Version, error) {
	full, err := semver.NewVersion(v)
	if err != nil {
		return nil, err
	}
	return semver.New(full.Major(), full.Minor(), 0, "", ""), nil
}

// patchVersion matches a third number in a version range.
var patchVersion = regexp.MustCompile(`\d+\.\d+\.[0-9xX*]`)

func versionRange(text string) (*semver.Constraints, error) {
	if patchVersion.MatchString(text) {
		return nil, fmt.Errorf("it names a patch version")
	}
	return semver.NewConstraint(text)
}

// Lacks returns in words which capabilities a target lacks.
func Lacks(missing []Capability) string { return "the target lacks " + joinStrings(missing) }

func joinStrings[T ~string](list []T) string {
	return strings.Join(seq.Map(list, func(v T) string { return string(v) }), ", ")
}

// Substitute returns a copy of a bound scenario in which service accounts replace the users that are requestors,
// because a cluster that somebody else made gives tokens only to service accounts. If a user is more than the sender of
// requests, why says how.
func (s *Scenario) Substitute() (out *Scenario, why string) {
	copied := s.Clone()
	swap := substitutes{map[string]string{}}
	for _, alias := range slices.Sorted(maps.Keys(s.Requestors)) {
		r := s.Requestors[alias]
		if r.ServiceAccount != nil || r.Anonymous {
			continue
		}
		if what := s.explainNoAccount(r); what != "" {
			return nil, fmt.Sprintf("the requestor %s has %s", alias, what)
		}
		account := Requestor{ServiceAccount: &ServiceAccount{Namespace: "authzconf-" + s.Suffix, Name: r.User}}
		copied.Requestors[alias], swap.names[r.User] = account, account.Username()
	}
	if len(swap.names) == 0 {
		return copied, ""
	}
	if s.RunsKubectl() {
		return nil, "it runs kubectl"
	}
	if s.sendsSeveralCredentials() {
		return nil, "which of several credentials counts depends on their kinds, and a service account's is a token"
	}
	swap.replaceIn(copied)
	return copied, swap.explainRest(copied)
}

// sendsSeveralCredentials reports whether a request of the scenario carries the credentials of more than one requestor.
func (s *Scenario) sendsSeveralCredentials() bool {
	return slices.ContainsFunc(s.Steps, func(st Step) bool {
		request := st.Sent()
		return request != nil && len(request.With) > 0
	})
}

// explainNoAccount returns what a user has that a service account cannot have, or "" if a service account can replace
// the user.
func (s *Scenario) explainNoAccount(r Requestor) string {
	if r.Certificate {
		return "a client certificate, which a service account cannot have"
	}
	if r.hasAttributes() {
		return "a UID, groups or extra, which a service account cannot have"
	}
	isUnique := s.Suffix != "" && strings.Contains(r.User, s.Suffix)
	if !isUnique || len(validation.IsDNS1123Subdomain(r.User)) > 0 {
		return "a name of its own kind"
	}
	return ""
}

// hasAttributes reports whether a requestor has more than a name.
func (r Requestor) hasAttributes() bool { return len(r.Groups) > 0 || r.hasMoreThanGroups() }

// hasMoreThanGroups reports whether a requestor has attributes that a client certificate cannot contain.
func (r Requestor) hasMoreThanGroups() bool { return r.UID != "" || len(r.Extra) > 0 }

// substitutes are the service accounts that replace users, by the users' names.
type substitutes struct{ names map[string]string }

// replaceIn replaces the users by their service accounts in grants, objects and messages.
func (s substitutes) replaceIn(sc *Scenario) {
	for i := range sc.Grants {
		g := &sc.Grants[i]
		g.Subject.User = s.replaceName(g.Subject.User)
	}
	for _, list := range [][]map[string]any{sc.Manifests, sc.Objects} {
		for i, o := range list {
			list[i] = rewriteTexts("", o, func(_, text string) string { return s.replaceName(text) }).(map[string]any)
		}
	}
	for _, st := range sc.Steps {
		e := st.Expect
		if e == nil {
			continue
		}
		e.Message, e.MessageMatches = s.replaceInMessage(e.Message), s.replaceInMessage(e.MessageMatches)
		for j := range e.OneOf {
			e.OneOf[j].Message = s.replaceInMessage(e.OneOf[j].Message)
		}
	}
}

func (s substitutes) replaceName(name string) string { return cmp.Or(s.names[name], name) }

func (s substitutes) replaceInMessage(t string) string {
	for user, account := range s.names {
		t = strings.ReplaceAll(t, `User "`+user+`"`, `User "`+account+`"`)
	}
	return t
}

// explainRest returns where a user is still named, or "". A user who is impersonated or named in a grant is more than a
// requestor. Places that are not judged on such a cluster do not count.
func (s substitutes) explainRest(sc *Scenario) string {
	var parts []any
	for _, st := range sc.Steps {
		parts = append(parts, st.Request)
		if st.Expect != nil {
			parts = append(parts, st.Expect.Message, st.Expect.MessageMatches, st.Expect.Output)
		}
	}
	for _, g := range sc.Grants {
		parts = append(parts, g.Names, g.Subject.Group)
	}
	raw, err := json.Marshal(parts)
	if err != nil {
		return err.Error()
	}
	text := string(raw)
	for _, account := range s.names {
		text = strings.ReplaceAll(text, account, "")
	}
	for user := range s.names {
		if strings.Contains(text, user) {
			return "the name of a requestor is asked for, or is impersonated"
		}
	}
	return ""
}

// Outside returns what a bound scenario would create or change outside of roles and of its own namespaces, or "".
func (s *Scenario) Outside() string {
	for _, alias := range slices.Sorted(maps.Keys(s.Requestors)) {
		if sa := s.Requestors[alias].ServiceAccount; sa != nil && sa.Pod+sa.Node != "" {
			return fmt.Sprintf("the token of %s is bound to a pod or a node, which would have to be made", alias)
		}
	}
	for _, o := range slices.Concat(s.Manifests, s.Objects) {
		if why := s.explainForeign(o); why != "" {
			return why
		}
	}
	for _, st := range s.Steps {
		if r := st.Sent(); r != nil && r.mayChange() && !strings.Contains(r.Namespace, s.Suffix) {
			return "it sends a request that changes something outside namespaces of its own"
		}
	}
	return ""
}

// explainForeign returns why an object is neither a role nor a binding nor in one of the scenario's own namespaces, or
// "".
func (s *Scenario) explainForeign(o map[string]any) string {
	kind, name, namespace := Text(o, "kind"), Text(o, "metadata", "name"), Text(o, "metadata", "namespace")
	isOwn := strings.Contains(namespace, s.Suffix) || strings.Contains(name, s.Suffix)
	switch {
	case isRBAC(o):
		return ""
	case !isOwn:
		return fmt.Sprintf("it makes a %s that is not in a namespace of its own", kind)
	case namespace == "" && kind != "Namespace":
		return fmt.Sprintf("it makes a %s, which belongs to the whole cluster", kind)
	}
	return ""
}

// mayChange reports whether a request may change something: it neither only reads nor only asks for a review.
func (r *Request) mayChange() bool {
	isRead := slices.Contains([]string{"get", "list", "watch"}, r.Verb)
	return !isRead && !strings.HasPrefix(r.APIGroup, "auth")
}

// SelectedThere does the same as Selected for a cluster that somebody else made, with the facts that were read from it.
// On such a cluster service accounts replace users where they can, and nothing is created or changed outside of roles
// and of the scenario's own namespaces. unsupported means that the scenario is for such a server but cannot be run
// there, and why says what prevents it.
func (s *Scenario) SelectedThere(f Facts) (ok, unsupported bool, why string) {
	everything := f
	everything.Capabilities, everything.Chain = AllCapabilities(), s.Requires.Chain
	if ok, _, why := s.Selected(everything); !ok {
		return false, false, why
	}
	if s.Requires.Chain != "" || s.Alone() || len(s.Policy) > 0 {
		return false, true, "the target lacks a way to change its authorizer chain"
	}
	bound, _ := s.Bind(Suffix(0, "existing", s.ID))
	accounts, why := bound.Substitute()
	if why != "" {
		return false, true, "the target lacks requestHeader, and no substitute ServiceAccount is possible: " + why
	}
	if ok, missing, _ := accounts.Selected(f); !ok {
		return false, true, Lacks(missing)
	}
	if why := accounts.Outside(); why != "" {
		return false, true, "nothing is changed there beyond namespaces of authzconf's own: " + why
	}
	return true, false, ""
}

// stable matches versions of API groups that are generally available.
var stable = regexp.MustCompile(`^([a-z0-9.-]+/)?v[0-9]+$`)

// OnAnyCluster returns why a scenario cannot be run on any cluster, or "". Such a scenario needs only what almost every
// cluster provides: tokens, RBAC and, once the feature is stable, the gate on. It uses only stable APIs, and it states
// a promise and not a text for people. That does not make it a conformance test of Kubernetes: those are written in Go
// and also work without RBAC (upstream/).
func (s *Scenario) OnAnyCluster() (why string) {
	// The KEP plans that the feature becomes stable in 1.38. In 1.38.0-alpha.2 the gate is still beta and not locked.
	const first = "1.38"
	if ok, _, why := s.SelectedThere(Facts{Kubernetes: first, Binary: first, Gate: GateOn, Capabilities: []Capability{Tokens, RBAC}}); !ok {
		return why
	}
	for _, o := range slices.Concat(s.Manifests, s.Objects) {
		if version := Text(o, "apiVersion"); !stable.MatchString(version) {
			return "it makes an object of " + version
		}
	}
	for _, st := range s.Steps {
		switch r := st.Sent(); {
		case r == nil:
		case st.Kubectl != nil:
			return "it runs kubectl"
		case r.Version != "" && !stable.MatchString(r.Version):
			return "it sends a request to " + r.Version
		case st.Expect.Message != "" || st.Expect.MessageMatches != "" || len(st.Expect.OneOf) > 0:
			return "it expects a message"
		}
	}
	if s.Level == Divergence {
		return "it shows where a document and servers differ"
	}
	return ""
}
