package markers

import "fmt"

// mark is the value of a marker, with the file and the line that have it.
type mark struct{ value, at string }

// marks are the markers of one place in a schema.
type marks map[markerName]mark

// add adds a marker. It refuses a second one of the same name.
func (m marks) add(n markerName, value, at, prefix string) error {
	if first, isThere := m[n]; isThere {
		return fmt.Errorf("%s: %s%s is given twice, expected it once (the first is at %s)", at, prefix, n, first.at)
	}
	m[n] = mark{value, at}
	return nil
}

// merge adds the markers of a type to those of a field that has the type, or of a type that is declared by it. One
// place has one permission, so both may not give different ones.
func (m marks) merge(ofType marks) error {
	for n, typeMark := range ofType {
		ownMark, isThere := m[n]
		if isThere && ownMark.value != typeMark.value {
			return fmt.Errorf(
				"%s: %s%s is %q, and %q for the type at %s (expected one of them)",
				ownMark.at,
				commentPrefix,
				n,
				ownMark.value,
				typeMark.value,
				typeMark.at,
			)
		}
		if !isThere {
			m[n] = typeMark
		}
	}
	return nil
}

// check refuses markers that have no effect without another one.
func (m marks) check(prefix string) error {
	for _, rule := range []struct{ of, needs markerName }{
		{permissionExcluded, permissionVerb}, {excludedValues, permissionVerb},
		{parameterizedBy, permissionVerb}, {parameterTreatment, parameterizedBy},
	} {
		needing, has := m[rule.of]
		if _, isThere := m[rule.needs]; has && !isThere {
			return fmt.Errorf("%s: %s%s has no effect alone, expected %s%s beside it", needing.at, prefix, rule.of, prefix, rule.needs)
		}
	}
	return nil
}
