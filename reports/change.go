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

// same compares what two values say: an empty list is as good as none.
func same(a, b any) bool { return reflect.DeepEqual(generic(a), generic(b)) }

// changeTo returns the first place at which two values differ in words, for example "reason: the report says x, the
// command line y".
func changeTo(other string, report, says any) string {
	where, a, b := firstChange("", generic(report), generic(says))
	return fmt.Sprintf("%s: the report says %s, %s %s", strings.TrimPrefix(where, "."), brief(a), other, brief(b))
}

// FirstChange returns the first place at which two decoded JSON values differ, and what is there.
func FirstChange(a, b any) (where, left, right string) {
	at, x, y := firstChange("", a, b)
	return at, brief(x), brief(y)
}

// Change is how evidence is not of what the command line asks for; empty if it is.
func Change(evidence, asked any) string {
	if same(evidence, asked) {
		return ""
	}
	where, a, b := firstChange("", generic(evidence), generic(asked))
	return fmt.Sprintf("%s: it has %s, the command line asks for %s", strings.TrimPrefix(where, "."), brief(a), brief(b))
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

func firstChange(at string, a, b any) (where string, left, right any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if !reflect.DeepEqual(x[k], y[k]) {
				return firstChange(at+"."+k, x[k], y[k])
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok {
			break
		}
		for i := range min(len(x), len(y)) {
			if !reflect.DeepEqual(x[i], y[i]) {
				return firstChange(fmt.Sprintf("%s[%d]", at, i), x[i], y[i])
			}
		}
		if len(x) > len(y) {
			return fmt.Sprintf("%s[%d]", at, len(y)), x[len(y)], nil
		}
		if len(y) > len(x) {
			return fmt.Sprintf("%s[%d]", at, len(x)), nil, y[len(x)]
		}
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
