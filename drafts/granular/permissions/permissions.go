// Package permissions describes which permission guards which field of an object, as KEP-3617 (Fine-Grained
// Authorization) would have it in the schema. No API server implements that KEP: what is here serves a reference
// enforcer, which stands before one, and a model to judge it by.
package permissions

import (
	"embed"
	"slices"
	"strings"
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

// Apply returns the treated parameter.
func (t Treatment) Apply(parameter string) string {
	if t == SlashDelimitedPrefix {
		parameter, _, _ = strings.Cut(parameter, "/")
	}
	return parameter
}

// Source is the part of the path of a field that emits the parameter. It is that of the last "*" of the path.
type Source string

const (
	// MapKey is the key in a map.
	MapKey Source = "mapKey"
	// ItemValue is the item itself, in a list that is a set.
	ItemValue Source = "itemValue"
	// ItemKey is one of the fields by which the items of a list are told apart.
	ItemKey Source = "itemKey"
)

// Permission is a permission that covers a field.
type Permission struct {
	Verb string // what the authorizer is asked for
	// Depth is how long the path is that carries the permission: the shorter, the more general.
	Depth int
	// Excluded is set if the ordinary permission does not contain this one.
	Excluded bool
}

// Chain is all the permissions of one field, from the most general to the most specific. Each of them alone covers the
// field. If the chain is empty, no granular permission does.
type Chain []Permission

// Has reports whether one of the permissions has a verb that matches.
func (c Chain) Has(matches func(verb string) bool) bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return matches(p.Verb) })
}

// Excluded reports whether the ordinary permission does not contain one of them.
func (c Chain) Excluded() bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return p.Excluded })
}

// Permission returns the permission of a field whose parameter, if it has one, is p.
func (f *Field) Permission(p string) Permission {
	out := Permission{Verb: GeneralVerb + ":" + f.Verb, Depth: len(f.Segments()), Excluded: f.Excluded || slices.Contains(f.ExcludedItems, p)}
	if f.Parameter != nil {
		out.Verb += "(" + f.Parameter.Treatment.Apply(p) + ")"
	}
	return out
}

// Segments returns the parts of the path.
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

// Set is descriptions of resources, as a file has them.
type Set struct {
	Kind        string     `yaml:"kind" json:"-"`
	Description string     `yaml:"description" json:"-"`
	Resources   []resource `yaml:"resources" json:"resources"`
}
