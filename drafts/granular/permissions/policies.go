package permissions

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/internal/seq"
)

var (
	//go:embed policies.yaml.tmpl
	policyText string
	policyPage = template.Must(template.New("policies").Parse(policyText))
)

// policy guards an excluded field, or one excluded key of a map, or excluded values of either.
type policy struct {
	resource
	*Field
	// Key is the key that is guarded, empty for a field.
	Key string
	// Names are the names of the fields on the path to the guarded field, or to the map with the key.
	Names []string
	// Verbs are the permissions that allow a change, the most general first.
	Verbs []string
}

// Policies returns manifests of ValidatingAdmissionPolicies for the excluded fields. By them, API servers of today
// demand the permissions of these fields in addition to the ordinary one (KEP-3617, step 6). A policy cannot permit
// anything that the ordinary permission does not, so there are no policies for other fields. A resource that is
// described in several versions has a policy for the first version, to which the API server converts the others.
func (s *Set) Policies() ([]byte, error) {
	var all []policy
	seen := map[string]bool{}
	for _, r := range s.Resources {
		policies, err := s.policiesOf(r)
		if err != nil {
			return nil, err
		}
		// Two fields of one version may have the same verbs, and each has a policy.
		all = append(all, seq.Filter(policies, func(p policy) bool { return !seen[p.id()] })...)
		for _, p := range policies {
			seen[p.id()] = true
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no field is excluded: there is nothing for a policy to guard")
	}
	var out bytes.Buffer
	err := policyPage.Execute(&out, all)
	return out.Bytes(), err
}

// policiesOf returns the policies for the excluded fields of one description of a resource.
func (s *Set) policiesOf(r resource) (policies []policy, err error) {
	fields := s.Fields(r.Group, r.Versions[0], r.Resource)
	slices.SortStableFunc(fields, func(a, b *Field) int { return cmp.Compare(len(a.Path), len(b.Path)) })
	for _, f := range s.fieldsOf(r) {
		names, keys := f.listGuarded()
		if len(keys) == 0 {
			continue
		}
		if !canGuard(r, f, names, fields) {
			return nil, fmt.Errorf(
				"%s: path %q: there is a policy only for what one resource excludes, with nothing described in it, and not in the items of a list or map",
				r.Resource,
				f.Path,
			)
		}
		for _, key := range keys {
			policies = append(policies, policy{resource: r, Field: f, Key: key, Names: names, Verbs: verbsOver(f, key, fields)})
		}
	}
	return policies, nil
}

// listGuarded returns what is excluded of a field: the names on the path to it, and the excluded keys in it. If the
// field itself or some of its values are excluded, the only key is "".
func (f *Field) listGuarded() (names, keys []string) {
	hasValues := f.ExcludedValues != nil && f.ExcludedItems == nil
	if f.Excluded || hasValues {
		return f.Segments(), []string{""}
	}
	return strings.Split(strings.TrimSuffix(f.Path, ".*"), "."), f.ExcludedItems
}

// canGuard reports whether a policy can guard a field of a resource with these fields. The CEL of a policy can have
// only one path.
func canGuard(r resource, f *Field, names []string, fields []*Field) bool {
	hasFields := slices.ContainsFunc(fields, func(other *Field) bool { return strings.HasPrefix(other.Path, f.Path+".") })
	isPath := !strings.ContainsAny(strings.Join(names, ""), "*-$")
	return r.Resource != "*" && !hasFields && isPath
}

// verbsOver returns the permissions of a field and of the fields around it, the most general first, and each once: a
// field that is described for every resource and again for one resource is there twice, and an embedded field may have
// the verb of a field around it.
func verbsOver(f *Field, key string, fields []*Field) (verbs []string) {
	for _, over := range fields {
		if strings.HasPrefix(f.Path+".", over.Path+".") {
			verbs = append(verbs, over.verb(key))
		}
	}
	return seq.AppendMissing(nil, verbs...)
}

// id returns the same for the policies of one field in different versions, whatever the field is called there.
func (p policy) id() string { return fmt.Sprint(p.Group, p.resource.Resource, p.Verbs, p.Key) }

// Changed returns the path of the field, or of the key.
func (p policy) Changed() string { return strings.Replace(p.Path, "*", p.Key, 1) }

// Value returns the CEL that selects what is guarded from an object, as an optional value.
func (p policy) Value() string {
	path := ".?" + strings.Join(p.Names, ".?")
	if p.Key != "" {
		path += fmt.Sprintf("[?%q]", p.Key)
	}
	return path
}

// OtherValues returns the CEL that is true unless the object gets an excluded value. It is empty if every change is
// guarded.
func (p policy) OtherValues() string {
	return strings.Join(seq.Map(p.literals(), func(value string) string {
		return fmt.Sprintf("object%s != optional.of(%s)", p.Value(), value)
	}), " && ")
}

// Message returns the message of a denial.
func (p policy) Message() string {
	change := "change " + p.Changed()
	if values := p.literals(); len(values) > 0 {
		change = "set " + p.Changed() + " to " + strings.Join(values, " or ")
	}
	return strings.Join(p.Verbs, " or ") + " is needed to " + change
}

// Name returns the name of the policy and its binding.
func (p policy) Name() string {
	return strings.ToLower(strings.NewReplacer("..", ".", "/", ".", "_", "-").Replace(p.Resource + "." + p.Group + "." + p.Changed()))
}
