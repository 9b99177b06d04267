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
)

var (
	//go:embed policies.yaml.tmpl
	policyText string
	policyPage = template.Must(template.New("policies").Parse(policyText))
)

// policy guards a field that the ordinary permission does not contain, or one key of a map.
type policy struct {
	resource
	*Field
	// Key is the key that is guarded, empty for a field.
	Key string
	// Names are the names of the fields down to the one that is guarded, or to the map that has the key.
	Names []string
	// Verbs are the permissions that allow a change, the most general first.
	Verbs []string
}

// Policies returns manifests of ValidatingAdmissionPolicies for the excluded fields, by which API servers of today demand
// their permissions beside the ordinary one (KEP-3617, step 6). A policy cannot permit what the ordinary permission does
// not, so no other fields are in them. A resource that is described in several versions has a policy in the first, to
// which the API server converts the others.
func (s *Set) Policies() ([]byte, error) {
	var all []policy
	seen := map[string]bool{}
	for _, r := range s.Resources {
		policies, err := s.policiesOf(r)
		if err != nil {
			return nil, err
		}
		for _, p := range policies {
			id := fmt.Sprint(r.Group, r.Resource, p.Verbs, p.Key)
			if !seen[id] {
				seen[id], all = true, append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no field is excluded: there is nothing for a policy to guard")
	}
	var out bytes.Buffer
	err := policyPage.Execute(&out, all)
	return out.Bytes(), err
}

// policiesOf returns the policies for what one description of a resource excludes.
func (s *Set) policiesOf(r resource) (policies []policy, err error) {
	fields := s.Fields(r.Group, r.Versions[0], r.Resource)
	slices.SortStableFunc(fields, func(a, b *Field) int { return cmp.Compare(len(a.Path), len(b.Path)) })
	for _, f := range r.Fields {
		names, keys := f.listGuarded()
		if len(keys) == 0 {
			continue
		}
		if !canGuard(r, f, names, fields) {
			return nil, fmt.Errorf("%s: path %q: there is a policy only for what one resource excludes, with nothing described in it, and not in the items of a list or map", r.Resource, f.Path)
		}
		for _, key := range keys {
			policies = append(policies, policy{resource: r, Field: f, Key: key, Names: names, Verbs: verbsOver(f, key, fields)})
		}
	}
	return policies, nil
}

// listGuarded returns what of a field is excluded: the names that lead to it, and the keys in it. The field as a whole has
// the one key "".
func (f *Field) listGuarded() (names, keys []string) {
	if f.Excluded {
		return f.Segments(), []string{""}
	}
	return strings.Split(strings.TrimSuffix(f.Path, ".*"), "."), f.ExcludedItems
}

// canGuard reports whether a policy can guard a field of a resource that has these fields: its CEL writes one path.
func canGuard(r resource, f *Field, names []string, fields []*Field) bool {
	hasFields := slices.ContainsFunc(fields, func(other *Field) bool { return strings.HasPrefix(other.Path, f.Path+".") })
	isPath := !strings.ContainsAny(strings.Join(names, ""), "*-$")
	return r.Resource != "*" && !hasFields && isPath
}

// verbsOver returns the permissions of a field and of those around it, the most general first. A field of every resource
// of which a resource says more is described twice.
func verbsOver(f *Field, key string, fields []*Field) (verbs []string) {
	for _, over := range fields {
		if strings.HasPrefix(f.Path+".", over.Path+".") {
			verbs = append(verbs, over.Permission(key).Verb)
		}
	}
	return slices.Compact(verbs)
}

// Changed returns the path of the field, or of the key.
func (p policy) Changed() string { return strings.Replace(p.Path, "*", p.Key, 1) }

// Name returns the name of the policy and its binding.
func (p policy) Name() string {
	return strings.ToLower(strings.NewReplacer("..", ".", "/", ".", "_", "-").Replace(p.Resource + "." + p.Group + "." + p.Changed()))
}
