package ga

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestGAQuestions compares ga.yaml with the catalogue. Each look is for one thing, and that thing exists.
func TestGAQuestions(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	var questions []question
	if err := yaml.UnmarshalStrict(questionsText, &questions); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, q := range questions {
		if q.Question == "" ||
			q.Part == "" ||
			len(q.Looks) == 0 && q.Missing == "" ||
			seen[q.Question] {
			t.Errorf("%q is not complete, or is there twice", q.Question)
		}
		seen[q.Question] = true
		for _, l := range q.Looks {
			kinds := 0
			for _, is := range []bool{l.Scenarios != "", l.Paths == "all" || l.Paths == "fault", l.Surface != "", l.Loads, l.AnyCluster, l.Findings} {
				if is {
					kinds++
				}
			}
			matches := false
			for _, s := range set.All() {
				matches = matches || regexp.MustCompile(l.Scenarios).MatchString(s.ID)
			}
			if kinds != 1 || l.Say == "" || !matches {
				t.Errorf("%q: the look %+v is for %d things, or finds nothing", q.Question, l, kinds)
			}
		}
	}
	if len(questions) != 34 {
		t.Errorf("%d criteria and questions, and the KEP has 9 and 25", len(questions))
	}
}

// TestAnyClusterRule checks which scenarios any cluster can run.
func TestAnyClusterRule(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	portable := 0
	for _, s := range set.All() {
		if s.OnAnyCluster() == "" {
			portable++
		}
	}
	if portable == 0 {
		t.Error("no scenario can run on any cluster")
	}
	t.Logf("%d of %d scenarios", portable, len(set.All()))
	for id, want := range map[string]string{
		"kep-5284/requests/watch-with-list-grant":                   "it expects a message",
		"kubernetes/chains/deny-is-not-final":                       "authorizer chain",
		"kubernetes/raw-headers/invalid-utf-8":                      "",
		"docs-user-impersonation/mode-index/legacy-stays-preferred": "document and servers differ",
		"kep-5284/modes/associated-node/both-grants":                "bound to a pod",
		"docs-user-impersonation/legacy/gate-off/user":              "gate",
	} {
		s, ok := set.Get(id)
		if !ok {
			t.Errorf("there is no %s", id)
		} else if why := s.OnAnyCluster(); !strings.Contains(why, want) || (why == "") != (want == "") {
			t.Errorf("%s: %q, want %q", id, why, want)
		}
	}
}

// TestGA answers from reports that count, and not from others.
func TestGA(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	run := func(verdict verdicts.Verdict) *reports.Report {
		return &reports.Report{Product: "conformance", Groups: []reports.Group{{
			Cell: &verdicts.Cell{Provider: "local", Gate: scenarios.GateOn}, Witness: &reports.Witness{GitVersion: "v1.37.1"},
			Cases: []reports.Result{
				{Case: "kubernetes/requests/self-subject-review", Verdict: verdict},
				{Case: "kubernetes/raw-headers/empty-user-before-another", Verdict: verdict},
				{Case: "kep-5284/cost/node/all-denied", Verdict: verdict},
			},
		}}}
	}
	for name, test := range map[string]struct {
		source Source
		want   []string
		not    string
	}{
		"passed":         {Source{Report: run(verdicts.Passed), Set: set}, []string{"v1.37.1, gate on: 1 of 1 passed [1]", "included: node/all-denied 5 then 5 [1]", "1 of 1 that were tried still happen; first-user-header-empty (medium) [1]"}, "0 of 1"},
		"failed":         {Source{Report: run(verdicts.Failed), Set: set}, []string{"v1.37.1, gate on: 0 of 1 passed [1]", "0 of 1 that were tried still happen [1]"}, "5 then 5"},
		"not run":        {Source{Report: run(verdicts.NotSupported), Set: set}, []string{"Of 34 criteria and questions, 0 are answered, 0 in part, and 34 are not"}, "[1]"},
		"does not count": {Source{Report: run(verdicts.Passed), Set: set, Problem: "was changed"}, []string{"**does not count**, was changed", "0 are answered"}, "[1]"},
		"a surface": {Source{Report: &reports.Report{Product: "surface", Groups: []reports.Group{{
			Name:    "gate-on",
			Cell:    &verdicts.Cell{Provider: "local", Gate: scenarios.GateOn},
			Witness: &reports.Witness{GitVersion: "v1.37.1"},
			Cases:   []reports.Result{{Case: "api-types", Verdict: verdicts.Passed, Details: []string{"78 documents"}}},
		}}}}, []string{"v1.37.1, gate on, api-types: passed. 78 documents [1]"}, "flags: passed"},
		"a storm": {Source{Loads: []string{"p99 4 ms"}}, []string{"p99 4 ms [1]"}, "v1.37.1"},
	} {
		text, err := Answer([]Source{test.source})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if strings.Contains(text, test.not) {
			t.Errorf("%s: %q is in\n%s", name, test.not, text)
		}
	}
}

// TestSwitches checks where a gate was turned off and on again.
func TestSwitches(t *testing.T) {
	stage := func(name string, state scenarios.Gate, v verdicts.Verdict) reports.Group {
		return reports.Group{
			Name:   name,
			Cell:   &verdicts.Cell{Name: name, FeatureGate: verdicts.FeatureGate{Name: "MyGate", Gate: state}},
			Target: &scenarios.Facts{FeatureGates: map[string]scenarios.Gate{"MyGate": state}},
			Cases:  []reports.Result{{Case: "a", Verdict: v}},
		}
	}
	s := Source{Report: &reports.Report{Groups: []reports.Group{
		stage("1", scenarios.GateOff, verdicts.Passed), stage("2", scenarios.GateOn, verdicts.Passed),
		stage("3", scenarios.GateOff, verdicts.Failed), stage("4", scenarios.GateOn, verdicts.Passed),
	}}}
	answers := s.Switches()
	if len(answers) != 2 || !strings.Contains(answers[0].Answer, "On stage 3 (") ||
		!strings.Contains(answers[0].Answer, "0 of 1 cases passed") ||
		!strings.Contains(answers[1].Answer, "On stage 4 (") {
		t.Errorf("%+v", answers)
	}
	for i := range s.Report.Groups {
		s.Report.Groups[i].Cell.FeatureGate = verdicts.FeatureGate{}
	}
	if answers := s.Switches(); answers != nil || s.OtherGate() != "" {
		t.Errorf("a path about ConstrainedImpersonation: %+v", answers)
	}
}
