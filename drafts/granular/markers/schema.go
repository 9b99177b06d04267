package markers

import (
	"slices"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// schema is a type with its markers, as it is used at one place of an object. Both readers make schemas: of Go types
// and of CustomResourceDefinitions.
type schema struct {
	marks marks
	// ownSource is the marker of a parameter's source that stands at this place, and not at its type. There it must
	// have an effect.
	ownSource mark
	fields    []field
	// items is the schema of each item of a map or list.
	items *schema
	// itemsBy says what identifies an item. It is empty for a list that is atomic.
	itemsBy permissions.Source
	// listKeys are the fields that identify an item of a list.
	listKeys []string
	// keySource is the source of a parameter that the keys of a map are.
	keySource mark
	// atomic is set for a map or struct that is compared as a whole.
	atomic bool
}

// field is a field of an object, by its name in JSON.
type field struct {
	name   string
	schema *schema
}

// field returns the schema of a field, or nil.
func (s *schema) field(name string) *schema {
	for _, f := range s.fields {
		if f.name == name {
			return f.schema
		}
	}
	return nil
}

// hasPermissionBelow reports whether something in the schema has a permission.
func (s *schema) hasPermissionBelow() bool {
	inside := []*schema{}
	if s.items != nil {
		inside = append(inside, s.items)
	}
	for _, f := range s.fields {
		inside = append(inside, f.schema)
	}
	return slices.ContainsFunc(inside, func(s *schema) bool {
		_, has := s.marks[permissionVerb]
		return has || s.hasPermissionBelow()
	})
}

// root is the schema of a resource in one version.
type root struct {
	group, version, resource string
	// noGroup is the error of finding the group. It counts only if the resource has permissions.
	noGroup error
	schema  *schema
	// at is the file and the line that declare it.
	at string
}
