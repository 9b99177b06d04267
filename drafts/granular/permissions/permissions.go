// Package permissions describes which permission guards which field of an object, as the schema would in KEP-3617
// (Fine-Grained Authorization). No API server implements that KEP. This package is used by a reference enforcer, which
// is a proxy before an API server, and by a model that judges the enforcer.
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

// GeneralVerb is the permission to change those fields for which the actor has a permission of their own (KEP-3617,
// "API Server Additional Plumbing and Checks").
const GeneralVerb = "granular"

// Treatment changes a parameter before it becomes part of a verb (KEP-3617, "Complete List of parameter treatments").
type Treatment string

const (
	// Verbatim leaves the parameter unchanged.
	Verbatim Treatment = ""
	// SlashDelimitedPrefix takes the part before the first slash, or the whole parameter if it has no slash.
	SlashDelimitedPrefix Treatment = "slash-delimited-prefix"
)

// Apply returns the treated parameter.
func (t Treatment) Apply(parameter string) string {
	if t == SlashDelimitedPrefix {
		parameter, _, _ = strings.Cut(parameter, "/")
	}
	return parameter
}

// Source says from where the parameter is taken. The parameter belongs to the last "*" of the path of a field.
type Source string

const (
	// MapKey is the key in a map.
	MapKey Source = "mapKey"
	// ItemValue is the item itself, in a list that is a set.
	ItemValue Source = "itemValue"
	// ItemKey is one of the fields by which the items of a list are identified.
	ItemKey Source = "itemKey"
)

// Permission is a permission that covers a field.
type Permission struct {
	Verb string // the verb that the authorizer is asked for
	// Depth is the length of the path that has the permission. A shorter path has a more general permission.
	Depth int
	// Excluded is set if the ordinary permission does not contain the change of the field of this permission.
	Excluded bool
}

// Chain has all permissions of one field, from the most general to the most specific. Each of them alone covers the
// field. If the chain is empty, no granular permission covers it.
type Chain []Permission

// Has reports whether one of the permissions has a verb that matches.
func (c Chain) Has(matches func(verb string) bool) bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return matches(p.Verb) })
}

// Excluded reports whether the ordinary permission does not contain one of them.
func (c Chain) Excluded() bool {
	return slices.ContainsFunc(c, func(p Permission) bool { return p.Excluded })
}

// Permission returns the permission that a change of a field needs. parameter is its parameter, if it has one. isNow
// reports whether a value is what the field has after the change, if it has one.
func (f *Field) Permission(parameter string, isNow func(value any) bool) Permission {
	return Permission{Verb: f.verb(parameter), Depth: len(f.Segments()), Excluded: f.isExcluded(parameter, isNow)}
}

// verb returns the verb of a field whose parameter, if it has one, is p.
func (f *Field) verb(p string) string {
	verb := GeneralVerb + ":" + f.Verb
	if f.Parameter != nil {
		verb += "(" + f.Parameter.Treatment.Apply(p) + ")"
	}
	return verb
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
	// Embeds are resources whose fields this one has too, below a path.
	Embeds []embedding `yaml:"embeds"`
}

// Field is a field, or every item of a map or list, that carries a permission.
type Field struct {
	// Path is the names of fields from the root, joined by dots. "*" is every item.
	Path string `yaml:"path"`
	Verb string `yaml:"verb"` // the permission without its prefix and its parameter
	// Excluded excludes the field from the ordinary permission.
	Excluded bool `yaml:"excluded"`
	// ExcludedItems are keys of a map that the ordinary permission does not contain, although it contains the other
	// keys (KEP-3617, "Levels of schema control", case 3). A resource may have ExcludedItems of a field that is
	// described for every resource.
	ExcludedItems []string `yaml:"excludedItems"`
	// ExcludedValues are scalars to which the ordinary permission does not contain a change, although it contains the
	// other changes of the field (KEP-3617, "Levels of schema control", case 1). Beside ExcludedItems, they are values of
	// these keys.
	ExcludedValues []any `yaml:"excludedValues"`
	// Parameter gives each key or item a permission of its own.
	Parameter *Parameter `yaml:"parameter"`
}

// Parameter says from where the parameter of a verb is taken, and how it is changed.
type Parameter struct {
	Source    Source    `yaml:"source"`
	Key       string    `yaml:"key"` // the name of the field, for the source ItemKey
	Treatment Treatment `yaml:"treatment"`
}

// Set is a set of descriptions of resources, as in a file.
type Set struct {
	Kind        string     `yaml:"kind" json:"-"`
	Description string     `yaml:"description" json:"-"`
	Resources   []resource `yaml:"resources" json:"resources"`
}
