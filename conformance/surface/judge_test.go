package surface

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// newSurface returns a surface with something in each part.
func newSurface() *Surface {
	return &Surface{
		Witness:    reports.Witness{GitVersion: "v1.37.1"},
		OpenAPI:    map[string]string{"api/v1": "AB"},
		Resources:  map[string]string{"/v1/pods": "get"},
		Flags:      map[string]string{"v": "-v"},
		Metrics:    map[string]string{"up": "up"},
		Objects:    map[string]int{"/registry/a": 1, certificates: 1971},
		Indicators: map[string]int{`verb="LIST"`: 100},
		After:      Process{Files: 9, Sockets: 5},
		Agents:     &Process{Sockets: 5},
	}
}

func TestComparisons(t *testing.T) {
	for name, test := range map[string]struct {
		gate       scenarios.Gate
		comparison string
		change     func(*Surface)
		want       string // empty for passed
	}{
		"nothing":                  {scenarios.GateOff, "metrics", func(*Surface) {}, ""},
		"a field":                  {scenarios.GateOn, "api-types", func(s *Surface) { s.OpenAPI["api/v1"] = "CD" }, "changed: api/v1"},
		"a resource":               {scenarios.GateOn, "api-resources", func(s *Surface) { s.Resources["/v1/x"] = "get" }, "added: /v1/x"},
		"a flag less":              {scenarios.GateOn, "flags", func(s *Surface) { delete(s.Flags, "v") }, "removed: v"},
		"no metrics":               {scenarios.GateOn, "metrics", func(*Surface) {}, "0 metrics of impersonation, expected 4"},
		"a metric too many":        {scenarios.GateOff, "metrics", func(s *Surface) { s.Metrics[impersonationPrefix+"x"] = "" }, "1 metric of impersonation, expected 0"},
		"a metric is deprecated":   {scenarios.GateOff, "metrics", func(s *Surface) { s.Metrics["up"] = "(Deprecated) up" }, "changed: up"},
		"an object grows":          {scenarios.GateOn, "objects", func(s *Surface) { s.Objects["/registry/a"]++ }, "from 1 to 2"},
		"another certificate":      {scenarios.GateOn, "objects", func(s *Surface) { s.Objects[certificates]++ }, ""},
		"no certificates":          {scenarios.GateOn, "objects", func(s *Surface) { delete(s.Objects, certificates) }, "removed: " + certificates},
		"a request is not counted": {scenarios.GateOn, "indicators", func(s *Surface) { s.Indicators[`verb="LIST"`]-- }, "from 100 to 99"},
		"a line is logged":         {scenarios.GateOn, "log", func(s *Surface) { s.Logged = []string{"E1 impersonation"} }, "E1 impersonation"},
		"a child":                  {scenarios.GateOn, "processes", func(s *Surface) { s.After.Children = 1 }, "has started 1 child, expected 0"},
		"sockets":                  {scenarios.GateOn, "processes", func(s *Surface) { s.After.Sockets += moreSockets + 1 }, "9 sockets more than before"},
		"an agent's socket":        {scenarios.GateOn, agentsComparison, func(s *Surface) { s.Agents = &Process{Sockets: 6} }, "agents have 6 sockets, expected 5"},
		"an agent's child":         {scenarios.GateOn, agentsComparison, func(s *Surface) { s.Agents = &Process{Sockets: 5, Children: 1} }, "agents have started 1 child, expected 0"},
		"no agents":                {scenarios.GateOn, agentsComparison, func(s *Surface) { s.Agents = nil }, "nothing was read of the agents"},
		"agents":                   {scenarios.GateOn, agentsComparison, func(*Surface) {}, ""},
		"a peer":                   {scenarios.GateOn, "connections", func(s *Surface) { s.After.Peers = []string{"192.0.2.1"} }, "192.0.2.1"},
	} {
		now := newSurface()
		now.Before = now.After
		test.change(now)
		got := judgeComparison(test.gate, test.comparison, newSurface(), now)
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
	got := parseFlags(
		"Usage:\n  x\n\nGeneric flags:\n\n      --alpha string\n                the first\n  -v, --v Level   the second\n\nOther flags:\n      --beta   DEPRECATED: gone\n",
	)
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

// TestPlanPath plans each stage of a path behind the same path with the gate off, and compares place by place.
func TestPlanPath(t *testing.T) {
	path, err := upgradepath.Parse("1.34,1.36,1.36-gate,1.37", upgradepath.Options{})
	if err != nil {
		t.Fatal(err)
	}
	targets, err := path.Targets(matrix.Matrix{Binaries: &local.Binaries{}})
	if err != nil {
		t.Fatal(err)
	}
	stages := planPath(targets)
	var got []string
	for _, s := range stages {
		got = append(got, strings.Join([]string{s.name, string(s.gate()), s.baseline}, " "))
	}
	want := []string{
		"baseline-1-1.34 off ",
		"baseline-2-1.36 off ",
		"baseline-3-1.36-gate-off off ",
		"baseline-4-1.37 off ",
		"1-1.34 off baseline-1-1.34",
		"2-1.36 on baseline-2-1.36",
		"3-1.36-gate-off off baseline-3-1.36-gate-off",
		"4-1.37 on baseline-4-1.37",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if !stages[0].isFirst || stages[1].isFirst || !stages[4].isFirst {
		t.Error("each sequence begins on an empty etcd, and stays on it")
	}
	if p := newPlan(stages, 1, 0); len(p.Cases()) != 4*(len(comparisons)-1) {
		t.Errorf("%d cases", len(p.Cases()))
	}
}

// TestFlags refuses what cannot be planned, each with one line.
func TestFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a version without the gate": {[]string{"--kubernetes=1.34"}, "does not have the gate"},
		"both":                       {[]string{"--kubernetes=1.37", "--path=1.36,1.37"}, "is given with --path"},
		"an authorizer chain":        {[]string{"--path=1.36,1.37/webhook-first"}, "stage 2"},
		"no stage":                   {[]string{"--path=1.36,,1.37"}, "stage 2 is empty"},
		"an unknown version":         {[]string{"--path=1.36,1.99"}, "1.99"},
		"no requests":                {[]string{"--requests=0"}, "expected at least 1"},
		"too many agents":            {[]string{"--agents=201"}, "expected 0 to 200"},
		"a path":                     {[]string{"--path=1.36,1.37"}, ""},
	} {
		set := pflag.NewFlagSet(name, pflag.ContinueOnError)
		f := newFlags(set)
		if err := set.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		_, err := f.Plan(&product.Invocation{})
		isRight := err != nil && strings.Contains(err.Error(), test.want)
		if test.want == "" {
			isRight = err == nil
		}
		if !isRight {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
