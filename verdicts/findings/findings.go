// Package findings has the defects that scenarios have shown. Of each it says who is hurt, what causes it, what mends
// it, and what would be seen if it were mended.
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
	Row      string `json:"row"` // its row in docs/divergences.md, by which it can also be asked for
	Title    string `json:"title"`
	Severity string `json:"severity"`
	State    State  `json:"state"`
	Since    string `json:"since"` // the first Kubernetes minor that has it
	// Hurts says who is hurt, Expected what a reader of the documents expects, and Actual what happens.
	Hurts    string `json:"hurts"`
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
	// Scenarios are those that show the defect: they state what happens today. Turns are others whose result a fix
	// changes.
	Scenarios []string `json:"scenarios"`
	Turns     []string `json:"turns"`
	// Path is a file beside this one, with an upgrade path that fails where the defect is. A finding with a path has no
	// scenarios.
	Path string `json:"path"`
	// Memory says that the defect shows in the heap of a server on which many users were impersonated. Such a finding
	// has no scenarios.
	Memory bool    `json:"memory"`
	Cause  []Cause `json:"cause"`
	// Fix says what the change of code does that ci/mutants proves. Cost says what the change costs.
	Fix      string `json:"fix"`
	Cost     string `json:"cost"`
	Sentence string `json:"sentence"` // what the documentation should say, for good or until the defect is fixed
	// Patch is the patch of a document that adds the sentence, a file below docs/findings/patches.
	Patch string `json:"patch"`
}

// State is how far it is known how to mend a finding.
type State string

const (
	// FixProved means that ci/mutants has a change of code with which the scenarios give the other result.
	FixProved State = "fix proved"
	// Documentation means that the documentation has to say it. No change of code is proposed.
	Documentation State = "documentation"
)

// Cause is a place in the code of Kubernetes, or in a document.
type Cause struct {
	File     string `json:"file"` // the path below k8s.io; Function is declared in it
	Function string `json:"function"`
	Why      string `json:"why"`
}

// Files has findings.yaml, upgrade paths, and in fixed/ what scenarios would state if the findings were mended.
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

// mendedFiles are the files of the catalogue, some of which are replaced by files of fixed/.
type mendedFiles struct {
	fs.FS
	mended []string // the IDs of the scenarios that are replaced
}

// Open opens the file of fixed/ for a scenario that is mended, and the file of the catalogue for any other.
func (m mendedFiles) Open(name string) (fs.File, error) {
	if slices.Contains(m.mended, strings.TrimSuffix(name, ".yaml")) {
		return Files.Open("fixed/" + name)
	}
	return m.FS.Open(name)
}

// Mends returns the scenarios whose result a fix of the finding changes.
func (f *Finding) Mends() []string {
	return slices.DeleteFunc(slices.Concat(f.Scenarios, f.Turns), func(id string) bool {
		_, err := fs.Stat(Files, "fixed/"+id+".yaml")
		return err != nil || f.State != FixProved
	})
}

// Mended returns all scenarios as they would be if the finding were mended.
func (f *Finding) Mended() (*scenarios.Set, error) {
	return scenarios.Load(mendedFiles{scenarios.FS, f.Mends()}, fixtures.FS)
}

// Occurrence is what evidence shows of a finding.
type Occurrence string

const (
	// Happens means that the server does what the scenario states.
	Happens Occurrence = "still happens"
	// Gone means that the server does what the scenario would state if the finding were mended.
	Gone Occurrence = "does not happen"
	// Unclear means that the server does something else, or that nothing can be said.
	Unclear Occurrence = "unclear"
)

// Judge returns what the result of one of a finding's scenarios shows of the finding. mended are the scenarios that
// Mended returns. e is nil if nothing was recorded. why says what is unclear.
func (f *Finding) Judge(r verdicts.Result, e *verdicts.Evidence, mended *scenarios.Set) (seen Occurrence, why string) {
	switch {
	case r.Verdict == verdicts.Passed:
		return Happens, ""
	case r.Verdict != verdicts.Failed || e == nil || !slices.Contains(f.Mends(), r.Scenario):
		return Unclear, r.Reason
	}
	s, _ := mended.Get(r.Scenario)
	scenario := *s
	scenario.Digest = e.Digest // a test ensures that only the expectations differ, not the requests
	if result := verdicts.Judge(&scenario, e); result.Verdict != verdicts.Passed {
		return Unclear, fmt.Sprintf("%s; and if it were mended: %s", r.Reason, result.Reason)
	}
	return Gone, ""
}
