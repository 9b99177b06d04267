package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"

	"github.com/authzconf/authzconf/verdicts"
)

// compare lists where the recomputed report says something else.
func (v *verifier) compare() {
	before, is, again := len(v.Differences), v.Report, v.Recomputed
	type part struct {
		what      string
		got, want any
	}
	var parts []part
	for i, got := range is.Cells {
		want := again.Cells[i]
		v.compareResults(got, want)
		parts = append(parts, part{got.Name + ": the mismatches do not follow from what the witness read", got.Witness.Mismatches, want.Witness.Mismatches},
			part{got.Name + ": the summary does not follow from the results", got.Summary, want.Summary})
	}
	for _, part := range append(parts, []part{
		{"the list of scenarios is not that of the folder " + scenariosDir, is.Scenarios, again.Scenarios},
		{"the digest of the scenarios is not that of their list", is.ScenariosDigest, again.ScenariosDigest},
		{"the findings do not follow from the evidence", is.Findings, again.Findings},
		{"the claims about the path do not follow from the evidence", is.Path, again.Path},
		{"the known-failing states do not follow from the results", is.KnownFailing, again.KnownFailing},
		{"the outcome does not follow from the results", is.Outcome, again.Outcome},
	}...) {
		if !same(part.got, part.want) {
			v.differ("%s: %s", part.what, change(part.got, part.want))
		}
	}
	data, err := encodeReport(again)
	if before == len(v.Differences) && (err != nil || !bytes.Equal(data, v.Marker)) {
		// It was edited in comments, order or formatting only.
		v.note("%s says the same, but not as this authzconf writes it", reportFile)
	}
}

// compareResults compares one cell's results with the recomputed ones.
func (v *verifier) compareResults(got, want Cell) {
	again := map[string]verdicts.Result{}
	for _, r := range want.Results {
		again[r.Scenario] = r
	}
	for _, r := range got.Results {
		w, ok := again[r.Scenario]
		switch {
		case !ok || same(r, w):
		case r.Verdict != w.Verdict:
			v.differ("%s on %s: the report says %s, the evidence says %s%s", r.Scenario, got.Name, r.Verdict, w.Verdict, because(w))
		default:
			v.differ("%s on %s: %s, but not as the report says: %s", r.Scenario, got.Name, r.Verdict, change(r, w))
		}
	}
}

func because(r verdicts.Result) string {
	if r.Reason == "" {
		return ""
	}
	return ": " + firstLine(r.Reason)
}

// same compares what two values say: an empty list is as good as none.
func same(a, b any) bool { return reflect.DeepEqual(generic(a), generic(b)) }

// change words the first place at which two values differ, for example "reason: the report says x, the evidence y".
func change(report, evidence any) string {
	return changeTo("the evidence", report, evidence)
}

// changeTo is change for what something else than the evidence says.
func changeTo(other string, report, says any) string {
	where, a, b := firstChange("", generic(report), generic(says))
	return fmt.Sprintf("%s: the report says %s, %s %s", strings.TrimPrefix(where, "."), brief(a), other, brief(b))
}

// Change is how evidence is not of what the command line asks for; empty if it is.
func Change(evidence, asked any) string {
	if same(evidence, asked) {
		return ""
	}
	where, a, b := firstChange("", generic(evidence), generic(asked))
	return fmt.Sprintf("%s: it has %s, the command line asks for %s", strings.TrimPrefix(where, "."), brief(a), brief(b))
}

// generic is a value as decoded JSON.
func generic(v any) any {
	raw, err := encodeJSON(v, "")
	if err != nil {
		return err.Error()
	}
	var out any
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
		for _, k := range sortedKeys(keys) {
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

// brief is a value in a message.
func brief(v any) string {
	if v == nil {
		return "nothing"
	}
	raw, err := encodeJSON(v, "")
	if err != nil {
		return err.Error()
	}
	return ellipsis(strings.TrimSpace(string(raw)), 200)
}

// released says whether a version names one source text, a tag or a commit: builds of a changed checkout, and those
// that do not know it, all have the same one.
func released(version string) bool {
	return sourceVersion.MatchString(version) && !strings.Contains(version, "dirty")
}

var sourceVersion = regexp.MustCompile(`^(v[0-9].*|[0-9a-f]{7,40})$`)

// comparePages makes the pages again. Another version of authzconf may make others, so then a change is only
// noted: their digests still hold.
func (v *verifier) comparePages(suiteVersion string) {
	if !v.OK() {
		return // They would differ for the reasons that were found already.
	}
	bare := *v.Report
	bare.Files = nil
	pages, err := renderPages(&bare, v.evidence, v.set)
	if err != nil {
		v.differ("the pages cannot be made again: %v", err)
		return
	}
	for _, name := range sortedKeys(pages) {
		switch {
		case bytes.Equal(pages[name], v.files[name]):
		case suiteVersion == v.Report.SuiteVersion && released(suiteVersion):
			v.differ("%s: is not what the evidence gives", name)
		default:
			v.note("%s: this authzconf makes another page of the report than authzconf %s did", name, v.Report.SuiteVersion)
		}
	}
}
