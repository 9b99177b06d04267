package reports

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports/record"
)

// same reports whether two values are the same as JSON, where an omitted list equals an empty one.
func same(a, b any) bool { return reflect.DeepEqual(generic(a), generic(b)) }

// changeTo returns in words the first place at which two values differ, for example "reason: the report says x, the
// command line y".
func changeTo(other string, report, says any) string {
	path, a, b := findChange("", generic(report), generic(says))
	return fmt.Sprintf("%s: the report says %s, %s %s", strings.TrimPrefix(path, "."), brief(a), other, brief(b))
}

// FirstChange returns the first place at which two decoded JSON values differ, and both values there.
func FirstChange(a, b any) (path, left, right string) {
	at, x, y := findChange("", a, b)
	return at, brief(x), brief(y)
}

// Change returns in words the first place at which evidence differs from what the command line asks for, or "" if there
// is none.
func Change(evidence, requested any) string {
	if same(evidence, requested) {
		return ""
	}
	path, a, b := findChange("", generic(evidence), generic(requested))
	return fmt.Sprintf("%s: it has %s, the command line asks for %s", strings.TrimPrefix(path, "."), brief(a), brief(b))
}

func generic(v any) (out any) {
	raw, err := record.EncodeJSON(v, "")
	if err != nil {
		return err.Error()
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return err.Error()
	}
	return out
}

// findChange returns the path of the first place, below the path at, at which two decoded JSON values differ, and both
// values there.
func findChange(at string, a, b any) (path string, left, right any) {
	if x, y, both := castBoth[map[string]any](a, b); both {
		return firstChangedKey(at, x, y)
	}
	if x, y, both := castBoth[[]any](a, b); both {
		return firstChangedElement(at, x, y)
	}
	return at, a, b
}

func castBoth[T any](a, b any) (x, y T, both bool) {
	x, isX := a.(T)
	y, isY := b.(T)
	return x, y, isX && isY
}

func firstChangedKey(at string, a, b map[string]any) (path string, left, right any) {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !reflect.DeepEqual(a[k], b[k]) {
			return findChange(at+"."+k, a[k], b[k])
		}
	}
	return at, a, b
}

func firstChangedElement(at string, a, b []any) (path string, left, right any) {
	shared := min(len(a), len(b))
	for i := range shared {
		if !reflect.DeepEqual(a[i], b[i]) {
			return findChange(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])
		}
	}
	next := fmt.Sprintf("%s[%d]", at, shared)
	switch {
	case len(a) > shared:
		return next, a[shared], nil
	case len(b) > shared:
		return next, nil, b[shared]
	}
	return at, a, b
}

func brief(v any) string {
	if v == nil {
		return "nothing"
	}
	raw, err := record.EncodeJSON(v, "")
	if err != nil {
		return err.Error()
	}
	return Ellipsis(strings.TrimSpace(string(raw)), 200)
}
