package scenarios

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandRange(t *testing.T) {
	for item, want := range map[string][]string{
		"team":              {"team"},
		"team-{08..11}":     {"team-08", "team-09", "team-10", "team-11"},
		"{9..10}-x":         {"9-x", "10-x"},
		"--as-group={1..1}": {"--as-group=1"},
		"a{3}":              {"a{3}"},
		"a{1,2}":            {"a{1,2}"},
	} {
		if got, problem := expandRange(item); problem != "" || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %s", item, got, problem)
		}
	}
	for item, want := range map[string]string{"{2..1}": "0 values", "{1..32769}": "32769 values", "{0..999999999}": "1000000000 values"} {
		if got, problem := expandRange(item); got != nil || !strings.Contains(problem, want) {
			t.Errorf("%s: got %d texts, %q", item, len(got), problem)
		}
	}
}
