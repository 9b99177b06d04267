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

// policy guards a field that the ordinary permission does not contain, or a key of one.
type policy struct {
	resource
	*Field
	Key string
	// Around are the names of the fields that the key is in, or of all to the field; Verbs are the permissions of the
	// field, the most general first.
	Around, Verbs []string
}

// Policies are the excluded fields as manifests of ValidatingAdmissionPolicies, by which API servers of today demand
// their permissions beside the ordinary one (KEP-3617, step 6). What a policy cannot do is to permit what the ordinary
// permission does not: so all other fields are not in them. A resource that is described in several versions has a
// policy in the first, to which the API server converts the others.
func (s *Set) Policies() ([]byte, error) {
	var all []policy
	seen := map[string]bool{}
	for _, r := range s.Resources {
		fields := s.Fields(r.Group, r.Versions[0], r.Resource)
		slices.SortStableFunc(fields, func(a, b *Field) int { return cmp.Compare(len(a.Path), len(b.Path)) })
		for _, f := range r.Fields {
			p := policy{resource: r, Field: f, Around: strings.Split(strings.TrimSuffix(f.Path, ".*"), ".")}
			keys := f.ExcludedItems
			if f.Excluded {
				keys, p.Around = []string{""}, f.Segments()
			}
			within := slices.ContainsFunc(fields, func(g *Field) bool { return strings.HasPrefix(g.Path, f.Path+".") })
			if len(keys) > 0 && (r.Resource == "*" || within || strings.ContainsAny(strings.Join(p.Around, ""), "*-$")) {
				return nil, fmt.Errorf("%s: path %q: there is a policy only for what one resource excludes, with nothing described in it, and not in the items of a list or map", r.Resource, f.Path)
			}
			for _, p.Key = range keys {
				p.Verbs = nil
				for _, g := range fields {
					if strings.HasPrefix(f.Path+".", g.Path+".") {
						p.Verbs = append(p.Verbs, g.Permission(p.Key).Verb)
					}
				}
				p.Verbs = slices.Compact(p.Verbs) // what says more of a field of every resource is described twice
				if id := fmt.Sprint(r.Group, r.Resource, p.Verbs, p.Key); !seen[id] {
					seen[id], all = true, append(all, p)
				}
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

// Changed is the path of the field, or of the key.
func (p policy) Changed() string { return strings.Replace(p.Path, "*", p.Key, 1) }

// Name is that of the policy and its binding.
func (p policy) Name() string {
	return strings.ToLower(strings.NewReplacer("..", ".", "/", ".", "_", "-").Replace(p.Resource + "." + p.Group + "." + p.Changed()))
}
