package product

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

// Planner returns the command line, parsed, of the product that recorded words start, and its positional arguments. words
// are those behind the program's name.
type Planner func(words []string) (c *CommandLine, args []string, err error)

// Verification is what came out of verifying a report.
type Verification struct {
	Report *reports.Report
	// Marker is report.yaml as it was read, which a signature is about.
	Marker []byte
	// View is the record; it can be read only if it is whole.
	View record.View
	// Plan is the plan of the recorded command line, nil if it could not be made.
	Plan Plan
	// Cases is how many verdicts were computed again.
	Cases int
	// Differences say, a line each, how the report is not what the record gives. There are none in an honest report.
	Differences []string
}

// Verify reads a report from its folder and makes it again: the files are whole, the plan of the recorded command line is
// the recorded plan, and the judge comes to the recorded report. An error means that there is nothing to be verified.
func Verify(read func(name string) ([]byte, error), plan Planner, messages io.Writer) (*Verification, error) {
	marker, err := read(reports.ReportFile)
	if err != nil {
		return nil, err
	}
	v := &Verification{Marker: marker}
	if v.Report, err = reports.DecodeJudged(reports.ReportFile, marker); err != nil {
		return nil, err
	}
	v.checkDates(time.Now())
	for name, want := range v.Report.Pages {
		if data, err := read(name); err != nil {
			v.differ("%s: %v", name, err)
		} else if record.Digest(data) != want {
			v.differ("%s: its digest is not the one in %s", name, reports.ReportFile)
		}
	}
	var broken []string
	v.View, broken = record.Open(read, v.Report.Record)
	if v.Differences = append(v.Differences, broken...); len(broken) > 0 {
		return v, nil
	}
	if err := v.repeat(plan, messages); err != nil {
		v.differ("%v", err)
	}
	return v, nil
}

// clockTolerance is how far the clock of whoever made a report may be ahead of the verifier's.
const clockTolerance = 5 * time.Minute

// checkDates refuses a report of a time that has not come yet, or that ended before it began.
func (v *Verification) checkDates(now time.Time) {
	for name, at := range map[string]time.Time{"started": v.Report.Started, "finished": v.Report.Finished} {
		if at.After(now.Add(clockTolerance)) {
			v.differ("%s: %s has not come yet", name, at.Format(time.RFC3339))
		}
	}
	if v.Report.Finished.Before(v.Report.Started) {
		v.differ("finished: %s is before it started", v.Report.Finished.Format(time.RFC3339))
	}
}

// Attester is a plan whose record holds what somebody else has signed, such as a certifier's challenge.
type Attester interface {
	// Attest returns in words who made the report, as far as keys show it. hasSigned reports whether a key has signed the
	// report. Each difference is a line.
	Attest(keys []*record.Key, hasSigned func(*record.Key) bool) (maker string, differences []string)
	// Answers reports whether the report answers a challenge.
	Answers(challenge []byte) bool
}

func (v *Verification) differ(format string, args ...any) {
	v.Differences = append(v.Differences, fmt.Sprintf(format, args...))
}

// repeat plans and judges again.
func (v *Verification) repeat(plan Planner, messages io.Writer) error {
	head, err := record.Read[header](v.View, headerKey)
	if err != nil {
		return err
	}
	prepared, err := v.prepare(plan, head, messages)
	if err != nil {
		return fmt.Errorf("the command line %q: %w", head.Command, err)
	}
	v.Plan = prepared.Plan
	cases := prepared.Plan.Cases()
	if !bytes.Equal(normalize(cases), normalize(head.Cases)) {
		return fmt.Errorf("the recorded plan is not that of the command line %q: %s", head.Command, firstDifference(cases, head.Cases))
	}
	report, err := conclude(prepared, v.View, v.Report.Record, &knownResults{})
	if err != nil {
		return err
	}
	for _, c := range cases {
		if c.NotRun == nil {
			v.Cases++
		}
	}
	return v.compare(report)
}

// prepare makes the plan of the recorded command line.
func (v *Verification) prepare(plan Planner, head *header, messages io.Writer) (*PreparedRun, error) {
	if len(head.Command) < 2 {
		return nil, errors.New("it is empty")
	}
	line, args, err := plan(head.Command[1:])
	if err != nil {
		return nil, err
	}
	if line.Product.Name != head.Product {
		return nil, fmt.Errorf("it starts %s, and the record is of %s", line.Product.Name, head.Product)
	}
	i := NewInvocation(args, head.SuiteVersion, messages)
	i.Seed, i.Recorded = head.Seed, &v.View
	maps.Copy(i.inputs, head.Inputs)
	return line.Prepare(i)
}

// normalize returns cases as a reader of the record has them.
func normalize(cases []Case) []byte {
	data, err := record.EncodeJSON(cases, "")
	if err != nil {
		return nil
	}
	return data
}

func firstDifference(planned, recorded []Case) string {
	for i, c := range planned {
		if i >= len(recorded) {
			return fmt.Sprintf("%s is missing in the record", c.ID)
		}
		if !bytes.Equal(normalize([]Case{c}), normalize([]Case{recorded[i]})) {
			return fmt.Sprintf("it has %s where the record has %s", c.ID, recorded[i].ID)
		}
	}
	return fmt.Sprintf("the record has %d cases more", len(recorded)-len(planned))
}

// compare compares the report that was read with the one that was made again.
func (v *Verification) compare(recomputed *reports.Report) error {
	recomputed.Pages = v.Report.Pages
	recomputedJSON, err := recomputed.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(recomputedJSON, v.Marker) {
		v.Differences = append(v.Differences, reports.CompareReports(v.Report, recomputed)...)
	}
	return nil
}
