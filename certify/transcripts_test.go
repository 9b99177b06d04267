package certify

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// seenFile has what real API servers asked in the scenarios, without names. reportsVariable names folders of reports
// (authzconf run --report-dir), separated as in PATH. They are compared too, and with -update seenFile is made from
// them.
const (
	seenFile        = "testdata/asked.txt"
	reportsVariable = "AUTHZCONF_REPORTS"
)

// inAdmission is the beginning of the review that CEL's authorizer sends in a ValidatingAdmissionPolicy, which the
// oracle does not model. Questions about what must not matter also ask for the version *.
const inAdmission = `"list" /*/secrets `

// shape returns a review without names: which attributes it has, and the values of those that are not names.
func shape(s spec, suffix string) string {
	plain := func(text string) string { return strings.ReplaceAll(text, suffix, "SUFFIX") }
	given := func(name, value string) string {
		switch value {
		case "":
			return ""
		case "*":
			return " " + name + "=*"
		}
		return " " + name
	}
	var out strings.Builder
	if a := s.ResourceAttributes; a != nil {
		_, _ = fmt.Fprintf(
			&out,
			"%q %s/%s/%s",
			plain(a.Verb),
			plain(a.Group),
			a.Version,
			onOneLine(scenarios.FullResource(plain(a.Resource), a.Subresource)),
		)
		out.WriteString(given("name", a.Name) + given("namespace", a.Namespace))
		if a.LabelSelector != nil {
			out.WriteString(" labelSelector")
		}
		if a.FieldSelector != nil {
			out.WriteString(" fieldSelector")
		}
	} else if a := s.NonResourceAttributes; a != nil {
		_, _ = fmt.Fprintf(&out, "%q %s", plain(a.Verb), plain(a.Path))
	}
	out.WriteString(given("uid", s.UID))
	if len(s.Groups) > 0 {
		out.WriteString(" groups")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Extra)) {
		_, _ = fmt.Fprintf(&out, " extra:%q", plain(key))
	}
	return out.String()
}

// onOneLine returns a text with its line ends and other control characters escaped. An extra key may contain them.
func onOneLine(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// questionShapes returns the shapes of the scenarios' questions, with one question that has each.
func questionShapes(b *Plan) map[string]string {
	out := map[string]string{}
	for _, v := range b.Scenario {
		id, _, _ := strings.Cut(strings.TrimPrefix(v.ID, "scenario/"), "#")
		out[shape(v.Spec, scenarios.Suffix(b.Policy.Seed, "certify", id))] = v.ID
	}
	return out
}

// reportShapes returns the shapes in the evidence of a report's folder, with one scenario that has each.
func reportShapes(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(filepath.Join(folder, "evidence"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var e verdicts.Evidence
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, s := range e.Steps {
			for _, o := range append(slices.Clone(s.Requests), s) { // kubectl sends several requests
				for _, r := range o.Reviews {
					if asked := shape(r.Spec, e.Suffix); !strings.HasPrefix(asked, inAdmission) {
						out[asked] = e.Scenario
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no access reviews", folder)
	}
	return out
}

// readLines returns the lines of a file, without comments.
func readLines(t *testing.T, file string) (out []string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// TestTranscriptsAreCovered compares the questions of the scenarios with what API servers ask. Nothing that was seen may
// be missing, and everything that is asked must have been seen.
func TestTranscriptsAreCovered(t *testing.T) {
	questions := questionShapes(plan(t, 1))
	fresh := map[string]string{}
	for _, folder := range filepath.SplitList(os.Getenv(reportsVariable)) {
		maps.Copy(fresh, reportShapes(t, folder))
	}
	for _, s := range slices.Sorted(maps.Keys(fresh)) {
		if questions[s] == "" {
			t.Errorf("%s asks what no question asks: %s", fresh[s], s)
		}
	}
	if *update && len(fresh) > 0 {
		text := "# What API servers asked in the scenarios, without names: see transcripts_test.go.\n" + strings.Join(slices.Sorted(maps.Keys(fresh)), "\n") + "\n"
		if err := os.WriteFile(seenFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, s := range readLines(t, seenFile) {
		seen[s] = true
		if questions[s] == "" {
			t.Errorf("no question asks what was seen: %s", s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(questions)) {
		if !seen[s] {
			t.Errorf("%s was never seen: %s", questions[s], s)
		}
	}
	t.Logf("%d questions of the scenarios have %d shapes; %d were seen", len(plan(t, 1).Scenario), len(questions), len(seen))
}
