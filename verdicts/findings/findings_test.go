package findings

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

var update = flag.Bool("update", false, "write the pages of docs/findings anew")

const pages = "../../docs/findings"

func loadAll(t *testing.T) ([]Finding, *scenarios.Set) {
	t.Helper()
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	set, err := catalogue()
	if err != nil {
		t.Fatal(err)
	}
	return all, set
}

// catalogue loads the catalogue only once, because that takes a second.
var catalogue = sync.OnceValues(func() (*scenarios.Set, error) { return scenarios.Load(scenarios.FS, fixtures.FS) })

// severities has the severities in the order of the index.
var severities = []string{"high", "medium", "low"}

// TestFindings compares the findings with the catalogue, with docs/divergences.md and with the fixes.
func TestFindings(t *testing.T) {
	all, set := loadAll(t)
	divergences, err := os.ReadFile("../../docs/divergences.md")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, f := range all {
		switch {
		case ids[f.ID] || ids[f.Row]:
			t.Errorf("%s is there twice", f.ID)
		case f.Title == "" || f.Hurts == "" || f.Expected == "" || f.Actual == "" || f.Sentence == "" || len(f.Cause) == 0:
			t.Errorf("%s is not complete", f.ID)
		case !slices.Contains(severities, f.Severity):
			t.Errorf("%s: severity %q is not one of %v", f.ID, f.Severity, severities)
		case f.Path == "" && !f.Memory && len(f.Scenarios) == 0:
			t.Errorf("%s: nothing shows it", f.ID)
		case !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(f.Row) + ` \|`).Match(divergences):
			t.Errorf("%s: docs/divergences.md has no row %q", f.ID, f.Row)
		case !strings.Contains(string(divergences), "(findings/"+f.ID+".md)"):
			t.Errorf("%s: docs/divergences.md does not lead to it", f.ID)
		}
		ids[f.ID], ids[f.Row] = true, true
		_, err := os.Stat(filepath.Join(pages, "patches/kubernetes", f.ID+".patch"))
		fixed := err == nil
		proved := f.State == FixProved && f.Fix != "" && f.Cost != "" && len(f.Mends()) == len(f.Scenarios)+len(f.Turns)
		said := f.State == Documentation && f.Fix == "" && len(f.Mends()) == 0
		if fixed && !proved ||
			!fixed && !said {
			t.Errorf(
				"%s: state %q, fix %q and %d mended scenarios do not go with docs/findings/patches",
				f.ID,
				f.State,
				f.Fix,
				len(f.Mends()),
			)
		}
		if _, err := os.Stat(filepath.Join(pages, "patches", f.Patch)); err != nil {
			t.Errorf("%s: %v", f.ID, err)
		}
		since(t, &f, set)
	}
	if !slices.IsSortedFunc(all, func(a, b Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	}) {
		slices.SortStableFunc(all, func(a, b Finding) int {
			return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
		})
		t.Errorf("findings.yaml is not in the order of severity: expected %v", seq.Map(all, func(f Finding) string { return f.ID }))
	}
}

// since checks that the scenarios of a finding are for the versions from the one that the finding names.
func since(t *testing.T, f *Finding, set *scenarios.Set) {
	t.Helper()
	for _, id := range append(slices.Clone(f.Scenarios), f.Turns...) {
		s, ok := set.Get(id)
		switch {
		case !ok:
			t.Errorf("%s names the scenario %s, which does not exist", f.ID, id)
		case s.Requires.Kubernetes != ">="+f.Since &&
			(s.Requires.Kubernetes != "" || f.Since != "1.33"):
			t.Errorf("%s is since %s, and %s is for %q", f.ID, f.Since, id, s.Requires.Kubernetes)
		}
	}
}

// TestMended checks that the mended scenarios differ from those of today in their expectations, and not in their
// requests.
func TestMended(t *testing.T) {
	all, set := loadAll(t)
	every := Finding{State: FixProved}
	for _, f := range all {
		every.Turns = append(every.Turns, f.Mends()...)
	}
	mended, err := every.Mended()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range every.Mends() {
		today, _ := set.Get(id)
		then, _ := mended.Get(id)
		if !reflect.DeepEqual(copyRequests(today), copyRequests(then)) {
			t.Errorf("%s is not the same but for what is expected", id)
		}
		if reflect.DeepEqual(today.Steps, then.Steps) {
			t.Errorf("%s expects the same", id)
		}
	}
	files, err := filepath.Glob("fixed/*/*/*.yaml")
	if err != nil || len(files) != len(every.Mends()) {
		t.Errorf("fixed/ has %d files, and %d of them are used (%v)", len(files), len(every.Mends()), err)
	}
}

// copyRequests returns a scenario without its description and expectations.
func copyRequests(s *scenarios.Scenario) scenarios.Scenario {
	out := *s
	out.Description, out.Documented, out.Digest, out.Twin, out.Level = "", "", "", "", ""
	out.Steps = slices.Clone(s.Steps)
	for i := range out.Steps {
		out.Steps[i].Expect = nil
	}
	return out
}

// TestJudge checks that a defect that still happens, one that does not, and any other behaviour are told apart.
func TestJudge(t *testing.T) {
	f := Finding{State: FixProved, Scenarios: []string{"kubernetes/raw-headers/empty-user-before-another"}}
	mended, err := f.Mended()
	if err != nil {
		t.Fatal(err)
	}
	result := func(v verdicts.Verdict) verdicts.Result {
		return verdicts.Result{Scenario: f.Scenarios[0], Verdict: v, Reason: "reason"}
	}
	for name, test := range map[string]struct {
		verdict  verdicts.Verdict
		evidence *verdicts.Evidence
		want     Occurrence
	}{
		"as it states":       {verdicts.Passed, &verdicts.Evidence{}, Happens},
		"could not be run":   {verdicts.Invalid, nil, Unclear},
		"left out":           {verdicts.NotSupported, nil, Unclear},
		"failed, unrecorded": {verdicts.Failed, nil, Unclear},
		"something else":     {verdicts.Failed, &verdicts.Evidence{}, Unclear},
	} {
		if got, _ := f.Judge(result(test.verdict), test.evidence, mended); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if got, _ := (&Finding{}).Judge(result(verdicts.Failed), &verdicts.Evidence{}, mended); got != Unclear {
		t.Errorf("without what would be seen: %s, want %s", got, Unclear)
	}
}

// TestCauses looks for the functions in the modules that the newest release is built from.
func TestCauses(t *testing.T) {
	all, _ := loadAll(t)
	folders := map[string]string{}
	for _, f := range all {
		for _, c := range f.Cause {
			module, file, _ := strings.Cut(c.File, "/")
			if _, known := folders[module]; !known {
				folders[module], _ = listModule(t, "{{.Dir}}", module)
			}
			text, err := os.ReadFile(filepath.Join(folders[module], file))
			if folders[module] == "" || err != nil {
				t.Logf("k8s.io/%s is not in the module cache: %v", module, err)
				continue
			}
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + c.Function + `\(`).Match(text) {
				t.Errorf("%s: %s does not declare %s", f.ID, c.File, c.Function)
			}
		}
	}
}

//go:embed page_test.md.tmpl
var pageText string

// IsMended reports whether a fix changes the result of a scenario. The page of a finding uses it.
func (f Finding) IsMended(id string) bool { return slices.Contains(f.Mends(), id) }

// notThere marks a finding on a version that does not have the feature which the finding is about.
const notThere = "not there"

// seenWords are the words of the tables for what was seen.
var seenWords = map[string]string{string(Happens): "yes", string(Gone): "no", string(Unclear): "unclear", notThere: "–"}

// seenOn is what TestReproduced of cmd/authzconf saw of the finding on each server, by minor.
type seenOn struct {
	Servers map[string]string            `json:"servers"`
	Seen    map[string]map[string]string `json:"seen"`
}

// on returns the servers on which a finding was seen to happen.
func (s seenOn) on(id string) string {
	var servers []string
	for minor, server := range s.Servers {
		if s.Seen[id][minor] == string(Happens) {
			servers = append(servers, server)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(servers)), ", ")
}

// readTried checks that every finding has been tried on every version, and is there from the version on that it names.
func readTried(t *testing.T, all []Finding) (tried seenOn) {
	t.Helper()
	text, err := os.ReadFile("tried_test.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &tried)
	}
	if err != nil || len(tried.Seen) != len(all) {
		t.Fatalf("tried_test.yaml has %d findings, want %d (%v)", len(tried.Seen), len(all), err)
	}
	for _, f := range all {
		for minor := range tried.Servers {
			seen := tried.Seen[f.ID][minor]
			switch {
			case !slices.Contains([]string{string(Happens), string(Gone), string(Unclear), notThere}, seen):
				t.Errorf("%s on %s: %q", f.ID, minor, seen)
			case (minor < f.Since) != (seen == notThere):
				t.Errorf("%s is since %s, and on %s %q", f.ID, f.Since, minor, seen)
			}
		}
	}
	return tried
}

// errata are the edits that a document needs.
type errata struct {
	Document string `json:"document"`
	Text     string `json:"text"` // the document's address, at the commit that was read
	// Patches are files below docs/findings/patches that make the edits and tell readers why.
	Patches []string  `json:"patches"`
	Edits   []erratum `json:"edits"`
}

// erratum is one edit that a document needs.
type erratum struct {
	Section   string   `json:"section"`
	Adds      string   `json:"adds"`  // words that show the edit among the lines that the patches add
	Drops     string   `json:"drops"` // the same for an edit that only leaves something out
	Says      string   `json:"says"`
	Should    string   `json:"should"`
	Scenarios []string `json:"scenarios"`
	Path      string   `json:"path"` // the path of an upgrade path, if no scenario shows it
}

// table reads the rows that a page is made from, and the scenarios that they may name.
func table[T any](t *testing.T, file string) (rows []T, set *scenarios.Set) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &rows)
	}
	if err == nil {
		set, err = catalogue()
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows, set
}

// shownBy returns links to the scenarios that who names. The scenarios have to exist.
func shownBy(t *testing.T, set *scenarios.Set, who string, ids []string) []string {
	t.Helper()
	return seq.Map(ids, func(id string) string {
		if _, ok := set.Get(id); !ok {
			t.Errorf("%s names the scenario %s, which does not exist", who, id)
		}
		return "[" + id + "](../../scenarios/" + id + ".yaml)"
	})
}

// errataPage returns the page of the errata. It checks that each edit is complete, and that a scenario or an upgrade
// path shows it.
func errataPage(t *testing.T) string {
	t.Helper()
	all, set := table[errata](t, "errata_test.yaml")
	var b strings.Builder
	b.WriteString("# Edits to the KEP and the reference page\n\nWhat KEP-5284 and the reference page say at the linked commits, what they should say, and the scenario that shows it (`authzconf run --focus SCENARIO`); … stands for existing text, or for a part that is left out. `make document-patches DOCUMENTS=FOLDER` applies the patches, which also have the sentences of the [findings](README.md), to clones of the repositories. Generated from [errata_test.yaml](../../verdicts/findings/errata_test.yaml).\n")
	for _, e := range all {
		patches := seq.Map(e.Patches, func(name string) string { return "[" + filepath.Base(name) + "](patches/" + name + ")" })
		madeBy := ""
		if len(patches) > 0 {
			madeBy = ", which these patches make: " + strings.Join(patches, ", ")
		}
		fmt.Fprintf(
			&b,
			"\n## %s\n\n[The text that was read](%s); %d edits%s.\n\n| where | says | should say | shown by |\n|---|---|---|---|\n",
			e.Document,
			e.Text,
			len(e.Edits),
			madeBy,
		)
		for _, edit := range e.Edits {
			shown := shownBy(t, set, fmt.Sprintf("%s: %q", e.Document, edit.Says), edit.Scenarios)
			if edit.Path != "" {
				shown = append(shown, "["+edit.Path+"](../../"+edit.Path+")")
			}
			if edit.Section == "" || edit.Says == "" || edit.Should == "" || len(shown) == 0 {
				t.Errorf("%s: the edit %+v is not complete", e.Document, edit)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", edit.Section, edit.Says, edit.Should, strings.Join(shown, "<br>"))
		}
	}
	return b.String()
}

// TestPages compares the page of each finding, and the index, with what is made from the data.
func TestPages(t *testing.T) {
	all, _ := loadAll(t)
	page := template.Must(template.New("page").Parse(pageText))
	tried, later := readTried(t, all), readNewer(t)
	want := map[string]string{
		"README.md":    indexPage(all, tried, later),
		"errata.md":    errataPage(t),
		"followups.md": followupsPage(t),
	}
	for _, f := range all {
		var b bytes.Buffer
		err := page.Execute(&b, struct {
			Finding
			SeenOn string
			Newer  []newerCell
		}{f, tried.on(f.ID), later.describeFinding(f.ID)})
		if err != nil {
			t.Fatal(err)
		}
		want[f.ID+".md"] = strings.TrimRight(b.String(), "\n") + "\n"
	}
	for name, text := range want {
		path := filepath.Join(pages, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s is not up to date: run this test with -update", path)
		}
	}
	files, err := filepath.Glob(filepath.Join(pages, "*.md"))
	if err != nil || len(files) != len(want) {
		t.Errorf("docs/findings has %d files, want %d (%v)", len(files), len(want), err)
	}
}

// indexPage returns the page with the table of findings.
func indexPage(all []Finding, tried seenOn, later newer) string {
	var index strings.Builder
	index.WriteString(
		"# Findings\n\nDefects of API servers and documents that scenarios have shown, each a report to their maintainers. Where the *fix is proved*, the page has a [patch](patches/kubernetes) with a test, and otherwise the sentence that the *documentation* needs. [divergences.md](../divergences.md) has all places where documents and servers differ. The pages are generated from [findings.yaml](../../verdicts/findings/findings.yaml) by `go test ./verdicts/findings -update`.\n\n```sh\nauthzconf reproduce ID       # on the newest kube-apiserver; --kubernetes V chooses another version\nTEST_ASSET_KUBE_APISERVER=./kube-apiserver authzconf reproduce ID    # on yours\nmake fixed FINDING=ID        # on one with the patch\nmake fixes                   # Kubernetes' tests and the whole suite with each patch\n```\n\n",
	)
	minors := slices.Sorted(maps.Keys(tried.Servers))
	fmt.Fprintf(
		&index,
		"For each version (kube-apiserver %s) the table has what `authzconf reproduce` reported, which a [test](../../cmd/authzconf/reproduce_test.go) repeats every night: the finding %s (yes), %s (no), or is %s; – where there is no such feature. ",
		strings.Join(slices.Sorted(maps.Values(tried.Servers)), ", "),
		Happens,
		Gone,
		Unclear,
	)
	versions := seq.Map(later.Releases, func(r newerRelease) string { return r.Version })
	released := seq.Map(later.Releases, func(r newerRelease) string { return r.Version + " on " + r.Released })
	fmt.Fprintf(
		&index,
		"For newer versions (%s) it has what was seen, if such a server was run, and whether the functions that cause the finding are the same as in %s (\"same code\", by [TestNewer](../../verdicts/findings/newer_test.go)); those of a module that cannot be downloaded are not compared.\n\n",
		strings.Join(released, ", "),
		later.Tried,
	)
	columns := slices.Concat(minors, versions)
	fmt.Fprintf(
		&index,
		"| severity | state | since | %s | ID | finding |\n|---|---|---|%s---|---|\n",
		strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)),
	)
	for _, f := range all {
		cells := seq.Map(minors, func(minor string) string {
			return seenWords[tried.Seen[f.ID][minor]]
		})
		cells = append(cells, seq.Map(later.Releases, func(r newerRelease) string { return r.cell(f.ID) })...)
		fmt.Fprintf(
			&index,
			"| %s | %s | %s | %s | %s | [%s](%s.md) |\n",
			f.Severity,
			f.State,
			f.Since,
			strings.Join(cells, " | "),
			f.ID,
			f.Title,
			f.ID,
		)
	}
	index.WriteString(
		"\n## Cost\n\nThe cost of a fix is processor time of the request handler alone, without HTTP, and with an authorizer that takes no time: medians of 20 differences, each with its 95.9 % interval, measured on 26 November 2026 on a machine that others used too (`go test ./ci/mutants -run '^$' -bench Fixes -benchtime 1x`).\n\nNext: [edits](errata.md) to the KEP and the reference page, [upstream's changes](followups.md) since the first version, and what [generated sequences of requests](../explore.md) have shown.\n",
	)
	return index.String()
}
