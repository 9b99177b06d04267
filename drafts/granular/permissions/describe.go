package permissions

import (
	"fmt"
	"reflect"
	"slices"
)

// Description describes the fields of a resource in one version, as a program found them in a schema.
type Description struct {
	Group, Version, Resource string
	Fields                   []*Field
}

// Describe returns the set of some descriptions. They are checked as those of a file are. For the message of an error
// place returns where something comes from; its path is the one in a file that has one resource for each description,
// such as $.resources[0].fields[2]. Versions of a resource that have the same fields become one resource of the set.
func Describe(description string, all []Description, place func(path string) string) (*Set, error) {
	set, knownVerbs := &Set{Kind: Kind, Description: description}, verbs{}
	for i, d := range all {
		r := resource{Group: d.Group, Versions: []string{d.Version}, Resource: d.Resource, Fields: d.Fields}
		if at, err := checkResource(r, fmt.Sprintf("$.resources[%d]", i), knownVerbs); err != nil {
			return nil, fmt.Errorf("%s: %w", place(at), err)
		}
		set.merge(r)
	}
	if err := set.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", place("$.resources"), err)
	}
	return set, nil
}

// merge adds a resource, or only its versions if the set has the same fields of it already.
func (s *Set) merge(r resource) {
	i := slices.IndexFunc(s.Resources, func(have resource) bool {
		isSame := have.Group == r.Group && have.Resource == r.Resource
		return isSame && reflect.DeepEqual(have.Fields, r.Fields)
	})
	if i < 0 {
		s.Resources = append(s.Resources, r)
		return
	}
	s.Resources[i].Versions = append(s.Resources[i].Versions, r.Versions...)
}
