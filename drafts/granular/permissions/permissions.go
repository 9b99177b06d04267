// Package permissions describes which permission guards which field of an object, as KEP-3617 (Fine-Grained
// Authorization) would have it in the schema. No API server implements that KEP: what is here serves a reference
// enforcer, which stands before one, and a model to judge it by.
package permissions

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/scenarios"
)

// Descriptions holds those of the fields that KEP-3617 lists, and of the custom resource that the scenarios use.
//
//go:embed descriptions/*.yaml
var Descriptions embed.FS

// GeneralVerb is the permission to change those fields for which one has a permission
// of its own (KEP-3617, "API Server Additional Plumbing and Checks").
const GeneralVerb = "granular"

// Treatment is done to a parameter before it becomes part of a verb (KEP-3617, "Complete List of parameter treatments").
type Treatment string

const (
	// Verbatim leaves the parameter as it is.
	Verbatim Treatment = ""
	// SlashDelimitedPrefix takes what is before the first slash: all of it if there is none.
	SlashDelimitedPrefix Treatment = "slash-delimited-prefix"
)

// Apply is the treated parameter.
func (t Treatment) Apply(parameter string) string {
	if t == SlashDelimitedPrefix {
		parameter, _, _ = strings.Cut(parameter, "/")
	}
	return parameter
}

// Source says which part of the path of a field emits the parameter. It is that of the last "*" of the path.
type Source string

const (
	// MapKey is the key in a map.
	MapKey Source = "mapKey"
	// ItemValue is the item itself, in a list that is a set.
	ItemValue Source = "itemValue"
	// ItemKey is one of the fields by which the items of a list are told apart.
	ItemKey Source = "itemKey"
)

// Permission is one that covers a field.
type Permission struct {
	Verb string // what the authorizer is asked for
	// Depth is how long the path is that carries the permission: the shorter, the more general.
	Depth int
	// Excluded says that the ordinary permission does not contain this one.
	Excluded bool
}

// Chain is all the permissions of one field, from the most general to the most specific. Each of them alone covers
// the field; an empty one means that nothing granular does.
type Chain []Permission

// Has says whether one of the permissions has a verb of which something is true.
func (c Chain) Has(is func(verb string) bool) bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return is(p.Verb) })
}

// Excluded says whether the ordinary permission does not contain one of them.
func (c Chain) Excluded() bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return p.Excluded })
}

// Permission is that of a field whose parameter, if it has one, is p.
func (f *Field) Permission(p string) Permission {
	out := Permission{Verb: GeneralVerb + ":" + f.Verb, Depth: len(f.Segments()), Excluded: f.Excluded || slices.Contains(f.ExcludedItems, p)}
	if f.Parameter != nil {
		out.Verb += "(" + f.Parameter.Treatment.Apply(p) + ")"
	}
	return out
}

// Segments are the parts of the path.
func (f *Field) Segments() []string { return strings.Split(f.Path, ".") }

// Kind is the kind of a file of descriptions.
const Kind = "FieldPermissions"

// resource describes the fields of a resource in some of its versions. "*" stands for every group, version or resource.
type resource struct {
	Group    string   `yaml:"group"`
	Versions []string `yaml:"versions"`
	Resource string   `yaml:"resource"`
	Fields   []*Field `yaml:"fields"`
}

// Field is a field, or every item of a map or list, that carries a permission.
type Field struct {
	// Path is the names of fields from the root, joined by dots. "*" is every item.
	Path string `yaml:"path"`
	Verb string `yaml:"verb"` // the permission without what is put before and behind it
	// Excluded takes the field out of the ordinary permission.
	Excluded bool `yaml:"excluded"`
	// ExcludedItems are keys of a map that the ordinary permission does not contain, where it contains the others (KEP-3617,
	// "Levels of schema control", case 3). A resource may say so of a field that is described of every resource.
	ExcludedItems []string `yaml:"excludedItems"`
	// Parameter makes one permission of each key or item.
	Parameter *Parameter `yaml:"parameter"`
}

// Parameter says where the parameter of a verb comes from and what becomes of it.
type Parameter struct {
	Source    Source    `yaml:"source"`
	Key       string    `yaml:"key"` // the field that ItemKey means
	Treatment Treatment `yaml:"treatment"`
}

var (
	validSegment = regexp.MustCompile(`^([A-Za-z_$][A-Za-z0-9_$-]*|\*)$`)
	// validVerb is lowerCamelCase, without dots: no path of fields can be one of
	// several names (KEP-3617, "Style Guide / Consistency Help").
	validVerb = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	validName = regexp.MustCompile(`^(\*|[a-z][a-z0-9-]*)$`)
)

// Parse reads one file of descriptions. name is for messages.
func Parse(name string, data []byte) (*Set, error) {
	set := &Set{}
	y, err := scenarios.DecodeKind(name, data, "a file of field permissions", "", Kind, set)
	if err != nil {
		return nil, err
	}
	if len(set.Resources) == 0 {
		return nil, fmt.Errorf("%s: resources: expected at least one", y.At("$"))
	}
	for i, r := range set.Resources {
		at := fmt.Sprintf("$.resources[%d]", i)
		if err := checkResource(r); err != nil {
			return nil, fmt.Errorf("%s: %w", y.At(at), err)
		}
		root, seen := &Node{}, map[string]bool{}
		for j, field := range r.Fields {
			err := checkField(field, seen)
			if err == nil {
				err = root.add(field)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", y.At(fmt.Sprintf("%s.fields[%d]", at, j)), err)
			}
			seen[field.Path] = true
		}
	}
	if err := set.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

func checkResource(r resource) error {
	switch {
	case !validName.MatchString(r.Resource):
		return fmt.Errorf("resource is %q, expected the plural name of a resource, or *", r.Resource)
	case (r.Group == "*") != (r.Resource == "*"):
		return fmt.Errorf("group %q and resource %q: expected both to be *, or none", r.Group, r.Resource)
	case len(r.Versions) == 0 || len(r.Fields) == 0:
		return fmt.Errorf("resource %q: expected versions and fields", r.Resource)
	}
	return nil
}

func checkField(f *Field, seen map[string]bool) error {
	if f == nil {
		return fmt.Errorf("expected a field, with path and verb")
	}
	segments := f.Segments()
	for i, s := range segments {
		if !validSegment.MatchString(s) || i == 0 && s == "*" {
			return fmt.Errorf("path %q: expected names of fields, or * for items, joined by dots", f.Path)
		}
		// What tells the items of a list apart is said by the parameter of the items.
		if prefix := strings.Join(segments[:i+1], "."); s == "*" && i < len(segments)-1 && !seen[prefix] {
			return fmt.Errorf("path %q: expected %q to be described before it", f.Path, prefix)
		}
	}
	if !validVerb.MatchString(f.Verb) {
		return fmt.Errorf("path %q: verb is %q, expected lowerCamelCase", f.Path, f.Verb)
	}
	switch items := strings.HasSuffix(f.Path, ".*"); {
	case f.ExcludedItems != nil && (f.Excluded || !items || f.Parameter == nil || f.Parameter.Source != MapKey):
		return fmt.Errorf("path %q: excludedItems are keys of a map, expected a path that ends with * and a parameter of the source mapKey", f.Path)
	case items && f.Parameter == nil:
		return fmt.Errorf("path %q: expected a parameter, for each item has a permission of its own", f.Path)
	case f.Parameter == nil:
		return nil
	case !strings.Contains(f.Path, "*"):
		return fmt.Errorf("path %q: a parameter comes from an item, expected * in the path", f.Path)
	}
	return f.Parameter.check(f.Path)
}

func (p *Parameter) check(path string) error {
	switch {
	case !slices.Contains([]Source{MapKey, ItemValue, ItemKey}, p.Source):
		return fmt.Errorf("path %q: source is %q, expected mapKey, itemValue or itemKey", path, p.Source)
	case (p.Source == ItemKey) != (p.Key != ""):
		return fmt.Errorf("path %q: key is %q, expected one for itemKey and only then", path, p.Key)
	case p.Treatment != Verbatim && p.Treatment != SlashDelimitedPrefix:
		return fmt.Errorf("path %q: treatment is %q, expected %s or none", path, p.Treatment, SlashDelimitedPrefix)
	}
	return nil
}

// Load reads every description in a file system.
func Load(files fs.FS) (*Set, error) {
	resources, err := scenarios.LoadAll(files, ".yaml", func(name string, data []byte) ([]resource, error) {
		set, err := Parse(name, data)
		if err != nil {
			return nil, err
		}
		return set.Resources, nil
	})
	if err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return nil, fmt.Errorf("it contains no descriptions (expected .yaml files of the kind %s)", Kind)
	}
	all := &Set{Resources: resources}
	return all, all.check()
}

// Set is descriptions of resources, as a file has them.
type Set struct {
	Kind        string     `yaml:"kind" json:"-"`
	Description string     `yaml:"description" json:"-"`
	Resources   []resource `yaml:"resources" json:"resources"`
}

// Node is a place in an object: a field, or every item of a map or list.
type Node struct {
	Field    *Field           // what is described here, or nil
	Children map[string]*Node // by name; "*" stands for every item, and then is alone
}

// Child is the node of a field or an item; nil if nothing is described there or below.
func (n *Node) Child(name string) *Node {
	if items := n.Items(); items != nil || n == nil {
		return items
	}
	return n.Children[name]
}

// Items is the node of every item of a map or list, or nil.
func (n *Node) Items() *Node {
	if n == nil {
		return nil
	}
	return n.Children["*"]
}

// Excluded says whether something in the tree is not contained in the ordinary permission.
func (n *Node) Excluded() bool {
	return n.Field != nil && (n.Field.Excluded || n.Field.ExcludedItems != nil) || slices.ContainsFunc(slices.Collect(maps.Values(n.Children)), (*Node).Excluded)
}

// Tree is what is described of a resource in one version: that of every resource, and its own.
func (s *Set) Tree(group, version, resource string) *Node {
	root, _ := s.tree(group, version, resource) // checked when it was loaded
	return root
}

func (s *Set) tree(group, version, resource string) (*Node, error) {
	root := &Node{}
	for _, f := range s.Fields(group, version, resource) {
		if err := root.add(f); err != nil {
			return root, fmt.Errorf("%s in version %s: %w", resource, version, err)
		}
	}
	return root, nil
}

// Fields are the descriptions that apply to a resource in one version.
func (s *Set) Fields(group, version, name string) (out []*Field) {
	for _, r := range s.Resources {
		if (r.Group == "*" || r.Group == group && r.Resource == name) &&
			(slices.Contains(r.Versions, version) || slices.Contains(r.Versions, "*")) {
			out = append(out, r.Fields...)
		}
	}
	return out
}

func (s *Set) check() error {
	for _, r := range s.Resources {
		for _, version := range r.Versions {
			if _, err := s.tree(r.Group, version, r.Resource); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) add(f *Field) error {
	for _, s := range f.Segments() {
		if n.Children == nil {
			n.Children = map[string]*Node{}
		}
		if n.Children[s] == nil {
			if len(n.Children) > 0 && (s == "*" || n.Children["*"] != nil) {
				return fmt.Errorf("path %q: names and * in one place, expected either", f.Path)
			}
			n.Children[s] = &Node{}
		}
		n = n.Children[s]
	}
	if n.Field != nil && (n.Field.Verb != f.Verb || f.ExcludedItems == nil) {
		return fmt.Errorf("path %q: described twice", f.Path)
	}
	n.Field = f
	return nil
}

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
	// Around are the names of the fields around the key, or to the field; Verbs the field's permissions, most general first.
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
