package granular

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// faultyEnforcer is an enforcer with one fault. The suite of KEP-3617 must reject it.
type faultyEnforcer struct {
	name string
	// wrong describes the fault.
	wrong string
	// steps puts the fault into the steps of the reference.
	steps func(s *enforcer.Steps)
}

// faultyEnforcers returns all faulty enforcers.
func faultyEnforcers() []faultyEnforcer {
	return slices.Concat(bypasses(), diffs(), values(), decisions(), questions(), embeddings())
}

// bypasses returns enforcers that let some requests through unchecked.
func bypasses() []faultyEnforcer {
	unless := func(skip func(*enforcer.Request) bool) func(*enforcer.Steps) {
		return func(s *enforcer.Steps) {
			s.Checked = func(r *enforcer.Request) bool { return !skip(r) }
		}
	}
	return []faultyEnforcer{
		{"granular-alone", "the permission granular alone is enough", unless(func(*enforcer.Request) bool { return true })},
		{"dry-run", "dry runs are not checked", unless(func(r *enforcer.Request) bool { return r.DryRun })},
		{"apply", "server-side apply is not checked", unless((*enforcer.Request).Apply)},
		{"create", "creations are not checked", unless(func(r *enforcer.Request) bool { return r.Info.Verb == "create" })},
		{"json-patch", "JSON patches are not checked", unless(func(r *enforcer.Request) bool { return r.MediaType == "application/json-patch+json" })},
		{"status", "the status subresource is not checked", unless(func(r *enforcer.Request) bool { return r.Info.Subresource == "status" })},
		{"early", "requests are carried out before they are checked", func(s *enforcer.Steps) { s.Early = true }},
		{"ordinary-ignored", "the ordinary permission is not asked for", func(s *enforcer.Steps) { s.Ordinary = false }},
		{"excluded-ignored", "the ordinary permission contains excluded fields", func(s *enforcer.Steps) {
			s.Excluded = func([]enforcer.ChangedField) []enforcer.ChangedField { return nil }
		}},
		{"excluded-all", "the ordinary permission contains nothing where a field is excluded", func(s *enforcer.Steps) {
			s.Excluded = func(all []enforcer.ChangedField) []enforcer.ChangedField { return all }
		}},
	}
}

// keep leaves out some of the fields that change.
func keep(ok func(f enforcer.ChangedField) bool) func(*enforcer.Steps) {
	return func(s *enforcer.Steps) {
		s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
			fields, err := enforcer.ChangedFields(root, c)
			return slices.DeleteFunc(fields, func(f enforcer.ChangedField) bool { return !ok(f) }), err
		}
	}
}

// compared keeps only some of the differences that structured-merge-diff finds.
func compared(part func(*typed.Comparison) *fieldpath.Set) func(*enforcer.Steps) {
	return func(s *enforcer.Steps) {
		s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
			fields, err := enforcer.ChangedFields(root, c)
			if err != nil || c.Old == nil {
				return fields, err
			}
			old, err := c.Type.FromUnstructured(c.Old, typed.AllowDuplicates)
			if err != nil {
				return nil, err
			}
			now, err := c.Type.FromUnstructured(c.New, typed.AllowDuplicates)
			if err != nil {
				return nil, err
			}
			diff, err := old.Compare(now)
			if err != nil {
				return nil, err
			}
			kept := map[string]bool{}
			part(diff).Iterate(func(p fieldpath.Path) { kept[strings.TrimPrefix(p.String(), ".")] = true })
			return slices.DeleteFunc(fields, func(f enforcer.ChangedField) bool { return !kept[f.Path] }), nil
		}
	}
}

// chained changes the chains of permissions of all fields.
func chained(change func(permissions.Chain) permissions.Chain) func(*enforcer.Steps) {
	return func(s *enforcer.Steps) {
		s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
			fields, err := enforcer.ChangedFields(root, c)
			for i := range fields {
				fields[i].Chain = change(slices.Clone(fields[i].Chain))
			}
			return fields, err
		}
	}
}

// diffs returns enforcers that compute wrong fields, or wrong permissions of fields.
func diffs() []faultyEnforcer {
	return []faultyEnforcer{
		{"removed-ignored", "fields that are removed are no change", compared(func(c *typed.Comparison) *fieldpath.Set { return c.Modified.Union(c.Added) })},
		{"added-ignored", "fields that are added are no change", compared(func(c *typed.Comparison) *fieldpath.Set { return c.Modified.Union(c.Removed) })},
		{"order-ignored", "another order of a list is no change", compared(func(c *typed.Comparison) *fieldpath.Set { return c.Modified.Union(c.Removed).Union(c.Added) })},
		{"only-spec", "only fields of spec are checked", keep(func(f enforcer.ChangedField) bool { return strings.HasPrefix(f.Path, "spec") })},
		{"only-metadata", "only fields of metadata are checked", keep(func(f enforcer.ChangedField) bool { return strings.HasPrefix(f.Path, "metadata") })},
		{"undescribed-free", "fields without a permission may be changed by everybody", keep(func(f enforcer.ChangedField) bool { return len(f.Chain) > 0 })},
		{"before-defaulting", "what was sent is compared with what is stored", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				if c.Old != nil && c.Sent != nil && c.Sent["kind"] != nil {
					c.New = c.Sent
				}
				return enforcer.ChangedFields(root, c)
			}
		}},
		{"defaults-on-creation", "defaults that nobody has sent are changes", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				if c.Old == nil {
					c.Sent = c.New
				}
				return enforcer.ChangedFields(root, c)
			}
		}},
		{"keys-ignored", "items of a list have no permission by their key", chained(func(c permissions.Chain) permissions.Chain {
			return slices.DeleteFunc(c, func(p permissions.Permission) bool {
				return strings.HasPrefix(p.Verb, "granular:part(") || strings.HasPrefix(p.Verb, "granular:condition(") || strings.HasPrefix(p.Verb, "granular:imageOf(")
			})
		})},
		{"any-key", "the permission of one item covers all of them", func(s *enforcer.Steps) {
			reference := s.Decide
			s.Decide = func(fields []enforcer.ChangedField, ask enforcer.Ask) (*enforcer.MissingPermission, error) {
				kinds := map[string]bool{}
				return reference(fields, func(verb string) (bool, error) {
					kind, _, parameterized := strings.Cut(verb, "(")
					allowed, err := ask(verb)
					allowed = allowed ||
						parameterized && kinds[kind]
					kinds[kind] = kinds[kind] || allowed
					return allowed, err
				})
			}
		}},
		{"most-general-only", "only the most general permission of a field counts", chained(func(c permissions.Chain) permissions.Chain { return c[:min(1, len(c))] })},
		{"most-specific-only", "only the most specific permission of a field counts", chained(func(c permissions.Chain) permissions.Chain { return c[max(0, len(c)-1):] })},
	}
}

// values returns enforcers that are wrong about excluded values.
func values() []faultyEnforcer {
	// described changes the descriptions for some changes.
	described := func(change func(*permissions.Field), where func(enforcer.Change) bool) func(*enforcer.Steps) {
		return func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				if where(c) {
					root = withFields(root, change)
				}
				return enforcer.ChangedFields(root, c)
			}
		}
	}
	forget := func(f *permissions.Field) { f.ExcludedValues = nil }
	always := func(enforcer.Change) bool { return true }
	isCreation := func(c enforcer.Change) bool { return c.Old == nil }
	return []faultyEnforcer{
		{"values-ignored", "the ordinary permission contains excluded values", described(forget, always)},
		{"values-all", "every change of a field with excluded values needs its permission", described(func(f *permissions.Field) {
			f.Excluded = f.Excluded || f.ExcludedValues != nil
		}, always)},
		{"values-before", "the value before the change is compared with the excluded ones", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				if c.Old == nil {
					return enforcer.ChangedFields(withFields(root, forget), c)
				}
				c.Old, c.New = c.New, c.Old
				return enforcer.ChangedFields(root, c)
			}
		}},
		{"values-first", "only the first excluded value of a field is known", described(func(f *permissions.Field) {
			f.ExcludedValues = f.ExcludedValues[:min(1, len(f.ExcludedValues))]
		}, always)},
		{"values-as-text", "excluded values are compared as text is, so numbers and booleans are never equal", described(func(f *permissions.Field) {
			f.ExcludedValues = slices.DeleteFunc(slices.Clone(f.ExcludedValues), func(v any) bool { return !isText(v) })
		}, always)},
		{"values-by-type", "numbers of other types in Go are never equal", described(func(f *permissions.Field) {
			f.ExcludedValues = slices.DeleteFunc(slices.Clone(f.ExcludedValues), isWhole)
		}, always)},
		{"values-on-update", "a created object may have excluded values", described(forget, isCreation)},
		{"values-sent", "excluded values are looked for in objects that are sent, and not in JSON patches", described(forget, func(c enforcer.Change) bool {
			return !isCreation(c) && c.Sent == nil
		})},
	}
}

func isText(v any) bool {
	_, is := v.(string)
	return is
}

func isWhole(v any) bool {
	_, is := v.(int64)
	return is
}

// decisions returns enforcers that ask for the right permissions in a wrong way.
func decisions() []faultyEnforcer {
	decide := func(d func([]enforcer.ChangedField, enforcer.Ask) (*enforcer.MissingPermission, error)) func(*enforcer.Steps) {
		return func(s *enforcer.Steps) { s.Decide = d }
	}
	return []faultyEnforcer{
		{"first-success", "one covered field is enough", decide(func(fields []enforcer.ChangedField, ask enforcer.Ask) (*enforcer.MissingPermission, error) {
			var last *enforcer.MissingPermission
			for _, f := range fields {
				missing, err := enforcer.Decide([]enforcer.ChangedField{f}, ask)
				if err != nil || missing == nil {
					return nil, err
				}
				last = missing
			}
			return last, nil
		})},
		{"field-by-field", "fields are checked one after the other, the general permissions again for each", decide(func(fields []enforcer.ChangedField, ask enforcer.Ask) (*enforcer.MissingPermission, error) {
			for _, f := range fields {
				if missing, err := enforcer.Decide([]enforcer.ChangedField{f}, ask); err != nil || missing != nil {
					return missing, err
				}
			}
			return nil, nil
		})},
		{"goes-on", "after the first failure the rest is asked for", decide(func(fields []enforcer.ChangedField, ask enforcer.Ask) (*enforcer.MissingPermission, error) {
			missing, err := enforcer.Decide(fields, ask)
			if err != nil || missing == nil {
				return nil, err
			}
			for _, f := range fields {
				for _, p := range f.Chain {
					if _, err := ask(p.Verb); err != nil {
						return nil, err
					}
				}
			}
			return missing, nil
		})},
		{"specific-first", "the most specific permission is asked for first", chained(func(c permissions.Chain) permissions.Chain {
			for i := range c {
				c[i].Depth = -c[i].Depth
			}
			return c
		})},
		{"names-the-field", "the message names the field", func(s *enforcer.Steps) {
			s.Message = func(_ *enforcer.Request, m *enforcer.MissingPermission) string {
				return fmt.Sprintf("forbidden: %s may not be changed", m.Field)
			}
		}},
	}
}

// questions returns enforcers that ask about something else.
func questions() []faultyEnforcer {
	ask := func(change func(*authorizer.AttributesRecord)) func(*enforcer.Steps) {
		return func(s *enforcer.Steps) {
			s.Attributes = func(r *enforcer.Request, verb string) authorizer.AttributesRecord {
				a := r.Attributes(verb)
				if strings.HasPrefix(verb, permissions.GeneralVerb) {
					change(&a)
				}
				return a
			}
		}
	}
	return []faultyEnforcer{
		{"no-name", "the authorizer is not told the object's name", ask(func(a *authorizer.AttributesRecord) { a.Name = "" })},
		{"no-subresource", "the authorizer is not told the subresource", ask(func(a *authorizer.AttributesRecord) { a.Subresource = "" })},
		{"no-namespace", "the authorizer is not told the namespace", ask(func(a *authorizer.AttributesRecord) { a.Namespace = "" })},
		{"field-paths", "the verbs are paths of fields", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				fields, err := enforcer.ChangedFields(root, c)
				for i, f := range fields {
					fields[i].Chain = append(slices.Clone(f.Chain), permissions.Permission{Verb: permissions.GeneralVerb + ":" + f.Path, Depth: 9})
				}
				return fields, err
			}
		}},
		{"treatment-ignored", "parameters are not treated", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				return enforcer.ChangedFields(untreated(root), c)
			}
		}},
		{"one-version", "the permissions of one version only are known", func(s *enforcer.Steps) {
			s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
				if c.New["apiVersion"] == "granular.authzconf.dev/v1beta1" || c.New["apiVersion"] == "autoscaling/v1" {
					root = &permissions.Node{Children: map[string]*permissions.Node{"spec": {Field: root.Children["spec"].Field}}}
				}
				return enforcer.ChangedFields(root, c)
			}
		}},
	}
}

// untreated is a tree without treatments.
func untreated(n *permissions.Node) *permissions.Node {
	return withFields(n, func(f *permissions.Field) {
		if f.Parameter != nil {
			p := *f.Parameter
			p.Treatment, f.Parameter = permissions.Verbatim, &p
		}
	})
}

// withFields returns a tree whose fields are changed.
func withFields(n *permissions.Node, change func(*permissions.Field)) *permissions.Node {
	out := &permissions.Node{Children: map[string]*permissions.Node{}}
	if n.Field != nil {
		f := *n.Field
		change(&f)
		out.Field = &f
	}
	for name, c := range n.Children {
		out.Children[name] = withFields(c, change)
	}
	return out
}
