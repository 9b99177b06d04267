package conformance

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// compareReviews returns a table for each request of a scenario: the expected access reviews beside the observed ones, in
// the names of the scenario.
func compareReviews(s *scenarios.Scenario, e *verdicts.Evidence, result verdicts.Result) (tables []reports.Table) {
	if !slices.Contains(e.Capabilities, scenarios.Reviews) {
		return nil
	}
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	for i := range e.Steps {
		o := &e.Steps[i]
		if o.Step >= len(bound.Steps) {
			continue // The verdict says so.
		}
		for _, r := range listRequests(&bound.Steps[o.Step], o) {
			if t := r.compare(bound, result); len(t.Rows) > 0 {
				tables = append(tables, plainTable(e.Names, t))
			}
		}
	}
	return tables
}

// judgedRequest is a request of a step beside what was observed of it.
type judgedRequest struct {
	title string
	// prefix begins the fields of the differences that were found in it.
	prefix      string
	step        *scenarios.Step
	observation *verdicts.Observation
}

// listRequests returns the request of a step, or those that a client sent in its place.
func listRequests(st *scenarios.Step, o *verdicts.Observation) (all []judgedRequest) {
	if st.Kubectl == nil {
		return []judgedRequest{{title: fmt.Sprintf("step %d", o.Step), step: st, observation: o}}
	}
	for n := range min(len(o.Requests), len(st.ExpectClient.Requests)) {
		step := st.Kubectl.Step(st.ExpectClient.Requests[n])
		observation := o.Requests[n]
		observation.Step = o.Step
		all = append(all, judgedRequest{
			title:       fmt.Sprintf("request %d of the client of step %d", n, o.Step),
			prefix:      verdicts.ClientField(n),
			step:        step,
			observation: &observation,
		})
	}
	return all
}

// compare puts the reviews of a request side by side. A request whose reviews are not judged has none.
func (r judgedRequest) compare(bound *scenarios.Scenario, result verdicts.Result) reports.Table {
	t := reports.Table{Title: "Access reviews of " + r.title, Columns: []string{"", "Expected", "Observed"}, Numeric: []int{0}}
	if r.step.Expect == nil || r.step.Expect.Reviews == nil {
		return t
	}
	decisions, _ := verdicts.DeriveDecisions(r.observation.Reviews)
	got := seq.Map(decisions, func(d verdicts.DecidedReview) review { return review{Review: verdicts.Describe(d), user: d.Spec.User} })
	rows := alignReviews(wantedReviews(r.step, bound.Requestors[r.step.Request.By]), got)
	r.markRequestors(rows, result)
	for i, row := range rows {
		line := reports.Row{Cells: []string{strconv.Itoa(i), row.Want.text(), row.Got.text()}}
		if row.AnyOrder {
			line.Cells[1] += " (in any order)"
		}
		if row.State != rowSame {
			line.Verdict = verdicts.Failed
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// requestorField is the field of a difference in who a review says that the requestor is.
var requestorField = regexp.MustCompile(`^reviews\[(\d+)\]\.requestor$`)

// markRequestors adds what the judge found in a review and no attribute shows: groups, UID and extra of the requestor.
func (r judgedRequest) markRequestors(rows []reviewRow, result verdicts.Result) {
	for _, d := range result.Differences {
		m := requestorField.FindStringSubmatch(strings.TrimPrefix(d.Field, r.prefix))
		if d.Step != r.observation.Step || m == nil {
			continue
		}
		i, err := strconv.Atoi(m[1])
		if err != nil || i >= len(rows) {
			continue
		}
		row := &rows[i]
		if row.Want == nil || row.Got == nil {
			continue
		}
		row.State = rowDiffers
		row.Want.Attrs = append(row.Want.Attrs, reviewAttr{"requestor", d.Want})
		row.Got.Attrs = append(row.Got.Attrs, reviewAttr{"requestor", d.Got})
	}
}

// text returns one side of a row, for example "Allow: verb list, resource pods, namespace default". A side that is
// missing is a dash.
func (s *reviewSide) text() string {
	if s == nil {
		return "–"
	}
	attrs := seq.Map(s.Attrs, func(a reviewAttr) string { return a.Name + " " + cmp.Or(a.Value, "(none)") })
	return string(s.Decision) + ": " + strings.Join(attrs, ", ")
}

// plainTable puts the names of the scenario in the place of the unique ones.
func plainTable(names map[string]string, t reports.Table) reports.Table {
	for _, row := range t.Rows {
		for i := range row.Cells {
			row.Cells[i] = plainNames(names, row.Cells[i])
		}
	}
	return t
}
