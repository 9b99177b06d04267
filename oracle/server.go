// Package oracle is a model of what a Kubernetes API server does with impersonation: version, gate, grants, caches
// and history in; decision, error text, resulting user, access reviews, audit fields and metrics out.
//
// It is written from the documents (KEP-5284, the reference page on user impersonation) and from what servers were
// seen to do, and shares no code with the API server's filter: agreement between the two means something. It is
// pure: it has no clock but Advance, and does no I/O.
//
// What the model does not know:
//   - what storage and admission answer to a request that authorization let
//     through: status codes and texts of such answers are not predicted;
//   - the order of what the API server itself takes from a Go map. A Prediction
//     then says what is possible: Segment.Runs, Prediction.Messages;
//   - relations of the Node authorizer other than those of pods, their service
//     accounts, and the secrets and config maps that they have volumes of.
package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Versions returns the minors of Kubernetes that are modelled, oldest first. A test compares them with those of clusters/local.
func Versions() []string { return []string{"1.33", "1.34", "1.35", "1.36", "1.37"} }

// Config says what a server is, and what is granted on it.
type Config struct {
	// Kubernetes is the effective version, "1.37"; Binary that of the program, the same if it is empty.
	Kubernetes, Binary string
	// Gate is the state of ConstrainedImpersonation: on, off or default. Empty, or any, is the default, too.
	Gate   scenarios.Gate
	Grants []scenarios.Grant // in force from the start
	// Objects are those of the cluster that decisions depend on: roles, bindings, pods.
	Objects []map[string]any
	Chain   []Authorizer // the authorizer chain; nil is Node and RBAC, with the grants
}

// Server is the model of one API server process, with all that it remembers. It is not safe for concurrent use.
type Server struct {
	effective, binary uint64         // minor versions
	gate              scenarios.Gate // on or off
	chain             []Authorizer
	grants            []scenarios.Grant
	policy            policy
	memory            memory
	tokens            tokens
}

// New returns a server that has just started.
func New(c Config) (_ *Server, err error) {
	c.Binary = cmp.Or(c.Binary, c.Kubernetes)
	s := &Server{
		grants: slices.Clone(c.Grants), policy: newPolicy(c.Objects), memory: newMemory(),
		tokens: tokens{deleted: map[string]bool{}, valid: map[string]time.Duration{}},
	}
	if s.effective, err = minor(c.Kubernetes); err != nil {
		return nil, err
	}
	if s.binary, err = minor(c.Binary); err != nil {
		return nil, err
	}
	if s.effective > s.binary {
		return nil, fmt.Errorf("a kube-apiserver 1.%d cannot emulate the newer 1.%d", s.binary, s.effective)
	}
	if s.gate, err = resolveGate(c.Gate, s.effective); err != nil {
		return nil, err
	}
	s.chain = c.Chain
	if s.chain == nil {
		s.chain = s.ordinaryChain()
	}
	return s, nil
}

// resolveGate returns the state, on or off, that the gate has in a minor version.
func resolveGate(gate scenarios.Gate, effective uint64) (scenarios.Gate, error) {
	switch gate {
	case scenarios.GateOn:
		if effective < 35 {
			return "", fmt.Errorf("the gate ConstrainedImpersonation came with 1.35: 1.%d does not have it", effective)
		}
		return scenarios.GateOn, nil
	case scenarios.GateOff:
		return scenarios.GateOff, nil
	case scenarios.GateDefault, scenarios.GateAny, "":
		if effective >= 36 { // alpha in 1.35, beta since (pkg/features/kube_features.go)
			return scenarios.GateOn, nil
		}
		return scenarios.GateOff, nil
	}
	return "", fmt.Errorf("the gate is on or off, not %q", gate)
}

// minor returns the minor version of "1.37" or "v1.37.1".
func minor(version string) (uint64, error) {
	v, err := semver.NewVersion(version)
	if err != nil || v.Major() != 1 {
		return 0, fmt.Errorf("%q is not a version of Kubernetes (expected one like 1.37)", version)
	}
	return v.Minor(), nil
}

// Gate returns the state of ConstrainedImpersonation: on or off.
func (s *Server) Gate() scenarios.Gate { return s.gate }

func (s *Server) isGateOn() bool { return s.gate == scenarios.GateOn }

// Advance lets time pass.
func (s *Server) Advance(d time.Duration) { s.memory.now += d }

// Grant brings grants into force.
func (s *Server) Grant(grants ...scenarios.Grant) { s.grants = append(s.grants, grants...) }

// Revoke takes grants away, one of each that is equal.
func (s *Server) Revoke(grants ...scenarios.Grant) {
	for _, g := range grants {
		same := func(h scenarios.Grant) bool { return reflect.DeepEqual(g, h) }
		if i := slices.IndexFunc(s.grants, same); i >= 0 {
			s.grants = slices.Delete(s.grants, i, i+1)
		}
	}
}

// countsImpersonation reports whether the server keeps apiserver_impersonation_*: since 1.36, with the gate on.
func (s *Server) countsImpersonation() bool { return s.isGateOn() && s.binary >= 36 }

// missingRules returns the rules, in their smallest parts, that a user does not hold in a namespace, by plain
// comparison of strings (Covers of k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go). Parts that
// differ in the verb alone are put together again (CompactRules).
func (s *Server) missingRules(u scenarios.User, namespace string, rules []scenarios.Grant) (missing []scenarios.Grant) {
	all := slices.Concat(s.policy.grants, s.grants, s.policy.defaults)
	for _, rule := range rules {
		rule.Namespace = namespace
		for _, part := range rule.Parts() {
			spec := part.Review()
			spec.User, spec.Groups = u.Name, u.Groups
			if scenarios.Covered(all, spec) {
				continue
			}
			same := func(m scenarios.Grant) bool {
				return len(part.NonResourceURLs) == 0 && slices.Equal(m.APIGroups, part.APIGroups) &&
					slices.Equal(m.Resources, part.Resources) && slices.Equal(m.Names, part.Names)
			}
			if i := slices.IndexFunc(missing, same); i >= 0 {
				missing[i].Verbs = append(missing[i].Verbs, part.Verbs...)
				continue
			}
			missing = append(missing, part)
		}
	}
	return missing
}

// compactRule returns a rule as CompactString writes it, of k8s.io/kubernetes/pkg/apis/rbac/v1.
func compactRule(r scenarios.Grant) string {
	var parts []string
	for _, f := range []struct {
		name string
		list []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.Names}, {"Verbs", r.Verbs},
	} {
		if len(f.list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", f.name, f.list))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

const rbacGroup = "rbac.authorization.k8s.io"

// store does what comes behind authorization and asks authorizers again: RBAC's escalation check, self-reviews, who may
// approve certificates, and the second verb of exec.
func (s *Server) store(p *Prediction, k asker, subject scenarios.User, r Request) {
	switch r.APIGroup + "/" + r.Resource {
	case rbacGroup + "/roles", rbacGroup + "/clusterroles":
		s.grantRules(p, k, subject, r, "escalate", r.Resource, r.Name, r.Body)
	case rbacGroup + "/rolebindings", rbacGroup + "/clusterrolebindings":
		kind, name := scenarios.Text(r.Body, "roleRef", "kind"), scenarios.Text(r.Body, "roleRef", "name")
		s.grantRules(p, k, subject, r, "bind", strings.ToLower(kind)+"s", name, s.policy.role(kind, r.Namespace, name))
	case "authorization.k8s.io/selfsubjectaccessreviews":
		if a, _, ok := requestedReview(r); ok {
			p.add(k.ask(question{"", subject, a}))
		}
	case "authorization.k8s.io/localsubjectaccessreviews", "authorization.k8s.io/subjectaccessreviews":
		if a, subject, ok := requestedReview(r); ok {
			p.add(k.ask(question{"", subject, a}))
		}
	case "certificates.k8s.io/certificatesigningrequests":
		s.approve(p, k, subject, r)
		s.write(p, k, subject, r)
	default:
		isOfCore := r.APIGroup == "" && r.Subresource == ""
		if isOfCore && r.Verb == "delete" && !r.DryRun { // at once: the model knows no grace
			s.tokens.deleted[boundPath(r.Resource, r.Namespace, r.Name)] = true
		}
		s.connect(p, k, subject, r)
		s.write(p, k, subject, r)
	}
}

func (p *Prediction) add(r Review) Review {
	p.Segments = append(p.Segments, Segment{Runs: [][]Review{{r}}})
	return r
}

// connect makes the check of create that exec, attach and portforward make since 1.35 when they are opened with GET
// (ensureAuthorizedForVerb of k8s.io/kubernetes/pkg/registry/core/pod/rest/authorize.go). Authorization has let
// the request through, so the outcome stays.
func (s *Server) connect(p *Prediction, k asker, subject scenarios.User, r Request) {
	isOfPod := r.APIGroup == "" && r.Resource == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, r.Subresource)
	if s.effective < 35 || !isOfPod || r.Verb != "get" {
		return
	}
	a := r.Attributes
	a.Verb = "create"
	if review := p.add(k.ask(question{"", subject, a})); !review.Allowed() {
		p.Code = 403
		p.Messages = []string{strings.TrimSpace(statusForbidden("", r.Resource, r.Name, review.Answer.Reason))}
	}
}

// approve makes admission's check of who approves: the signer by its name, and then by its domain (IsAuthorizedForSignerName
// of k8s.io/kubernetes/plugin/pkg/admission/certificates).
func (s *Server) approve(p *Prediction, k asker, subject scenarios.User, r Request) {
	at := s.policy.find(r.APIGroup, r.Resource, "", r.Name)
	isWrite := r.Verb == "patch" || r.Verb == "update"
	if at < 0 || !isWrite || r.Subresource != "approval" {
		return
	}
	signer := scenarios.Text(s.policy.objects[at], "spec", "signerName")
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		a := Attributes{Verb: "approve", APIGroup: r.APIGroup, Version: "*", Resource: "signers", Name: name, ResourceRequest: true}
		if p.add(k.ask(question{"", subject, a})).Allowed() {
			return
		}
	}
	p.Code = 403
	p.Messages = []string{
		statusForbidden(r.APIGroup, r.Resource, r.Name, fmt.Sprintf("user not permitted to approve requests with signerName %q", signer)),
	}
}

// createdByUpdate are the resources that an update creates if they are not there.
var createdByUpdate = []string{
	"coordination.k8s.io/leases", "coordination.k8s.io/leasecandidates", "/endpoints", "/events", "/limitranges",
	"/services", "node.k8s.io/runtimeclasses",
}

// write does what the storage of ordinary objects has to do with permissions: an update or apply of what is not
// there needs create (withAuthorization of k8s.io/apiserver/pkg/endpoints/handlers/update.go).
func (s *Server) write(p *Prediction, k asker, subject scenarios.User, r Request) {
	isThere := s.policy.find(r.APIGroup, r.Resource, r.Namespace, r.Name) >= 0
	switch {
	case r.Body == nil || r.Subresource != "":
		return
	case r.canCreate() && !isThere:
		a := r.Attributes
		a.Verb = "create"
		if review := p.add(k.ask(question{"", subject, a})); !review.Allowed() {
			p.Code, p.Messages = 403, []string{review.text}
			return
		}
	case r.Verb != "create" || nameOf(r.Body) == "":
		return
	}
	s.keepObject(r)
}

// canCreate reports whether an update or a patch of what is not there creates it.
func (r Request) canCreate() bool {
	switch r.Verb {
	case "update":
		return slices.Contains(createdByUpdate, r.APIGroup+"/"+r.Resource)
	case "patch":
		return r.Apply
	}
	return false
}

// requestedReview returns what an access review asks, and about whom where that is not who asks (ResourceAttributesFrom of
// k8s.io/kubernetes/pkg/registry/authorization/util).
func requestedReview(r Request) (a Attributes, subject scenarios.User, ok bool) {
	raw, err := json.Marshal(r.Body)
	spec, isReview := scenarios.ReviewOfBody(raw)
	if r.Verb != "create" || err != nil || !isReview {
		return a, subject, false
	}
	subject = scenarios.UserOf(spec.User, spec.UID, spec.Groups, spec.Extra)
	if n := spec.NonResourceAttributes; n != nil {
		return Attributes{Verb: n.Verb, Path: n.Path}, subject, true
	}
	in := spec.ResourceAttributes
	a = Attributes{
		Verb: in.Verb, APIGroup: in.Group, Version: in.Version, Resource: in.Resource, Subresource: in.Subresource,
		Namespace: in.Namespace, Name: in.Name, ResourceRequest: true,
	}
	if in.FieldSelector != nil {
		for _, f := range in.FieldSelector.Requirements {
			if len(f.Values) == 1 { // no other can be asked by a request
				op := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}[f.Operator]
				a.Fields = append(a.Fields, fields.Requirement{Operator: op, Field: f.Key, Value: f.Values[0]})
			}
		}
	}
	if in.LabelSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: in.LabelSelector.Requirements})
		if err == nil {
			a.Labels, _ = selector.Requirements()
		}
	}
	return a, subject, true
}

// grantRules makes the escalation check of roles and, with the rules of their role, of bindings: who may not escalate, or
// bind, must hold every rule (Create of k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased and its
// neighbours, RoleEscalationAuthorized, BindingAuthorized).
func (s *Server) grantRules(p *Prediction, k asker, subject scenarios.User, r Request, verb, resource, name string, role map[string]any) {
	isWritten := r.Body != nil && slices.Contains([]string{"create", "update"}, r.Verb)
	if !isWritten || p.Outcome != scenarios.Allowed || slices.Contains(subject.Groups, mastersGroup) {
		return
	}
	may := Attributes{
		Verb:            verb,
		APIGroup:        rbacGroup,
		Version:         "*",
		Resource:        resource,
		Namespace:       r.Namespace,
		Name:            name,
		ResourceRequest: true,
	}
	if !p.add(k.ask(question{"", subject, may})).Allowed() {
		if role == nil {
			return // 404: nothing is stored
		}
		if missing := s.missingRules(subject, r.Namespace, scenarios.RulesOf(role)); len(missing) > 0 {
			p.refuseEscalation(subject, r, missing)
			return
		}
	}
	s.keepObject(r)
}

// keepObject makes what was written count from now on.
func (s *Server) keepObject(r Request) {
	if !r.DryRun {
		s.policy = newPolicy(append(slices.Clone(s.policy.objects), withNamespace(r.Body, r.Namespace)))
	}
}

// refuseEscalation answers as ConfirmNoEscalation does (k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go).
func (p *Prediction) refuseEscalation(subject scenarios.User, r Request, missing []scenarios.Grant) {
	lines := seq.Map(missing, compactRule)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		subject.Name, subject.Groups, strings.Join(sets.List(sets.New(lines...)), "\n"))
	p.Outcome, p.Code = scenarios.EscalationForbidden, 403
	p.Messages = []string{statusForbidden(rbacGroup, r.Resource, nameOf(r.Body), text)}
}

func nameOf(o map[string]any) string { return scenarios.Text(o, "metadata", "name") }
