package permissions

import (
	"slices"
	"strings"
)

// Treatment is what is done to a parameter before it becomes part of a verb
// (KEP-3617, "Complete List of parameter treatments").
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
	// Verb is what the authorizer is asked for.
	Verb string
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
	out := Permission{Verb: GeneralVerb + ":" + f.Verb, Depth: len(f.Segments()), Excluded: f.Excluded}
	if f.Parameter != nil {
		out.Verb += "(" + f.Parameter.Treatment.Apply(p) + ")"
	}
	return out
}

// Segments are the parts of the path.
func (f *Field) Segments() []string { return strings.Split(f.Path, ".") }
