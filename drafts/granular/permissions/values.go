package permissions

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// isExcluded reports whether the ordinary permission does not contain a change of the field. isNow reports whether a
// value is what the field has after the change. The value before the change does not count: the KEP is about users who
// "must not be able to set this to true".
func (f *Field) isExcluded(parameter string, isNow func(value any) bool) bool {
	if f.Excluded || !f.excludes() {
		return f.Excluded
	}
	isItem := f.ExcludedItems == nil || slices.Contains(f.ExcludedItems, parameter)
	isValue := f.ExcludedValues == nil || slices.ContainsFunc(f.ExcludedValues, isNow)
	return isItem && isValue
}

// checkValues checks the excluded values of a field.
func (f *Field) checkValues() error {
	isItem := strings.HasSuffix(f.Path, ".*")
	switch {
	case f.ExcludedValues == nil:
		return nil
	case f.Excluded:
		return fmt.Errorf(
			"path %q: excluded and excludedValues, expected either: an excluded field is excluded whatever its value is",
			f.Path,
		)
	case len(f.ExcludedValues) == 0:
		return fmt.Errorf("path %q: excludedValues is empty, expected at least one value", f.Path)
	case isItem && len(f.ExcludedItems) == 0:
		return fmt.Errorf(
			"path %q: expected excludedItems beside excludedValues, for only the values of named keys can be excluded",
			f.Path,
		)
	}
	seen := map[string]bool{}
	for _, v := range f.ExcludedValues {
		text, err := literal(v)
		switch {
		case err != nil:
			return fmt.Errorf("path %q: excludedValues: %w", f.Path, err)
		case seen[text]:
			return fmt.Errorf("path %q: excludedValues has %s twice", f.Path, text)
		}
		seen[text] = true
	}
	return nil
}

// maxExact is the largest number up to which a float64 has every whole number.
const maxExact = 1 << 53

// literal returns a scalar of JSON as CEL and people write it. Equal numbers have the same literal, whatever their types
// are.
func literal(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v), nil
	case bool, int64:
		return fmt.Sprint(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= maxExact {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	}
	text, _ := json.Marshal(v)
	return "", fmt.Errorf("%s is not a scalar (expected strings, booleans and numbers)", text)
}

// literals returns the excluded values of a field as text.
func (f *Field) literals() (out []string) {
	for _, v := range f.ExcludedValues {
		text, _ := literal(v) // errors were found when the field was loaded
		out = append(out, text)
	}
	return out
}
