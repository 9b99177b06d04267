package reports

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

const someEvidence = "evidence/1.37-gate-on/kep-5284/user-info/list-pods-without-action-grant.json"

func TestVerifyHolds(t *testing.T) {
	dir := t.TempDir()
	r, _ := written(t, dir)
	v, err := Verify(dir, VerifyOptions{Builtin: testTexts(t).Set, SuiteVersion: r.SuiteVersion})
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() {
		t.Errorf("differences: %q", v.Differences)
	}
	if len(v.Notes) != 1 || v.Notes[0] != "the scenario texts are unaltered" {
		t.Errorf("notes: %q", v.Notes)
	}
	if v.Verdicts != 5 {
		t.Errorf("%d verdicts were recomputed", v.Verdicts)
	}
	if v, err = Verify(dir, VerifyOptions{Builtin: manyTexts(t, 2).Set}); err != nil || v.OK() || !strings.Contains(v.Differences[0], "the scenario texts differ from those to judge by") {
		t.Errorf("other scenarios: %v, %+v", err, v)
	}
}

// Every byte of evidence counts.
func TestVerifyFindsAnyEditedByte(t *testing.T) {
	dir := t.TempDir()
	written(t, dir)
	file := filepath.Join(dir, filepath.FromSlash(someEvidence))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 97 {
		edited := append([]byte(nil), whole...)
		edited[at] ^= 1
		if err := os.WriteFile(file, edited, 0o644); err != nil {
			t.Fatal(err)
		}
		v, err := Verify(dir, VerifyOptions{})
		if err != nil || v.OK() || !strings.HasPrefix(v.Differences[0], someEvidence+": was changed") {
			t.Fatalf("byte %d: %v, %+v", at, err, v)
		}
	}
}

// mend puts the digest of an edited file into report.yaml, as one would who
// wants not to be found out.
func mend(t *testing.T, dir, name string) {
	t.Helper()
	r, err := DecodeReport(reportFile, []byte(content(t, dir, reportFile)))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, reportFile, strings.ReplaceAll(content(t, dir, reportFile), r.Files[name], sha256Hex([]byte(content(t, dir, name)))))
}

func edit(t *testing.T, dir, name, old, text string) {
	t.Helper()
	before := content(t, dir, name)
	if !strings.Contains(before, old) {
		t.Fatalf("%s has no %q", name, old)
	}
	put(t, dir, name, strings.Replace(before, old, text, 1))
}

func TestVerifyFinds(t *testing.T) {
	remove := func(t *testing.T, dir, name string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"evidence removed", func(t *testing.T, dir string) { remove(t, dir, someEvidence) }, someEvidence + ": is missing"},
		{"evidence added", func(t *testing.T, dir string) { put(t, dir, "evidence/x/y.json", "{}") }, "evidence/x/y.json: is not a file of the report"},
		{"evidence edited, digest too", func(t *testing.T, dir string) {
			edit(t, dir, someEvidence, `"code": 403`, `"code": 200`)
			mend(t, dir, someEvidence)
		}, "list-pods-without-action-grant on 1.37-gate-on: failed, but not as the report says"},
		{"evidence replaced by another's", func(t *testing.T, dir string) {
			put(t, dir, someEvidence, content(t, dir, "evidence/1.37-gate-on/kep-5284/user-info/list-pods-allowed.json"))
			mend(t, dir, someEvidence)
		}, someEvidence + ": is the evidence of kep-5284/user-info/list-pods-allowed"},
		{"evidence with an unknown field", func(t *testing.T, dir string) {
			edit(t, dir, someEvidence, `"suffix"`, `"more": 1, "suffix"`)
			mend(t, dir, someEvidence)
		}, someEvidence + `: unknown field "more"`},
		{"evidence and result dropped", func(t *testing.T, dir string) {
			remove(t, dir, someEvidence)
			rewrite(t, dir, func(r *ConformanceReport) {
				delete(r.Files, someEvidence)
				rs := r.Cells[0].Results
				for i := range rs {
					if strings.HasSuffix(rs[i].Scenario, "without-action-grant") {
						r.Cells[0].Results = append(rs[:i], rs[i+1:]...)
						break
					}
				}
			})
		}, "the outcome does not follow"},
		{"verdict edited", func(t *testing.T, dir string) {
			edit(t, dir, reportFile, "verdict: failed", "verdict: passed")
		}, "the report says passed, the evidence says failed"},
		{"reason edited", func(t *testing.T, dir string) {
			edit(t, dir, reportFile, "blame: apiServer", "blame: environment")
		}, "blame: the report says \"environment\", the evidence \"apiServer\""},
		{"outcome edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Outcome = Outcome{Result: verdicts.Passed} })
		}, "the outcome does not follow from the results: exitCode: the report says 0, the evidence 1"},
		{"summary edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Summary["core"] = Counts{Passed: 9} })
		}, "1.37-gate-on: the summary does not follow from the results: core.failed: the report says 0"},
		{"finding edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Findings[0].Seen[0] = "as documented" })
		}, "the findings do not follow"},
		{"known-failing state edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.KnownFailing[1].State = KnownFails })
		}, "the known-failing states do not follow"},
		{"passed off as not for the target", func(t *testing.T, dir string) {
			remove(t, dir, someEvidence)
			rewrite(t, dir, func(r *ConformanceReport) {
				delete(r.Files, someEvidence)
				r.Cells[0].leaveOut("kep-5284/user-info/list-pods-without-action-grant")
				n := r.Cells[0].NotRun
				n[len(n)-1].Cause = CauseTarget
			})
		}, "list-pods-without-action-grant on 1.37-gate-on: the report says that it is for another version or gate, it is not"},
		{"passed off as not supported", func(t *testing.T, dir string) {
			remove(t, dir, someEvidence)
			rewrite(t, dir, func(r *ConformanceReport) {
				delete(r.Files, someEvidence)
				for i := range r.Cells[0].Results {
					if res := &r.Cells[0].Results[i]; strings.HasSuffix(res.Scenario, "without-action-grant") {
						res.Verdict, res.Reason = "notSupported", "the target lacks reviews"
					}
				}
			})
		}, "the report says that the target lacks a capability, it does not"},
		{"facts edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Facts.Gate = "off" })
		}, "was run, but is not for this target"},
		{"cell edited", func(t *testing.T, dir string) {
			rewrite(t, dir, func(r *ConformanceReport) { r.Cells[0].Kubernetes = "1.38.0" })
		}, "the evidence is of another cell"},
		{"scenario edited", func(t *testing.T, dir string) {
			edit(t, dir, "scenarios/kep-5284/user-info/list-pods-allowed.yaml", "code: 200", "code: 201")
			mend(t, dir, "scenarios/kep-5284/user-info/list-pods-allowed.yaml")
		}, "the evidence says invalid: the evidence was made with another text"},
		{"fixture edited", func(t *testing.T, dir string) {
			edit(t, dir, "fixtures/kep-5284/node-agent.yaml", "pods", "nodes")
		}, "fixtures/kep-5284/node-agent.yaml: was changed"},
		{"scenario broken", func(t *testing.T, dir string) {
			put(t, dir, "scenarios/kep-5284/user-info/list-pods-allowed.yaml", "a: [")
		}, "the scenarios of the report cannot be loaded"},
		{"page edited", func(t *testing.T, dir string) { edit(t, dir, htmlFile, "failed", "passed") }, "report.html: was changed"},
		{"page edited, digest too", func(t *testing.T, dir string) {
			edit(t, dir, htmlFile, "failed", "passed")
			mend(t, dir, htmlFile)
		}, "report.html: is not what the evidence gives"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r, _ := written(t, dir)
			c.change(t, dir)
			v, err := Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("got:\n%s\nwant: %s", all, c.want)
			}
		})
	}
}

// rewrite changes report.yaml as a program would.
func rewrite(t *testing.T, dir string, change func(*ConformanceReport)) {
	t.Helper()
	r, err := DecodeReport(reportFile, []byte(content(t, dir, reportFile)))
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	data, err := encodeReport(r)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, reportFile, string(data))
}

func TestVerifyNotes(t *testing.T) {
	dir := t.TempDir()
	r, _ := written(t, dir)
	put(t, dir, "notes.md", "mine")
	put(t, dir, reportFile, "# read and found good\n"+content(t, dir, reportFile))
	v, err := Verify(dir, VerifyOptions{SuiteVersion: "v9.9.9"})
	if err != nil || !v.OK() {
		t.Fatalf("%v %v", err, v.Differences)
	}
	if got := strings.Join(v.Notes, "\n"); got != "notes.md: is not a file of the report\nreport.yaml says the same, but not as this authzconf writes it" {
		t.Errorf("notes: %s", got)
	}
	// What this very authzconf wrote it writes again: a comment is somebody else's.
	v, err = Verify(dir, VerifyOptions{SuiteVersion: r.SuiteVersion})
	if err != nil || strings.Join(v.Differences, "\n") != "report.yaml says the same, but not as this authzconf writes it" {
		t.Errorf("a comment: %v %v", err, v.Differences)
	}
}

func TestVerifyWithoutReport(t *testing.T) {
	dir := t.TempDir()
	if _, err := Verify(filepath.Join(dir, "none"), VerifyOptions{}); err == nil {
		t.Error("a folder that is not there was verified")
	}
	if _, err := Verify(dir, VerifyOptions{}); err == nil || !strings.Contains(err.Error(), "no report was finished there") {
		t.Errorf("got %v", err)
	}
	put(t, dir, reportFile, "a: [")
	if _, err := Verify(dir, VerifyOptions{}); err == nil {
		t.Error("a broken report.yaml was verified")
	}
}

// A link that leads out of the folder is not followed.
func TestVerifyStaysInTheFolder(t *testing.T) {
	dir := t.TempDir()
	written(t, dir)
	outside := filepath.Join(t.TempDir(), "x.json")
	if err := os.Rename(filepath.Join(dir, filepath.FromSlash(someEvidence)), outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, filepath.FromSlash(someEvidence))); err != nil {
		t.Skip(err)
	}
	v, err := Verify(dir, VerifyOptions{})
	if err != nil || v.OK() {
		t.Errorf("%v %+v", err, v)
	}
}
