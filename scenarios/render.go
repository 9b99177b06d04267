package scenarios

import (
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// RBACObject is a role and its binding, in force together: ClusterRole and ClusterRoleBinding, or, with a
// namespace, Role and RoleBinding.
type RBACObject struct {
	// Name is that of both objects, unique among bound scenarios.
	Name string
	// Namespace is empty for cluster-wide grants.
	Namespace string
	// Subject is who is granted.
	Subject Subject
	// Grant is the ID by which steps name the grant, empty if they do not.
	Grant string
	// InForce tells whether the grant holds before the first step.
	InForce bool
	// Grants are the neutral grants that are rendered here.
	Grants []Grant
	// Scenario is the ID of the one that they are for: an annotation tells a person who finds the objects.
	Scenario string

	// Check is a review that is allowed exactly when role and binding are in force: what to poll until an
	// authorizer has seen a change.
	Check authorizationv1.SubjectAccessReviewSpec
	// Exclusive tells whether nothing else in the scenario allows Check. If it is false, every review of this
	// grant is allowed by another one as well, and Check says nothing about this one.
	Exclusive bool
}

// Objects are the role and the binding, in the order to create them in.
func (o RBACObject) Objects() []runtime.Object {
	meta := metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}
	if o.Scenario != "" {
		meta.Annotations = map[string]string{"authzconf.dev/scenario": o.Scenario}
	}
	var rules []rbacv1.PolicyRule
	for _, g := range o.Grants {
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: g.Verbs, APIGroups: g.APIGroups, Resources: g.Resources,
			ResourceNames: g.Names, NonResourceURLs: g.NonResourceURLs,
		})
	}
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

// Paths are where an API server has the objects.
func (o RBACObject) Paths() []string {
	at, role := "/apis/"+rbacv1.SchemeGroupVersion.String()+"/", "clusterrole"
	if o.Namespace != "" {
		at, role = at+"namespaces/"+o.Namespace+"/", "role"
	}
	return []string{at + role + "s/" + o.Name, at + role + "bindings/" + o.Name}
}

// RenderRBAC renders the grants of a bound scenario: one role and binding for each subject, namespace and grant
// ID, in the order of the file.
func RenderRBAC(s *Scenario) []RBACObject {
	type key struct {
		subject          Subject
		namespace, grant string
	}
	prefix := "authzconf-"
	if s.Suffix != "" {
		prefix += s.Suffix + "-"
	}
	index := map[key]int{}
	var out []RBACObject
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

// GrantsAt are the grants that are in force before a step.
func (s *Scenario) GrantsAt(step int) []Grant {
	return slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool { return !s.GrantedAt(g.ID, step) })
}

// InForceAtStart tells whether the grant of that ID holds before the first step: unless the first step that names
// it is a grant step.
func (s *Scenario) InForceAtStart(grantID string) bool {
	first := slices.IndexFunc(s.Steps, func(st Step) bool { return st.Grant == grantID || st.Revoke == grantID })
	return grantID == "" || first < 0 || s.Steps[first].Grant != grantID
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// rbacSubject gives service accounts their own kind, as an administrator would.
func rbacSubject(s Subject) rbacv1.Subject {
	if s.Group != "" {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: s.Group}
	}
	if ns, name, ok := SplitServiceAccount(s.User); ok {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.User}
}

// pickCheck chooses the first review that the grants allow and the others do not. If there is none, it is the
// first one, and false.
func pickCheck(grants, others []Grant) (authorizationv1.SubjectAccessReviewSpec, bool) {
	all := slices.Concat(Each(grants, Grant.Examples)...)
	if i := slices.IndexFunc(all, func(spec authorizationv1.SubjectAccessReviewSpec) bool { return !Covered(others, spec) }); i >= 0 {
		return all[i], true
	}
	return append(all, authorizationv1.SubjectAccessReviewSpec{})[0], false
}

// Examples lists the reviews that a grant names, wildcards replaced by an example.
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

// Parts are the grant in its smallest parts: one verb with one path, or with one API group, resource and name.
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

// Review is what a part asks for, wildcards as they stand.
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
		Verb: g.Verbs[0], Group: g.APIGroups[0], Resource: resource, Subresource: sub, Namespace: g.Namespace, Name: strings.Join(g.Names, ""),
	}
	return spec
}

// example replaces a wildcard, or a path that was nothing but one.
func example(s, wildcard string) string {
	if s == "*" || s == "" {
		return wildcard
	}
	return s
}
