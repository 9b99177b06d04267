package reports

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

// The JUnit format as Jenkins and Prow read it: there is no standard, so only what the common schemas share is
// used.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Time     string       `xml:"time,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string           `xml:"name,attr"`
		Tests      int              `xml:"tests,attr"`
		Failures   int              `xml:"failures,attr"`
		Errors     int              `xml:"errors,attr"`
		Skipped    int              `xml:"skipped,attr"`
		Time       string           `xml:"time,attr"`
		Timestamp  string           `xml:"timestamp,attr"`
		Properties *junitProperties `xml:"properties"`
		Cases      []junitCase      `xml:"testcase"`
	}
	junitProperties struct {
		List []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string       `xml:"name,attr"`
		Classname string       `xml:"classname,attr"`
		Time      string       `xml:"time,attr"`
		Skipped   *junitDetail `xml:"skipped"`
		Error     *junitDetail `xml:"error"`
		Failure   *junitDetail `xml:"failure"`
	}
	junitDetail struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// renderJUnit makes one testsuite per cell with one testcase per scenario. A further one, for the run, holds the
// overall outcome: a mismatched witness or an outdated known-failing entry is not the fault of any scenario, and must not
// come out green.
func renderJUnit(r *ConformanceReport, evidence []*verdicts.Evidence) ([]byte, error) {
	at := index(evidence)
	all := junitSuites{Name: "authzconf", Time: seconds(r.Finished.Sub(r.Started))}
	all.Suites = append(all.Suites, runSuite(r))
	for i := range r.Cells {
		all.Suites = append(all.Suites, cellSuite(r, &r.Cells[i], at))
	}
	for i := range all.Suites {
		s := &all.Suites[i]
		s.count()
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
	}
	var b bytes.Buffer
	b.WriteString(xml.Header)
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return nil, err
	}
	b.WriteString("\n")
	return b.Bytes(), nil
}

// runSuite is the run as a whole.
func runSuite(r *ConformanceReport) junitSuite {
	c := junitCase{Name: "outcome", Classname: "authzconf.run", Time: seconds(0)}
	text := strings.Join(r.Outcome.Reasons, "\n")
	switch r.Outcome.Result {
	case RunPassed:
	case RunFailed:
		c.Failure = &junitDetail{Type: string(RunFailed), Message: firstLine(text), Text: text}
	default:
		c.Error = &junitDetail{Type: string(RunInvalid), Message: firstLine(text), Text: text}
	}
	return junitSuite{
		Name: "run", Time: seconds(r.Finished.Sub(r.Started)), Timestamp: timestamp(r.Started),
		Properties: &junitProperties{List: []junitProperty{
			{"implementation", strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version)},
			{"suiteVersion", r.SuiteVersion},
			{"scenariosDigest", r.ScenariosDigest},
			{"seed", fmt.Sprint(r.Seed)},
		}},
		Cases: []junitCase{c},
	}
}

func cellSuite(r *ConformanceReport, cell *Cell, at map[key]*verdicts.Evidence) junitSuite {
	s := junitSuite{
		Name: cell.Name, Timestamp: timestamp(r.Started),
		Time: seconds(time.Duration(cell.WallSeconds * float64(time.Second))),
		Properties: &junitProperties{List: []junitProperty{
			{"provider", cell.Provider},
			{"kubernetes", cell.Kubernetes},
			{"emulated", cell.Emulated},
			{"gate", cell.Gate},
			{"gitVersion", cell.Witness.GitVersion},
		}},
	}
	for _, result := range cell.Results {
		s.Cases = append(s.Cases, resultCase(cell.Name, result, at[key{cell.Name, result.Scenario}]))
	}
	for _, n := range cell.NotRun {
		c := newCase(cell.Name, n.Scenario, 0)
		c.Skipped = &junitDetail{Message: n.Why}
		s.Cases = append(s.Cases, c)
	}
	return s
}

func newCase(cell, scenario string, took time.Duration) junitCase {
	// Dots in a class name are packages to most readers.
	class := strings.ReplaceAll(cell, ".", "_") + "." + strings.ReplaceAll(path.Dir(scenario), "/", ".")
	return junitCase{Name: scenario, Classname: class, Time: seconds(took)}
}

func resultCase(cell string, r verdicts.Result, e *verdicts.Evidence) junitCase {
	var took time.Duration
	if e != nil {
		took = max(e.Ended.Sub(e.Started), 0)
	}
	c := newCase(cell, r.Scenario, took)
	switch {
	case r.KnownFailing != "":
		c.Skipped = &junitDetail{Message: "known failing: " + r.KnownFailing}
	case r.Verdict == verdicts.Passed:
	case r.Verdict == verdicts.Failed:
		c.Failure = &junitDetail{Type: string(r.Blame), Message: firstLine(r.Reason), Text: differenceText(r)}
	case r.Verdict == verdicts.NotSupported, r.Verdict == verdicts.Skipped:
		c.Skipped = &junitDetail{Message: firstLine(r.Reason)}
	default:
		c.Error = &junitDetail{Type: string(r.Blame), Message: firstLine(r.Reason), Text: r.Reason}
	}
	return c
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

func (s *junitSuite) count() {
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }

// timestamp is in the form that the schemas ask for, which has no zone.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }
