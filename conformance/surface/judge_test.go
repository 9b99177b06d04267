package surface

import (
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// newSurface returns a surface with something in each part.
func newSurface() *Surface {
	return &Surface{
		Witness: reports.Witness{GitVersion: "v1.37.1"}, OpenAPI: map[string]string{"api/v1": "AB"}, Resources: map[string]string{"/v1/pods": "get"},
		Flags: map[string]string{"v": "-v"}, Metrics: map[string]string{"up": "up"}, Objects: map[string]int{"/registry/a": 1},
		Indicators: map[string]int{`verb="LIST"`: 100}, After: Process{Files: 9, Sockets: 5},
	}
}

func TestComparisons(t *testing.T) {
	for name, test := range map[string]struct {
		group, comparison string
		change            func(*Surface)
		want              string // empty for passed
	}{
		"nothing":                  {"gate-off-again", "metrics", func(*Surface) {}, ""},
		"a field":                  {"gate-on", "api-types", func(s *Surface) { s.OpenAPI["api/v1"] = "CD" }, "changed: api/v1"},
		"a resource":               {"gate-on", "api-resources", func(s *Surface) { s.Resources["/v1/x"] = "get" }, "added: /v1/x"},
		"a flag less":              {"gate-on", "flags", func(s *Surface) { delete(s.Flags, "v") }, "removed: v"},
		"no metrics":               {"gate-on", "metrics", func(*Surface) {}, "0 metrics of impersonation, expected 4"},
		"a metric too many":        {"gate-off-again", "metrics", func(s *Surface) { s.Metrics[impersonationPrefix+"x"] = "" }, "1 metric of impersonation, expected 0"},
		"a metric is deprecated":   {"gate-off-again", "metrics", func(s *Surface) { s.Metrics["up"] = "(Deprecated) up" }, "changed: up"},
		"an object grows":          {"gate-on", "objects", func(s *Surface) { s.Objects["/registry/a"]++ }, "from 1 to 2"},
		"a request is not counted": {"gate-on", "indicators", func(s *Surface) { s.Indicators[`verb="LIST"`]-- }, "from 100 to 99"},
		"a line is logged":         {"gate-on", "log", func(s *Surface) { s.Logged = []string{"E1 impersonation"} }, "E1 impersonation"},
		"a child":                  {"gate-on", "processes", func(s *Surface) { s.After.Children = 1 }, "has started 1 child, expected 0"},
		"sockets":                  {"gate-on", "processes", func(s *Surface) { s.After.Sockets += moreSockets + 1 }, "9 sockets more than before"},
		"a peer":                   {"gate-on", "connections", func(s *Surface) { s.After.Peers = []string{"192.0.2.1"} }, "192.0.2.1"},
	} {
		now := newSurface()
		now.Before = now.After
		test.change(now)
		got := judgeComparison(test.group, test.comparison, newSurface(), now)
		isRight := got.Verdict == verdicts.Failed && strings.Contains(got.Reason, test.want)
		if test.want == "" {
			isRight = got.Verdict == verdicts.Passed
		}
		if !isRight {
			t.Errorf("%s: got %s, %q, want %q", name, got.Verdict, got.Reason, test.want)
		}
	}
}

func TestParseFlags(t *testing.T) {
	got := parseFlags("Usage:\n  x\n\nGeneric flags:\n\n      --alpha string\n                the first\n  -v, --v Level   the second\n\nOther flags:\n      --beta   DEPRECATED: gone\n")
	if len(got) != 3 || !strings.Contains(got["alpha"], "the first") || strings.Contains(got["v"], "Other") || countDeprecated(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestReadProcess(t *testing.T) {
	got, err := readProcess(os.Getpid())
	if err != nil || got.Threads < 1 || got.Files < 1 || got.Memory < 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}
