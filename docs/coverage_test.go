package docs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// documentsVariable names the environment variable with the folder that has the documents which coverage.yaml quotes.
const documentsVariable = "AUTHZCONF_DOCUMENTS"

// coveredDocument is a document in docs/coverage.yaml, with all its statements.
type coveredDocument struct {
	Document   string      `json:"document"`
	About      string      `json:"about"`
	File       string      `json:"file"`
	SHA256     string      `json:"sha256"`
	Statements []statement `json:"statements"`
}

// statement is something that a document says, and what shows whether it is so.
type statement struct {
	Line int `json:"line"`
	// Says is the document's own text, with single spaces in place of line breaks.
	Says string `json:"says"`
	// Scenarios are IDs, or folders with /* behind them.
	Scenarios []string `json:"scenarios"`
	// Divergences are rows of docs/divergences.md, and Errata what edits of the documents quote.
	Divergences []string      `json:"divergences"`
	Errata      []string      `json:"errata"`
	Measured    []measurement `json:"measured"`
	// Model are files that show the statement by a model or a reference of ours, and not by a program of somebody else's.
	// What nothing else shows certifies our own reading of the document, so it is counted apart.
	Model []measurement `json:"model"`
	// Otherwise are files that show that a program of somebody else's does not do what the statement says.
	Otherwise []measurement `json:"otherwise"`
	// Vectors are IDs of vectors of KEP-5681: k8s.io/apiserver is asked what they show.
	Vectors []string `json:"vectors"`
	// Untested says why no run can show the statement, Open what is missing to show it.
	Untested string `json:"untested"`
	Open     string `json:"open"`

	shown []vectorProof // of Vectors
}

// measurement is a file of the repository that measures or judges a statement.
type measurement struct {
	By   string `json:"by"`
	What string `json:"what"`
}

// coverageState is how well a statement is covered.
type coverageState string

const (
	stateTested   coverageState = "shown by scenarios"
	stateDeclared coverageState = "declared to differ"
	stateMeasured coverageState = "measured"
	stateModel    coverageState = "shown by our own model alone"
	stateUntested coverageState = "cannot be tested"
	stateOpen     coverageState = "open"
)

var coverageStates = []coverageState{stateTested, stateDeclared, stateMeasured, stateModel, stateUntested, stateOpen}

// state returns how well the statement is covered.
func (s statement) state() coverageState {
	switch {
	case s.Open != "":
		return stateOpen
	case s.Untested != "":
		return stateUntested
	case len(s.Divergences) > 0, len(s.Errata) > 0, len(s.Otherwise) > 0, s.hasVectorOf(library.Divergent):
		return stateDeclared
	case len(s.Scenarios) > 0:
		return stateTested
	case len(s.Measured) > 0, s.hasVectorOf(library.Agree):
		return stateMeasured
	}
	return stateModel
}

// measurements returns all files that the statement names.
func (s statement) measurements() []measurement {
	return slices.Concat(s.Measured, s.Otherwise, s.Model)
}

// checkEntry reports an error unless the statement has either something that shows it or one reason why nothing does.
func (s statement) checkEntry(t *testing.T, where string) {
	t.Helper()
	isShown := len(s.Scenarios)+len(s.Divergences)+len(s.Errata)+len(s.Vectors)+len(s.measurements()) > 0
	reasons := 0
	for _, reason := range []string{s.Untested, s.Open} {
		if reason != "" {
			reasons++
		}
	}
	switch {
	case s.Says == "":
		t.Errorf("%s: the statement quotes nothing", where)
	case !isShown && reasons == 0:
		t.Errorf("%s: nothing shows %q, and no reason is given", where, s.Says)
	case isShown && reasons > 0, reasons > 1:
		t.Errorf("%s: %q has several entries (expected what shows it, untested or open)", where, s.Says)
	}
}

// catalogueOfProof is what statements may name: scenarios, rows of the divergences, and quotes of the errata.
type catalogueOfProof struct {
	scenarios   []string
	divergences []string
	errata      []string
	vectors     map[string]vectorProof
}

// loadProof reads everything that statements may name.
func loadProof(t *testing.T) (c catalogueOfProof) {
	t.Helper()
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set.All() {
		c.scenarios = append(c.scenarios, s.ID)
	}
	page, err := os.ReadFile("divergences.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9]+|[a-zA-Z]) \|`).FindAllSubmatch(page, -1) {
		c.divergences = append(c.divergences, string(m[1]))
	}
	var errata []struct {
		Edits []struct {
			Says string `json:"says"`
		} `json:"edits"`
	}
	readYAML(t, filepath.Join(root, "verdicts/findings/errata_test.yaml"), &errata, yaml.Unmarshal)
	for _, e := range errata {
		for _, edit := range e.Edits {
			c.errata = append(c.errata, edit.Says)
		}
	}
	c.vectors = loadVectors(t)
	return c
}

// readYAML reads a file into out, and ends the test if it cannot.
func readYAML(t *testing.T, file string, out any, unmarshal func([]byte, any, ...yaml.JSONOpt) error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = unmarshal(data, out)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// hasScenario reports whether there is a scenario of an ID, or one in a folder.
func (c catalogueOfProof) hasScenario(name string) bool {
	folder, isFolder := strings.CutSuffix(name, "*")
	if isFolder {
		return slices.ContainsFunc(c.scenarios, func(id string) bool { return strings.HasPrefix(id, folder) })
	}
	return slices.Contains(c.scenarios, name)
}

// checkNames reports an error for everything that the statement names and that does not exist.
func (c catalogueOfProof) checkNames(t *testing.T, where string, s statement) {
	t.Helper()
	for _, name := range s.Scenarios {
		if !c.hasScenario(name) {
			t.Errorf("%s: there is no scenario %s", where, name)
		}
	}
	for _, row := range s.Divergences {
		if !slices.Contains(c.divergences, row) {
			t.Errorf("%s: docs/divergences.md has no row %s", where, row)
		}
	}
	for _, quote := range s.Errata {
		if !slices.ContainsFunc(c.errata, func(says string) bool { return strings.Contains(says, quote) }) {
			t.Errorf("%s: no erratum quotes %q", where, quote)
		}
	}
	for _, m := range s.measurements() {
		m.checkFile(t, where)
	}
}

// nameOfTest matches the tests and benchmarks that the text of a measurement names.
var nameOfTest = regexp.MustCompile(`\b(Test|Benchmark)[A-Z]\w*`)

// checkFile reports an error unless there is the file of a measurement, with the tests that its text names.
func (m measurement) checkFile(t *testing.T, where string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, m.By)); err != nil {
		t.Errorf("%s: there is no file %s", where, m.By)
		return
	}
	if !strings.HasSuffix(m.By, "_test.go") {
		return
	}
	for _, name := range nameOfTest.FindAllString(m.What, -1) {
		data, err := os.ReadFile(filepath.Join(root, m.By))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "\nfunc "+name+"(") {
			t.Errorf("%s: %s has no %s", where, m.By, name)
		}
	}
}

// longestQuote is over how many lines of a document a quote may go.
const longestQuote = 6

// checkQuotes reports an error for every statement that the document does not make in its line.
func (d coveredDocument) checkQuotes(t *testing.T, folder string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, d.File))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != d.SHA256 {
		t.Fatalf("%s is another text than the one that was quoted: its SHA-256 is %x", d.File, sum)
	}
	lines := strings.Split(string(data), "\n")
	for _, s := range d.Statements {
		if s.Line < 1 || s.Line > len(lines) {
			t.Errorf("%s has no line %d", d.File, s.Line)
			continue
		}
		text := strings.Join(strings.Fields(strings.Join(lines[s.Line-1:min(s.Line-1+longestQuote, len(lines))], " ")), " ")
		first := strings.Join(strings.Fields(lines[s.Line-1]), " ")
		if at := strings.Index(text, s.Says); at < 0 || at >= len(first) {
			t.Errorf("%s:%d does not begin %q", d.File, s.Line, s.Says)
		}
	}
}

// TestCoverage checks that docs/coverage.yaml has an entry for every statement, that what it names exists, that the quotes
// are the documents' own where these are at hand, and that the page is made from it.
func TestCoverage(t *testing.T) {
	var documents []coveredDocument
	readYAML(t, "coverage.yaml", &documents, yaml.UnmarshalStrict)
	proof := loadProof(t)
	for _, d := range documents {
		last := 0
		for i, s := range d.Statements {
			where := fmt.Sprintf("%s, line %d", d.Document, s.Line)
			s.checkEntry(t, where)
			proof.checkNames(t, where, s)
			d.Statements[i].shown = proof.findVectors(t, where, s.Vectors)
			if s.Line < last {
				t.Errorf("%s: the statement stands behind one of line %d (expected the order of the document)", where, last)
			}
			last = s.Line
		}
		if folder := os.Getenv(documentsVariable); folder != "" {
			d.checkQuotes(t, folder)
		}
	}
	ComparePart(t, "coverage.md", "made from docs/coverage.yaml by go test ./docs -update", renderCoverage(documents), *update)
}

// renderCoverage returns the page's tables: the counts by state, and every statement of each document.
func renderCoverage(documents []coveredDocument) string {
	var b strings.Builder
	b.WriteString("| document | statements |")
	for _, state := range coverageStates {
		fmt.Fprintf(&b, " %s |", state)
	}
	b.WriteString("\n|---|--:|" + strings.Repeat("--:|", len(coverageStates)) + "\n")
	for _, d := range documents {
		counts := d.countStates()
		fmt.Fprintf(&b, "| %s | %d |", d.Document, len(d.Statements))
		for _, state := range coverageStates {
			fmt.Fprintf(&b, " %d |", counts[state])
		}
		b.WriteString("\n")
	}
	for _, d := range documents {
		b.WriteString(d.renderModelShare())
	}
	for _, d := range documents {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| line | what it says | state | shown by |\n|--:|---|---|---|\n", d.Document, d.About)
		for _, s := range d.Statements {
			fmt.Fprintf(&b, "| `%d` | %s | %s | %s |\n", s.Line, escapeCell(s.Says), s.state(), s.renderProof())
		}
	}
	return b.String()
}

// countStates returns how many statements are in each state.
func (d coveredDocument) countStates() map[coverageState]int {
	counts := map[coverageState]int{}
	for _, s := range d.Statements {
		counts[s.state()]++
	}
	return counts
}

// renderModelShare returns the sentence that says how much of a document only our own model shows; "" if nothing.
func (d coveredDocument) renderModelShare() string {
	counts := d.countStates()
	model := counts[stateModel]
	if model == 0 {
		return ""
	}
	shown := len(d.Statements) - counts[stateUntested] - counts[stateOpen]
	return fmt.Sprintf("\nOf the %d statements of %s that something shows, %d (%d %%) are shown by our own model alone.\n",
		shown, d.Document, model, (100*model+shown/2)/shown)
}

// renderProof returns what shows a statement, or why nothing does, as a cell of a table.
func (s statement) renderProof() string {
	var out []string
	for _, name := range s.Scenarios {
		folder, isFolder := strings.CutSuffix(name, "/*")
		file := "../scenarios/" + name + ".yaml"
		if isFolder {
			file = "../scenarios/" + folder
		}
		out = append(out, "["+escapeCell(name)+"]("+file+")")
	}
	for _, row := range s.Divergences {
		out = append(out, "[divergence "+row+"](divergences.md)")
	}
	for range s.Errata {
		out = append(out, "[an edit](findings/errata.md)")
	}
	for _, v := range s.shown {
		out = append(out, v.render())
	}
	for _, m := range s.measurements() {
		link := "[" + m.By + "](../" + m.By + ")"
		if m.What != "" {
			link += ": " + m.What
		}
		out = append(out, link)
	}
	return cmp.Or(strings.Join(out, "<br>"), cmp.Or(s.Untested, s.Open))
}

// escapeCell returns a text as Markdown shows it in a cell of a table.
func escapeCell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "[", `\[`, "]", `\]`).Replace(text)
}
