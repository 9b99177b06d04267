package markers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// markerName is the part of a marker after its prefix, which is +permission- in a comment and x-kubernetes-permission- in the
// schema of a CustomResourceDefinition.
type markerName string

// The markers of KEP-3617, and excluded and excluded-values, which are ours.
const (
	permissionVerb     markerName = "verb"
	excludedValues     markerName = "excluded-values"
	permissionExcluded markerName = "excluded"
	parameterSource    markerName = "parameter-source"
	parameterizedBy    markerName = "parameterized-by"
	parameterTreatment markerName = "parameter-treatment"
)

// forms has the form of the value of each marker. A marker without a form has no value.
var forms = map[markerName]struct {
	form     *regexp.Regexp
	expected string
}{
	permissionVerb:     {regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`), "a name in lowerCamelCase"},
	permissionExcluded: {},
	excludedValues:     {regexp.MustCompile(`^\[.+\]$`), `a list as in JSON, such as [true] or ["a", "b"]`},
	parameterSource:    {validParameter, "the name of a parameter, such as label-key"},
	parameterizedBy:    {validParameter, "the name of a parameter, such as label-key"},
	parameterTreatment: {regexp.MustCompile(`^slash-delimited-prefix$`), "slash-delimited-prefix, or no treatment at all"},
}

var validParameter = regexp.MustCompile(`^[a-z][a-zA-Z0-9-]*$`)

// checkName refuses the name of a marker that does not exist. prefix is for the message.
func checkName(prefix string, n markerName) error {
	if _, isKnown := forms[n]; isKnown {
		return nil
	}
	var names []string
	for _, other := range slices.Sorted(maps.Keys(forms)) {
		names = append(names, prefix+string(other))
	}
	return fmt.Errorf("unknown marker %s%s, expected one of %s", prefix, n, strings.Join(names, ", "))
}

// checkValue refuses a value that does not have the form of its marker.
func checkValue(prefix string, n markerName, value string) error {
	if form := forms[n].form; form != nil && !form.MatchString(value) {
		return fmt.Errorf("%s%s is %q, expected %s", prefix, n, value, forms[n].expected)
	}
	return nil
}

// commentPrefix is the prefix of markers in the comments of Go.
const commentPrefix = "+permission-"

// marker is a marker of a permission in a comment.
type marker struct {
	name  markerName
	value string
}

// isMarker reports whether a line of a comment is meant as a marker of a permission.
func isMarker(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), commentPrefix) }

// parseMarker reads a line of a comment that is a marker of a permission. Its value stands after a colon: between double
// quotes, or as a bare word, since the KEP has both.
func parseMarker(line string) (marker, error) {
	text := strings.TrimSpace(line)
	before, value, hasValue := strings.Cut(strings.TrimPrefix(text, commentPrefix), ":")
	m := marker{name: markerName(before)}
	if before, _, hasEquals := strings.Cut(before, "="); hasEquals && checkName(commentPrefix, markerName(before)) == nil {
		return marker{}, fmt.Errorf("%s: expected : before the value, not =", text)
	}
	if err := checkName(commentPrefix, m.name); err != nil {
		return marker{}, err
	}
	takesValue := forms[m.name].form != nil
	switch {
	case hasValue && !takesValue:
		return marker{}, fmt.Errorf("%s: expected %s%s without a value", text, commentPrefix, m.name)
	case !hasValue && takesValue:
		return marker{}, fmt.Errorf("%s: expected : and %s", text, forms[m.name].expected)
	}
	if strings.HasPrefix(value, `"`) {
		unquoted, err := strconv.Unquote(value)
		if err != nil {
			return marker{}, fmt.Errorf("%s: expected a value in double quotes and nothing after it", text)
		}
		value = unquoted
	}
	m.value = value
	return m, checkValue(commentPrefix, m.name, m.value)
}

// String returns the marker as a line of a comment.
func (m marker) String() string {
	if forms[m.name].form == nil {
		return commentPrefix + string(m.name)
	}
	return commentPrefix + string(m.name) + ":" + strconv.Quote(m.value)
}
