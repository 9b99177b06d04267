package reports

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

// junitText is the JUnit format as Jenkins and Prow read it: there is no standard, so only what the common schemas
// share is used.
//
//go:embed junit.xml.tmpl
var junitText string

// junitRun is what junit.xml shows, a suite per cell with a case per scenario.
type junitRun struct {
	Took    time.Duration
	Started string // in the form that the schemas ask for, which has no zone
	Suites  []junitSuite
}

type junitSuite struct {
	Name       string
	Took       time.Duration
	Properties []fact
	Cases      []junitCase
}

// junitCase is a case; Kind is failure, error, skipped, or empty if it passed.
type junitCase struct {
	Name, Class               string
	Took                      time.Duration
	Kind, Type, Message, Text string
}

// Count is how many cases are of a kind; of "" all.
func (s junitSuite) Count(kind string) (n int) {
	for _, c := range s.Cases {
		if kind == "" || c.Kind == kind {
			n++
		}
	}
	return n
}

// Count is that of all suites.
func (r junitRun) Count(kind string) (n int) {
	for _, s := range r.Suites {
		n += s.Count(kind)
	}
	return n
}

// renderJUnit makes one testsuite per cell with one testcase per scenario. A further one, for the run, holds the
// overall outcome: a mismatched witness or an outdated known-failing entry is not the fault of any scenario, and must not
// come out green.
func renderJUnit(r *ConformanceReport, evidence []*verdicts.Evidence) ([]byte, error) {
	at := index(evidence)
	all := junitRun{Took: r.Finished.Sub(r.Started), Started: r.Started.UTC().Format("2006-01-02T15:04:05")}
	all.Suites = append(all.Suites, runSuite(r, all.Took))
	for i := range r.Cells {
		all.Suites = append(all.Suites, cellSuite(&r.Cells[i], at))
	}
	return renderText("junit", all)
}

// runSuite is the run as a whole.
func runSuite(r *ConformanceReport, took time.Duration) junitSuite {
	c := junitCase{Name: "outcome", Class: "authzconf.run"}
	if r.Outcome.Result != RunPassed {
		c.Kind, c.Type, c.Text = "error", string(RunInvalid), strings.Join(r.Outcome.Reasons, "\n")
		c.Message = firstLine(c.Text)
	}
	if r.Outcome.Result == RunFailed {
		c.Kind, c.Type = "failure", string(RunFailed)
	}
	return junitSuite{Name: "run", Took: took, Cases: []junitCase{c}, Properties: []fact{
		{"implementation", strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version)},
		{"suiteVersion", r.SuiteVersion}, {"scenariosDigest", r.ScenariosDigest}, {"seed", fmt.Sprint(r.Seed)},
	}}
}

func cellSuite(cell *Cell, at map[key]*verdicts.Evidence) junitSuite {
	s := junitSuite{
		Name: cell.Name, Took: time.Duration(cell.WallSeconds * float64(time.Second)), Properties: []fact{
			{"provider", cell.Provider}, {"kubernetes", cell.Kubernetes}, {"emulated", cell.Emulated}, {"gate", cell.Gate},
			{"gitVersion", cell.Witness.GitVersion},
		},
	}
	add := func(scenario string, c junitCase) {
		// Dots in a class name are packages to most readers.
		c.Name, c.Class = scenario, strings.ReplaceAll(cell.Name, ".", "_")+"."+strings.ReplaceAll(path.Dir(scenario), "/", ".")
		s.Cases = append(s.Cases, c)
	}
	for _, result := range cell.Results {
		c := resultCase(result)
		if e := at[key{cell.Name, result.Scenario}]; e != nil {
			c.Took = e.Ended.Sub(e.Started)
		}
		add(result.Scenario, c)
	}
	for _, n := range cell.NotRun {
		add(n.Scenario, junitCase{Kind: "skipped", Message: n.Why})
	}
	return s
}

func resultCase(r verdicts.Result) junitCase {
	switch {
	case r.KnownFailing != "":
		return junitCase{Kind: "skipped", Message: "known failing: " + r.KnownFailing}
	case r.Verdict == verdicts.Passed:
		return junitCase{}
	case r.Verdict == verdicts.Failed:
		return junitCase{Kind: "failure", Type: string(r.Blame), Message: firstLine(r.Reason), Text: differenceText(r)}
	case r.Verdict == verdicts.NotSupported, r.Verdict == verdicts.Skipped:
		return junitCase{Kind: "skipped", Message: firstLine(r.Reason)}
	}
	return junitCase{Kind: "error", Type: string(r.Blame), Message: firstLine(r.Reason), Text: r.Reason}
}

// differenceText lists all differences of a failure, and whose fault it is.
func differenceText(r verdicts.Result) string {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "step %d: %s\n  want: %s\n  got:  %s\n", d.Step, d.Field, d.Want, d.Got)
	}
	fmt.Fprintf(&b, "blame: %s\nreason: %s\n", r.Blame, r.Reason)
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
