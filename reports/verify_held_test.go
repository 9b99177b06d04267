package reports

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// respell changes a piece of evidence as a program would, and its digest in report.yaml.
func respell(t *testing.T, dir, name string, change func(*verdicts.Evidence)) {
	t.Helper()
	e, err := decodeEvidence([]byte(content(t, dir, name)))
	if err != nil {
		t.Fatal(err)
	}
	change(e)
	raw, err := record.EncodeJSON(e, "  ")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, name, string(raw))
	rewrite(t, dir, func(r *ConformanceReport) { r.Files[name] = sha256Hex(raw) })
}

// TestVerifyIsNotCheated: each way to make a report say what was not seen is found, though all digests fit.
func TestVerifyIsNotCheated(t *testing.T) {
	asked := func(r *ConformanceReport, _ *scenarios.Set) (*ConformanceReport, error) {
		out := &ConformanceReport{Implementation: Implementation{Name: "kube-apiserver", Provider: "local"}}
		for _, c := range bothGates() {
			bare := Cell{Cell: c.Cell, Facts: c.Facts}
			bare.Witness.AskedAuthorizers, bare.Witness.ExpectedGate = c.Witness.AskedAuthorizers, c.Witness.ExpectedGate
			for _, seen := range r.Cells {
				if seen.Name == c.Name {
					bare.NotRun = append(bare.NotRun, seen.NotRun...)
				}
			}
			if len(bare.NotRun) > 0 && bare.NotRun[len(bare.NotRun)-1].Scenario == "kep-5284/user-info/list-pods-without-action-grant" {
				bare.NotRun = bare.NotRun[:len(bare.NotRun)-1]
			}
			out.Cells = append(out.Cells, bare)
		}
		return out, nil
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"a failing scenario is left out": {func(t *testing.T, dir string) {
			removeFile(t, dir, someEvidence)
			rewrite(t, dir, func(r *ConformanceReport) {
				delete(r.Files, someEvidence)
				r.Cells[0].leaveOut("kep-5284/user-info/list-pods-without-action-grant")
			})
		}, "not as the command line asks"},
		"a cell is removed": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells = r.Cells[:1] })
		}, "its command line asks for"},
		"the chain is another": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) {
				w := &r.Cells[0].Witness
				w.AskedAuthorizers, w.SeenAuthorizers = w.AskedAuthorizers[:2], w.SeenAuthorizers[:2]
			})
		}, "not as the command line asks"},
		"the witness saw another version": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Witness.GitVersion = "v1.36.0" })
		}, "1.37-gate-on: the mismatches do not follow from what the witness read: "},
		"the witness probed another gate": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) {
				r.Cells[0].Witness.GateProbe.Message, r.Cells[0].Witness.GateProbe.Gate = "without impersonating a user", "off"
			})
		}, "the API server contradicts itself: its metric says that the gate ConstrainedImpersonation is on"},
		"the witness probed something": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Witness.GateProbe.Message = "no" })
		}, "1.37-gate-on: the mismatches do not follow from what the witness read: "},
		"evidence of another scenario": {func(t *testing.T, dir string) {
			steps := []verdicts.Observation{}
			respell(t, dir, "evidence/1.37-gate-on/kep-5284/user-info/list-pods-allowed.json", func(e *verdicts.Evidence) { steps = e.Steps })
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps = steps })
		}, "its audit ID"},
		"evidence of another seed": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Seed++ })
		}, "its names end in"},
		"a header that was dropped": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps[0].Request.Headers = nil })
		}, "the evidence says invalid: step 0: the headers {} were sent"},
		"the credential of another": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps[0].Request.Credential.Groups = []string{"system:masters"} })
		}, "the evidence says invalid: step 0: the credential that was sent"},
		"the grants are somebody else's": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Authorizer = true })
		}, "another authorizer than RBAC is said to have held the grants"},
		"another client's request": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps[0].Request.UserAgent = "curl" })
		}, "the evidence says invalid: step 0: the user agent"},
		"an event is removed": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps[0].Audit = nil })
		}, "the evidence says invalid: step 0: the audit event"},
		"times of requests": {func(t *testing.T, dir string) {
			respell(t, dir, someEvidence, func(e *verdicts.Evidence) { e.Steps[0].Sent = e.Steps[0].Sent.Add(-time.Minute) })
		}, "was not under way while"},
		"times of the run": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Finished = r.Started.Add(time.Second) })
		}, "was not under way while"},
		"how long a cell took": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].WallSeconds = 0.1 })
		}, "its times do not fit"},
		"a known failure that nobody stated": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.KnownFailing = r.KnownFailing[:1] })
		}, "the known-failing entries are not those of the command line"},
		"a level that was required": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Require = []scenarios.Level{scenarios.Core} })
		}, "the report requires the levels"},
		"evidence of another control plane": {func(t *testing.T, dir string) {
			respell(t, dir, "evidence/1.37-gate-on/kep-5284/user-info/list-pods-allowed.json", func(e *verdicts.Evidence) { e.Steps[0].Response.FlowSchemaUID = "u" })
			respell(t, dir, "evidence/1.37-gate-off/kubernetes/gate-off/legacy-allowed.json", func(e *verdicts.Evidence) { e.Steps[0].Response.FlowSchemaUID = "u" })
		}, "names an object u, which is of the control plane of another cell"},
		"another program of a version": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Witness.Programs[0].SHA256 = strings.Repeat("ab", 32) })
		}, "one program has one version"},
		"a program of another version": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Witness.Programs[1].Version = "3.6.0" })
		}, "one program has one version"},
		"more cells at once than there are": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Parallel = 3 })
		}, "3 cells at once, of 2"},
		"another implementation": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Implementation.Name = "another" })
		}, "the report is about {another  local}"},
		"a scenario twice": {func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Results = append(r.Cells[0].Results, r.Cells[0].Results[0]) })
		}, "there is no evidence for the verdict"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, _ := written(t, dir)
			c.change(t, dir)
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion, Builtin: testTexts(t).Set, Plan: asked})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("got:\n%s\nwant: %s", all, c.want)
			}
		})
	}
}

// TestAgentsAreNotCheated: what is said of node agents has to follow from what was seen of them.
func TestAgentsAreNotCheated(t *testing.T) {
	sound := func() *Agents {
		return &Agents{Checks: []AgentCheck{{What: "w", Want: "403", Got: "403"}}, PodWindowSeconds: 9, Seen: json.RawMessage(`{"code":403}`)}
	}
	judge := func(_ int64, _ string, a *Agents) (*Agents, error) {
		out := sound()
		switch out.Seen, out.Problem = a.Seen, a.Problem; {
		case len(a.Seen) == 0:
			return nil, errors.New("nothing was seen of the node agents")
		case strings.Contains(string(a.Seen), "200"):
			out.Checks[0].Got = "200"
		}
		return out, nil
	}
	for name, c := range map[string]struct {
		change func(a *Agents)
		want   string
	}{
		"all is well":          {func(*Agents) {}, ""},
		"a check is removed":   {func(a *Agents) { a.Checks = nil }, "do not follow from what was seen"},
		"a check is edited":    {func(a *Agents) { a.Checks[0].What = "x" }, "do not follow from what was seen"},
		"a failure is edited":  {func(a *Agents) { a.Seen = json.RawMessage(`{"code":200}`) }, "do not follow from what was seen"},
		"a time is edited":     {func(a *Agents) { a.PodWindowSeconds = 1 }, "do not follow from what was seen"},
		"evidence is removed":  {func(a *Agents) { a.Seen = nil }, "nothing was seen of the node agents"},
		"a check is another's": {func(a *Agents) { a.Checks[0].Want, a.Checks[0].Got = "200", "200" }, "do not follow from what was seen"},
	} {
		a := sound()
		c.change(a)
		v := &verifier{Verification: &Verification{Report: &ConformanceReport{Cells: []Cell{{Agents: a}}}}}
		v.holdAgents(VerifyOptions{Agents: judge})
		if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) || c.want == "" && all != "" {
			t.Errorf("%s: got %q, want %q", name, all, c.want)
		}
	}
	// A problem that somebody made up hides no check, and is no pass.
	r := oneCell(result("a/b", scenarios.Core, verdicts.Passed))
	r.Cells[0].Agents = sound()
	r.Cells[0].Agents.Problem = "the cluster went away"
	if o := r.Conclude(); o.ExitCode != ExitInvalid {
		t.Errorf("%+v", o)
	}
}

// TestRequired: what a required level leaves out makes the run invalid, and is named.
func TestRequired(t *testing.T) {
	r := oneCell(result("a/b", scenarios.Core, verdicts.Passed))
	r.Scenarios = append(r.Scenarios, ScenarioRef{ID: "c/d", Level: scenarios.Extended})
	r.Cells[0].NotRun = append(r.Cells[0].NotRun, NotRun{Scenario: "c/d", Cause: CauseUser, Why: "matches --skip"})
	if o := r.Conclude(); o.Result != verdicts.Passed {
		t.Errorf("%+v", o)
	}
	r.Require = []scenarios.Level{scenarios.Extended}
	if o := r.Conclude(); o.ExitCode != ExitInvalid || !strings.Contains(strings.Join(o.Reasons, "\n"), "1 scenario required and not judged: c/d (matches --skip)") {
		t.Errorf("%+v", o)
	}
	lacking := result("c/d", scenarios.Extended, verdicts.NotSupported)
	lacking.Reason = "the target lacks nodes, and no substitute is possible: there is none"
	r.Cells[0].NotRun, r.Cells[0].Results = nil, append(r.Cells[0].Results, lacking)
	if o := r.Conclude(); o.ExitCode != ExitPassed || o.Line() != "passed; 1 scenario for lack of nodes: not judged" {
		t.Errorf("%+v: %s", o, o.Line())
	}
}
