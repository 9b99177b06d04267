// Package findings are the defects that scenarios have shown: who is hurt, what causes each, what mends it, and what
// would be seen if it were mended.
package findings

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Finding is a defect of servers or documents, as a report to their maintainers states it.
type Finding struct {
	ID       string `json:"id"`
	Row      string `json:"row"` // its row in docs/divergences.md, by which it can be asked for too
	Title    string `json:"title"`
	Severity string `json:"severity"`
	State    State  `json:"state"`
	Since    string `json:"since"` // the first Kubernetes minor that has it
	// Hurts says who is hurt; Expected and Actual what a reader of the documents expects, and what happens.
	Hurts    string `json:"hurts"`
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
	// Scenarios show it: they state what happens today. Turns are others that a fix makes different.
	Scenarios []string `json:"scenarios"`
	Turns     []string `json:"turns"`
	// Path is an upgrade path, a file beside this one, that fails where it happens; then there are no scenarios.
	Path string `json:"path"`
	// Memory says that what shows it is the heap of a server that many users were impersonated on; then there are no scenarios.
	Memory bool    `json:"memory"`
	Cause  []Cause `json:"cause"`
	// Fix says what the change of code does that ci/mutants proves, and Cost what it costs.
	Fix      string `json:"fix"`
	Cost     string `json:"cost"`
	Sentence string `json:"sentence"` // what the documentation should say, until then or for good
	// Patch is the patch of a document that makes it say so, a file below docs/findings/patches.
	Patch string `json:"patch"`
}

// State is what is known of how to mend a finding.
type State string

const (
	// FixProved: ci/mutants has a change of code, with which the scenarios turn.
	FixProved State = "fix proved"
	// Documentation: the documentation has to say it; no change of code is proposed.
	Documentation State = "documentation"
)

// Cause is a place in the code of Kubernetes, or in a document.
type Cause struct {
	File     string `json:"file"` // the path below k8s.io; Function is one that it declares
	Function string `json:"function"`
	Why      string `json:"why"`
}

// Files are findings.yaml, upgrade paths, and in fixed/ what scenarios would state if the findings were mended.
//
//go:embed findings.yaml direct.yaml fixed
var Files embed.FS

// Load reads all findings, the most severe first.
func Load() (all []Finding, err error) {
	text, err := Files.ReadFile("findings.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	return all, err
}

// mendedFiles are the catalogue's files, with those of fixed/ in the place of some.
type mendedFiles struct {
	fs.FS
	mended []string // their IDs
}

// Open opens the file of fixed/ for what is mended.
func (m mendedFiles) Open(name string) (fs.File, error) {
	if slices.Contains(m.mended, strings.TrimSuffix(name, ".yaml")) {
		return Files.Open("fixed/" + name)
	}
	return m.FS.Open(name)
}

// Mends are the scenarios that a fix of the finding makes different.
func (f *Finding) Mends() []string {
	return slices.DeleteFunc(slices.Concat(f.Scenarios, f.Turns), func(id string) bool {
		_, err := fs.Stat(Files, "fixed/"+id+".yaml")
		return err != nil || f.State != FixProved
	})
}

// Mended are all scenarios as they would be if the finding were mended.
func (f *Finding) Mended() (*scenarios.Set, error) {
	return scenarios.Load(mendedFiles{scenarios.FS, f.Mends()}, fixtures.FS)
}

// Seen is what evidence says of a finding.
type Seen string

const (
	// Happens: the server does what the scenario states.
	Happens Seen = "still happens"
	// Gone: it does what the scenario would state if the finding were mended.
	Gone Seen = "does not happen"
	// Unclear: it does something else, or nothing can be said.
	Unclear Seen = "unclear"
)

// Judge says whether the finding shows in what became of one of its scenarios; mended are those of Mended, and e is nil
// if nothing was recorded. why says what is unclear.
func (f *Finding) Judge(r verdicts.Result, e *verdicts.Evidence, mended *scenarios.Set) (seen Seen, why string) {
	switch {
	case r.Verdict == verdicts.Passed:
		return Happens, ""
	case r.Verdict != verdicts.Failed || e == nil || !slices.Contains(f.Mends(), r.Scenario):
		return Unclear, r.Reason
	}
	s, _ := mended.Get(r.Scenario)
	as := *s
	as.Digest = e.Digest // the requests are the same: only what is expected differs, which a test holds
	if again := verdicts.Judge(&as, e); again.Verdict != verdicts.Passed {
		return Unclear, fmt.Sprintf("%s; and if it were mended: %s", r.Reason, again.Reason)
	}
	return Gone, ""
}
