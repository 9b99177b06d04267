package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
)

// RBACObject is a role and its binding: ClusterRole and ClusterRoleBinding or, with a namespace, Role and RoleBinding.
type RBACObject struct {
	Name      string  // the name of both objects, which is unique among bound scenarios
	Namespace string  // empty for cluster-wide grants
	Subject   Subject // who is granted
	Grant     string  // the ID by which steps name the grant; empty if no step does
	// InForce is true if the grant is in force before the first step.
	InForce bool
	Grants  []Grant // the neutral grants that are rendered here
	// Scenario is the ID of the scenario that the objects are for. An annotation shows it to a person who finds them.
	Scenario string

	// Check is a review that is allowed exactly if the role and the binding are in force. It is repeated until
	// authorizers see a change.
	Check authorizationv1.SubjectAccessReviewSpec
	// Exclusive is true if nothing else in the scenario allows Check. If it is false, another grant also allows every
	// review that this one allows, so that Check shows nothing about this one.
	Exclusive bool
}

// Objects returns the role and the binding, in the order in which they must be created.
func (o RBACObject) Objects() []runtime.Object {
	meta := metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}
	if o.Scenario != "" {
		meta.Annotations = map[string]string{"authzconf.dev/scenario": o.Scenario}
	}
	rules := seq.Map(o.Grants, func(g Grant) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			Verbs:           g.Verbs,
			APIGroups:       g.APIGroups,
			Resources:       g.Resources,
			ResourceNames:   g.Names,
			NonResourceURLs: g.NonResourceURLs,
		}
	})
	subjects := []rbacv1.Subject{rbacSubject(o.Subject)}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: o.Name}
	if o.Namespace == "" {
		return []runtime.Object{
			&rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: ref},
		}
	}
	ref.Kind = "Role"
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: ref},
	}
}

// Paths returns the paths of the objects at an API server.
func (o RBACObject) Paths() []string {
	at, role := "/apis/"+rbacv1.SchemeGroupVersion.String()+"/", "clusterrole"
	if o.Namespace != "" {
		at, role = at+"namespaces/"+o.Namespace+"/", "role"
	}
	return []string{at + role + "s/" + o.Name, at + role + "bindings/" + o.Name}
}

// RenderRBAC renders a bound scenario's grants in order: a role and binding for each subject, namespace and grant ID.
func RenderRBAC(s *Scenario) (out []RBACObject) {
	type key struct {
		subject          Subject
		namespace, grant string
	}
	prefix := "authzconf-"
	if s.Suffix != "" {
		prefix += s.Suffix + "-"
	}
	index := map[key]int{}
	for _, g := range s.Grants {
		k := key{g.Subject, g.Namespace, g.ID}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, RBACObject{
				Name:      prefix + strconv.Itoa(i),
				Namespace: g.Namespace, Subject: g.Subject, Grant: g.ID, InForce: s.InForceAtStart(g.ID), Scenario: s.ID,
			})
		}
		out[i].Grants = append(out[i].Grants, g)
	}
	fromManifests := RulesFromManifests(append(slices.Clone(s.Manifests), s.Objects...))
	for i := range out {
		others := slices.Clone(fromManifests)
		for j := range out {
			if j != i {
				others = append(others, out[j].Grants...)
			}
		}
		out[i].Check, out[i].Exclusive = pickCheck(out[i].Grants, others)
	}
	return out
}

// GrantsAt returns the grants that are in force before a step.
func (s *Scenario) GrantsAt(step int) []Grant {
	return slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool { return !s.GrantedAt(g.ID, step) })
}

// InForceAtStart reports whether the grant with an ID is in force at the start. It is, unless the first step that names
// it is a grant step.
func (s *Scenario) InForceAtStart(grantID string) bool {
	first := slices.IndexFunc(s.Steps, func(st Step) bool { return st.Grant == grantID || st.Revoke == grantID })
	return grantID == "" || first < 0 || s.Steps[first].Grant != grantID
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// rbacSubject returns a subject of RBAC. Service accounts get their own kind, as an administrator would write them.
func rbacSubject(s Subject) rbacv1.Subject {
	if s.Group != "" {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: s.Group}
	}
	if ns, name, ok := SplitServiceAccount(s.User); ok {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.User}
}

// pickCheck returns the first review that the grants allow and the others do not, and true. If there is none, it
// returns the first review and false.
func pickCheck(grants, others []Grant) (authorizationv1.SubjectAccessReviewSpec, bool) {
	all := slices.Concat(seq.Map(grants, Grant.Examples)...)
	if i := slices.IndexFunc(all, func(spec authorizationv1.SubjectAccessReviewSpec) bool { return !Covered(others, spec) }); i >= 0 {
		return all[i], true
	}
	return append(all, authorizationv1.SubjectAccessReviewSpec{})[0], false
}

// Examples returns the reviews that a grant names, with wildcards replaced by an example.
func (g Grant) Examples() (out []authorizationv1.SubjectAccessReviewSpec) {
	for _, part := range g.Parts() {
		spec := part.Review()
		if n := spec.NonResourceAttributes; n != nil {
			n.Verb, n.Path = example(n.Verb, "get"), example(strings.TrimRight(n.Path, "*"), "/")
		} else {
			a := spec.ResourceAttributes
			a.Verb, a.Group, a.Resource = example(a.Verb, "get"), example(a.Group, ""), example(a.Resource, "pods")
		}
		out = append(out, spec)
	}
	return out
}

// Parts returns the grant in its smallest parts: one verb with one path, or with one API group, resource and name.
func (g Grant) Parts() (out []Grant) {
	names := [][]string{nil}
	if len(g.Names) > 0 {
		names = slices.Collect(slices.Chunk(g.Names, 1))
	}
	for verb := range slices.Chunk(g.Verbs, 1) {
		part := Grant{Subject: g.Subject, Namespace: g.Namespace, Verbs: verb}
		for part.NonResourceURLs = range slices.Chunk(g.NonResourceURLs, 1) {
			out = append(out, part)
		}
		part.NonResourceURLs = nil
		for part.APIGroups = range slices.Chunk(g.APIGroups, 1) {
			for part.Resources = range slices.Chunk(g.Resources, 1) {
				for _, part.Names = range names {
					out = append(out, part)
				}
			}
		}
	}
	return out
}

// Review returns what a part asks for. Wildcards stay as they are.
func (g Grant) Review() authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: g.Subject.User}
	if g.Subject.Group != "" {
		spec.Groups = []string{g.Subject.Group}
	}
	if len(g.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: g.Verbs[0], Path: g.NonResourceURLs[0]}
		return spec
	}
	resource, sub, _ := strings.Cut(g.Resources[0], "/")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:        g.Verbs[0],
		Group:       g.APIGroups[0],
		Resource:    resource,
		Subresource: sub,
		Namespace:   g.Namespace,
		Name:        strings.Join(g.Names, ""),
	}
	return spec
}

// example replaces a wildcard, or a path that is only a wildcard, by an example.
func example(s, wildcard string) string {
	if s == "*" || s == "" {
		return wildcard
	}
	return s
}

// ReviewOf returns an access review, as it was asked and decided, in the terms of an expectation.
func ReviewOf(spec authorizationv1.SubjectAccessReviewSpec, decision Decision) Review {
	r := Review{Decision: decision, Extra: UserOf(spec.User, spec.UID, spec.Groups, spec.Extra).Extra}
	if a := spec.NonResourceAttributes; a != nil {
		r.Verb, r.Path = a.Verb, a.Path
	}
	a := spec.ResourceAttributes
	if a == nil {
		return r
	}
	r.Verb, r.Group, r.Version, r.Resource, r.Subresource = a.Verb, a.Group, a.Version, a.Resource, a.Subresource
	r.Namespace, r.Name = a.Namespace, a.Name
	if s := a.FieldSelector; s != nil {
		r.FieldSelector = fieldSelector(s)
	}
	if s := a.LabelSelector; s != nil {
		r.LabelSelector = labelSelector(s)
	}
	return r
}

// UserOf converts a user of any API type. All of them have the values of extra as a named slice type.
func UserOf[V ~[]string](name, uid string, groups []string, extra map[string]V) User {
	u := User{Name: name, UID: uid, Groups: groups}
	for k, values := range extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = values
	}
	return u
}

// UserFrom converts the user that an authenticator returns.
func UserFrom(u user.Info) User { return UserOf(u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()) }

func fieldSelector(s *authorizationv1.FieldSelectorAttributes) string {
	ops := map[metav1.FieldSelectorOperator]string{metav1.FieldSelectorOpIn: "=", metav1.FieldSelectorOpNotIn: "!="}
	parts := seq.Map(s.Requirements, func(r metav1.FieldSelectorRequirement) string {
		return r.Key + cmp.Or(ops[r.Operator], fmt.Sprintf(" %q ", r.Operator)) + strings.Join(r.Values, "|")
	})
	return selector(parts, s.RawSelector)
}

func labelSelector(s *authorizationv1.LabelSelectorAttributes) string {
	var parts []string
	for _, r := range s.Requirements {
		switch r.Operator {
		case metav1.LabelSelectorOpExists:
			parts = append(parts, r.Key)
		case metav1.LabelSelectorOpDoesNotExist:
			parts = append(parts, "!"+r.Key)
		case metav1.LabelSelectorOpIn:
			parts = append(parts, r.Key+" in ("+strings.Join(r.Values, ",")+")")
		case metav1.LabelSelectorOpNotIn:
			parts = append(parts, r.Key+" notin ("+strings.Join(r.Values, ",")+")")
		default:
			parts = append(parts, fmt.Sprintf("%s %q (%s)", r.Key, r.Operator, strings.Join(r.Values, ",")))
		}
	}
	return selector(parts, s.RawSelector)
}

// selector joins the requirements of a selector. A selector without requirements is not the same as no selector.
func selector(parts []string, raw string) string {
	if raw != "" {
		parts = append(parts, "raw:"+raw)
	}
	return cmp.Or(strings.Join(parts, ","), "{}")
}

// ImpersonationMode returns the impersonation mode to which the verb of a review belongs (associated-node,
// arbitrary-node, serviceaccount, user-info, legacy), as modeFromVerb of
// k8s.io/apiserver/pkg/endpoints/filters/impersonation does. ok is false for an ordinary verb.
func ImpersonationMode(verb string) (mode string, ok bool) {
	kind, rest, constrained := strings.Cut(verb, ":")
	switch {
	case !constrained && kind == "impersonate":
		return legacyMode, true
	case constrained && kind == "impersonate-on":
		rest, _, _ = strings.Cut(rest, ":")
	case !constrained || kind != "impersonate":
		return "", false
	}
	if rest == legacyMode || rest == "" || !slices.Contains(modes, rest) {
		return "unknown", true
	}
	return rest, true
}

// List joins lines into one, or returns "none" if there are none.
func List(lines []string) string {
	if len(lines) == 0 {
		return "none"
	}
	return strings.Join(lines, "; ")
}

// Printable returns a text as it arrives in JSON: U+FFFD replaces each byte that is not UTF-8.
func Printable(s string) string { return string([]rune(s)) }

// Render returns the user on one line.
func (u User) Render() string {
	s := fmt.Sprintf("%q", Printable(u.Name))
	if u.UID != "" {
		s += fmt.Sprintf(" uid=%q", Printable(u.UID))
	}
	s += fmt.Sprintf(" groups=%q", printables(u.Groups))
	if len(u.Extra) > 0 {
		s += " extra=" + RenderExtra(u.Extra)
	}
	return s
}

// RenderExtra returns the extra of a user on one line.
func RenderExtra(extra map[string][]string) string {
	parts := seq.Map(
		slices.Sorted(maps.Keys(extra)),
		func(k string) string { return fmt.Sprintf("%s=%q", Printable(k), printables(extra[k])) },
	)
	return "{" + strings.Join(parts, " ") + "}"
}

func printables(list []string) []string { return seq.Map(list, Printable) }

// SumDeltas adds up the deltas of equal series and sorts them. It leaves out those that are zero.
func SumDeltas(in []MetricDelta) (out []MetricDelta) {
	for _, d := range in {
		same := func(o MetricDelta) bool { return o.Mode == d.Mode && o.Decision == d.Decision }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Count += d.Count
			continue
		}
		out = append(out, d)
	}
	out = slices.DeleteFunc(out, func(d MetricDelta) bool { return d.Count == 0 })
	slices.SortFunc(out, func(a, b MetricDelta) int {
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Decision, b.Decision))
	})
	return out
}

// RenderDeltas returns increases by mode and decision as canonical text.
func RenderDeltas(deltas []MetricDelta) string {
	parts := seq.Map(SumDeltas(deltas), func(d MetricDelta) string {
		return fmt.Sprintf("%s %s ×%d", cmp.Or(d.Mode, `""`), d.Decision, d.Count)
	})
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// auditGroup is the beginning of the groups whose members are audited at another level than Metadata. The level follows
// it.
const auditGroup = "system:audit:"

// These are the levels of audit events.
const (
	AuditNone     = "None"
	AuditMetadata = "Metadata"
	AuditRequest  = "Request"
	AuditResponse = "RequestResponse"
)

// AuditLevel returns the level at which targets audit the requests of a user with these groups
// (fixtures/audit-policy.yaml).
func AuditLevel(groups []string) string {
	for _, g := range groups {
		if level, ok := strings.CutPrefix(g, auditGroup); ok && slices.Contains([]string{AuditNone, AuditRequest, AuditResponse}, level) {
			return level
		}
	}
	return AuditMetadata
}

// DecisionLabel returns the value of the label decision in the impersonation metrics.
func DecisionLabel(d Decision) string {
	if d == Allow {
		return "allowed"
	}
	return "denied"
}
