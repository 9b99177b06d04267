package main

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func TestIssue(t *testing.T) {
	official := reports.Program{Name: reports.KubeAPIServer, Version: "1.37.1", Origin: "official release, digest pinned", SHA256: "aa"}
	tree := reports.Program{
		Name:    reports.KubeAPIServer,
		Version: "1.38.0+source.0",
		Origin:  "built from a source tree",
		Source:  "commit 0123",
		SHA256:  "bb",
	}
	d := &conformance.BehaviourDiff{
		Compared: 7,
		From: conformance.SideFacts{
			GitVersion: "v1.37.1",
			Kubernetes: "1.37.1",
			Gate:       scenarios.GateOn,
			Programs:   []reports.Program{official},
		},
		To: conformance.SideFacts{
			GitVersion: "v1.38.0+source.0",
			Kubernetes: "1.38.0+source.0",
			Gate:       scenarios.GateOn,
			Programs:   []reports.Program{tree},
		},
		Changed: []conformance.ScenarioDiff{
			{Scenario: "kep/a", A: verdicts.Passed, B: verdicts.Failed, Description: "What *a* shows.", Lines: []string{"  same", "- before", "+ after"}},
			{Scenario: "kep/b", A: verdicts.Passed, B: verdicts.Passed, IsChance: true, Lines: []string{"- one", "+ other"}},
		},
	}
	text, err := describeIssue(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# kube-apiserver v1.38.0+source.0 does 1 scenario differently than v1.37.1\n",
		"official release, digest pinned, SHA-256 `aa`\n",
		"built from a source tree, commit 0123, SHA-256 `bb` (compared with no published program)\n",
		"### `kep/a`\n\nWhat \\*a\\* shows.\n\nIt passed before, and failed after.\n\n```diff\n- before\n+ after\n```\n",
		"In 1 more scenario something else was seen that is left to chance",
		"authzconf run --kubernetes 1.37.1 --gate on --focus '^(kep/a)$' --report-dir before\n",
		"authzconf run --kubernetes source --source DIR --gate on --focus '^(kep/a)$' --report-dir after\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "other") {
		t.Errorf("what is left to chance is news:\n%s", text)
	}
	d.Changed = nil
	text, _ = describeIssue(d)
	if !strings.HasPrefix(text, "# kube-apiserver v1.38.0+source.0 does everything as v1.37.1 does\n") ||
		strings.Contains(text, "What changed") {
		t.Errorf("nothing changed:\n%s", text)
	}
	d.Compared = 0
	if text, _ := describeIssue(d); !strings.Contains(text, "no scenario ran on both") {
		t.Errorf("nothing was compared:\n%s", text)
	}
}
