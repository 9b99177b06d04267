package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

const rbacGroup = "rbac.authorization.k8s.io"

// store is what comes behind authorization and asks authorizers again: RBAC's escalation check, self-reviews, and
// the second verb of exec.
func (s *Server) store(p *Prediction, k asker, subject scenarios.User, r Request) {
	switch r.APIGroup + "/" + r.Resource {
	case rbacGroup + "/roles", rbacGroup + "/clusterroles":
		s.grantRules(p, k, subject, r, "escalate", r.Resource, r.Name, r.Body)
	case rbacGroup + "/rolebindings", rbacGroup + "/clusterrolebindings":
		kind, name := scenarios.Text(r.Body, "roleRef", "kind"), scenarios.Text(r.Body, "roleRef", "name")
		s.grantRules(p, k, subject, r, "bind", strings.ToLower(kind)+"s", name, s.policy.role(kind, r.Namespace, name))
	case "authorization.k8s.io/selfsubjectaccessreviews":
		if a, _, ok := reviewed(r); ok {
			p.add(k.ask(question{"", subject, a}))
		}
	case "authorization.k8s.io/localsubjectaccessreviews":
		if a, about, ok := reviewed(r); ok {
			p.add(k.ask(question{"", about, a}))
		}
	default:
		s.deleted(r)
		s.connect(p, k, subject, r)
		s.write(p, k, subject, r)
	}
}

// add appends a review of its own.
func (p *Prediction) add(r Review) Review {
	p.Segments = append(p.Segments, Segment{Runs: [][]Review{{r}}})
	return r
}

// connect is the check of create that exec, attach and portforward make since 1.35 when they are opened with GET
// (ensureAuthorizedForVerb of k8s.io/kubernetes/pkg/registry/core/pod/rest/authorize.go). Authorization has let
// the request through, so the outcome stays.
func (s *Server) connect(p *Prediction, k asker, subject scenarios.User, r Request) {
	if s.effective < 35 || r.APIGroup != "" || r.Resource != "pods" || r.Verb != "get" || !slices.Contains([]string{"exec", "attach", "portforward"}, r.Subresource) {
		return
	}
	a := r.Attributes
	a.Verb = "create"
	if review := p.add(k.ask(question{"", subject, a})); !review.Allowed() {
		p.Code = 403
		p.Messages = []string{strings.TrimSpace(statusForbidden("", r.Resource, r.Name, review.Answer.Reason))}
	}
}

// creates are the resources that an update creates (AllowCreateOnUpdate of their strategies).
var creates = []string{
	"coordination.k8s.io/leases", "coordination.k8s.io/leasecandidates", "/endpoints", "/events", "/limitranges",
	"/services", "node.k8s.io/runtimeclasses",
}

// write is what the storage of ordinary objects has to do with permissions: an update or apply of what is not
// there needs create (withAuthorization of k8s.io/apiserver/pkg/endpoints/handlers/update.go).
func (s *Server) write(p *Prediction, k asker, subject scenarios.User, r Request) {
	known := s.policy.find(r.APIGroup, r.Resource, r.Namespace, r.Name)
	update := r.Verb == "update" && slices.Contains(creates, r.APIGroup+"/"+r.Resource) || r.Verb == "patch" && r.Apply
	switch {
	case r.Body == nil || r.Subresource != "":
		return
	case update && known < 0:
		a := r.Attributes
		a.Verb = "create"
		if review := p.add(k.ask(question{"", subject, a})); !review.Allowed() {
			p.Code, p.Messages = 403, []string{review.text}
			return
		}
	case r.Verb != "create" || nameOf(r.Body) == "":
		return
	}
	s.stored(r)
}

// reviewed is what an access review asks, and about whom where that is not who asks (ResourceAttributesFrom of
// k8s.io/kubernetes/pkg/registry/authorization/util).
func reviewed(r Request) (a Attributes, about scenarios.User, ok bool) {
	var body authorizationv1.SubjectAccessReview
	if r.Verb != "create" || !decode(r.Body, &body) {
		return a, about, false
	}
	about = scenarios.UserOf(body.Spec.User, body.Spec.UID, body.Spec.Groups, body.Spec.Extra)
	if n := body.Spec.NonResourceAttributes; n != nil {
		return Attributes{Verb: n.Verb, Path: n.Path}, about, true
	}
	in := body.Spec.ResourceAttributes
	if in == nil {
		return a, about, false
	}
	a = Attributes{
		Verb: in.Verb, APIGroup: in.Group, Version: in.Version, Resource: in.Resource, Subresource: in.Subresource,
		Namespace: in.Namespace, Name: in.Name, ResourceRequest: true,
	}
	if a.Version == "" {
		a.Version = "*"
	}
	return a, about, true
}

// decode reads a body as a type.
func decode(body map[string]any, into any) bool {
	raw, err := json.Marshal(body)
	return err == nil && body != nil && json.Unmarshal(raw, into) == nil
}

// grantRules is the escalation check of roles and, with the rules of their role, of bindings: who may not escalate, or
// bind, must hold every rule (Create of k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased and its
// neighbours, RoleEscalationAuthorized, BindingAuthorized).
func (s *Server) grantRules(p *Prediction, k asker, subject scenarios.User, r Request, verb, resource, name string, role map[string]any) {
	if r.Body == nil || r.Verb != "create" && r.Verb != "update" || p.Outcome != scenarios.Allowed || slices.Contains(subject.Groups, mastersGroup) {
		return
	}
	may := Attributes{Verb: verb, APIGroup: rbacGroup, Version: "*", Resource: resource, Namespace: r.Namespace, Name: name, ResourceRequest: true}
	if !p.add(k.ask(question{"", subject, may})).Allowed() {
		if role == nil {
			return // 404: nothing is stored
		}
		if missing := s.missingRules(subject, r.Namespace, scenarios.RulesOf(role)); len(missing) > 0 {
			p.escalates(subject, r, missing)
			return
		}
	}
	s.stored(r)
}

// stored makes what was written count from now on.
func (s *Server) stored(r Request) {
	if !r.DryRun {
		s.Apply(withNamespace(r.Body, r.Namespace))
	}
}

// escalates is the answer of ConfirmNoEscalation (k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go).
func (p *Prediction) escalates(subject scenarios.User, r Request, missing []scenarios.Grant) {
	lines := scenarios.Each(missing, compactRule)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		subject.Name, subject.Groups, strings.Join(distinct(lines), "\n"))
	p.Outcome, p.Code = scenarios.EscalationForbidden, 403
	p.Messages = []string{statusForbidden(rbacGroup, r.Resource, nameOf(r.Body), text)}
}

func nameOf(o map[string]any) string { return scenarios.Text(o, "metadata", "name") }
