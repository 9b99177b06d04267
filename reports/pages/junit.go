package pages

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// testSuites is the root of the JUnit format as Jenkins, GitLab and Prow read it. There is no standard, so only what
// the common schemas share is used.

type testSuites struct {
	XMLName  xml.Name    `xml:"testsuites"`
	Name     string      `xml:"name,attr"`
	Time     seconds     `xml:"time,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Suites   []testSuite `xml:"testsuite"`
}

type testSuite struct {
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Errors     int        `xml:"errors,attr"`
	Skipped    int        `xml:"skipped,attr"`
	Time       seconds    `xml:"time,attr"`
	Timestamp  string     `xml:"timestamp,attr"`
	Properties []property `xml:"properties>property"`
	Cases      []testCase `xml:"testcase"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type testCase struct {
	Name      string   `xml:"name,attr"`
	Class     string   `xml:"classname,attr"`
	Time      seconds  `xml:"time,attr"`
	Failure   *problem `xml:"failure"`
	Error     *problem `xml:"error"`
	Skipped   *problem `xml:"skipped"`
	SystemOut string   `xml:"system-out,omitempty"`
}

// problem is why a test did not pass.
type problem struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// seconds are written with three digits.
type seconds float64

// MarshalText returns the seconds as JUnit has them.
func (s seconds) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, max(0, float64(s)), 'f', 3, 64), nil
}

// renderJUnit makes junit.xml, with a test suite for each group, preceded by one for the run. That one has the outcome:
// a wrong witness, or an outdated entry of the known-failing list, is not the fault of any case, and must not look
// green.
func renderJUnit(r *reports.Report) ([]byte, error) {
	all := testSuites{Name: "authzconf", Time: seconds(r.Finished.Sub(r.Started).Seconds()), Suites: []testSuite{describeRun(r)}}
	for i := range r.Groups {
		all.Suites = append(all.Suites, describeGroup(&r.Groups[i], r.Started))
	}
	for _, s := range all.Suites {
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Skipped += s.Skipped
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	return append(append([]byte(xml.Header), text...), '\n'), err
}

// describeRun returns the suite whose only test is the outcome of the run.
func describeRun(r *reports.Report) testSuite {
	s := testSuite{
		Name: "run", Time: seconds(r.Finished.Sub(r.Started).Seconds()), Timestamp: formatTimestamp(r.Started),
		Properties: []property{
			{"product", r.Product},
			{"subject", nameSubject(r.Subject)},
			{"suiteVersion", r.SuiteVersion},
			{"seed", strconv.FormatInt(r.Seed, 10)},
			{"command", strings.Join(r.Command, " ")},
			{"recordDigest", r.Record.Digest},
		},
	}
	outcome := testCase{Name: "outcome", Class: "authzconf.run"}
	if r.Outcome.Result != verdicts.Passed {
		why := strings.Join(r.Outcome.Reasons, "\n")
		p := &problem{Type: string(r.Outcome.Result), Message: reports.FirstLine(why), Text: why}
		if r.Outcome.Result == verdicts.Failed {
			outcome.Failure = p
		} else {
			outcome.Error = p
		}
	}
	s.add(outcome)
	return s
}

func formatTimestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

func describeGroup(g *reports.Group, started time.Time) testSuite {
	s := testSuite{
		Name: g.Name, Time: seconds(g.WallSeconds), Timestamp: formatTimestamp(started),
	}
	for _, f := range ListProperties(g) {
		s.Properties = append(s.Properties, property(f))
	}
	for _, r := range g.Cases {
		s.add(describeResult(g.Name, r))
	}
	for _, o := range g.NotRun {
		s.add(testCase{Name: o.Case, Class: nameClass(g.Name, o.Case), Skipped: &problem{Message: reports.FirstLine(o.Why)}})
	}
	return s
}

// add adds a test case, and counts it.
func (s *testSuite) add(c testCase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// nameClass returns the JUnit class of a case. To most readers, dots in it separate packages.
func nameClass(group, name string) string {
	class := strings.ReplaceAll(group, ".", "_")
	if dir := path.Dir(name); dir != "." {
		class += "." + strings.ReplaceAll(dir, "/", ".")
	}
	return class
}

func describeResult(group string, r reports.Result) testCase {
	c := testCase{Name: r.Case, Class: nameClass(group, r.Case), Time: seconds(r.Seconds)}
	p := &problem{Message: reports.FirstLine(r.Reason)}
	switch r.Mark() {
	case reports.MarkPassed:
		c.SystemOut = strings.Join(r.Details, "\n")
	case reports.MarkKnown:
		p.Message = "known failing: " + r.KnownFailing
		c.Skipped = p
	case reports.MarkFailed:
		p.Type, p.Text = string(r.Blame), describeProblem(r)
		p.Message = cmp.Or(p.Message, "failed")
		c.Failure = p
	case reports.MarkInvalid:
		p.Type, p.Text = string(r.Blame), describeProblem(r)
		p.Message = cmp.Or(p.Message, "invalid")
		c.Error = p
	default:
		c.Skipped = p
	}
	return c
}

// describeProblem returns everything that is known about why a case did not pass.
func describeProblem(r reports.Result) string {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "step %d: %s\n  want: %s\n  got:  %s\n", d.Step, d.Field, d.Want, d.Got)
	}
	for _, line := range r.Details {
		b.WriteString(line + "\n")
	}
	if r.Blame != "" {
		fmt.Fprintf(&b, "blame: %s\n", r.Blame)
	}
	fmt.Fprintf(&b, "reason: %s\n", r.Reason)
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "evidence: %s\n", e)
	}
	return b.String()
}
