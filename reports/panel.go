package reports

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// panel is what is shown of one scenario on one cell, and on all others that cannot be told apart from it.
type panel struct {
	Anchor   string
	Cells    []panelCell
	Mark     Mark
	Result   verdicts.Result
	Reason   string // beyond the differences
	Open     bool
	Took     string
	Suffix   string
	Names    map[string]string // by those of the scenario
	Problems []verdicts.Problem
	Steps    []stepView
	Control  []string
}

type stepView struct {
	Number int
	Title  string // of what the scenario has no step for
	// Step is of the scenario Bound, Missing what did not happen of it, Seen what was seen if it is a request.
	Step        *scenarios.Step
	Bound       *scenarios.Scenario
	Missing     string
	Seen        *verdicts.Observation
	Checks      []checkView
	Reviews     []reviewRow
	ReviewsNote string
}

type panelCell struct {
	Name      string
	Evidence  string // path of the evidence file
	NotJudged []string
}

type checkView struct {
	Field, Want, Got string
	State            string // same or differs
}

func newPanel(s *scenarios.Scenario, c *Cell, r verdicts.Result, e *verdicts.Evidence) panel {
	p := panel{
		Anchor: anchor(c.Name, r.Scenario), Cells: []panelCell{{Name: c.Name, NotJudged: r.NotJudged}}, Mark: markOf(r), Result: r, Reason: furtherReason(r),
		Open: bad(r),
	}
	if e == nil {
		return p
	}
	p.Cells[0].Evidence = evidencePath(c.Name, r.Scenario)
	p.Took, p.Suffix, p.Names, p.Problems = took(e.Started, e.Ended), e.Suffix, e.Names, e.Problems
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	at := map[int]*verdicts.Observation{}
	for i := range e.Steps {
		at[e.Steps[i].Step] = &e.Steps[i]
	}
	met := verdicts.Met(s, e)
	for i := range bound.Steps {
		if bound.Steps[i].Kubectl != nil {
			p.Steps = append(p.Steps, clientSteps(i, bound, met, r, e, at[i])...)
			continue
		}
		p.Steps = append(p.Steps, newStep(i, "", &bound.Steps[i], bound, met, r, e, at[i]))
	}
	if e.Control != nil {
		for i := range e.Control.Steps {
			p.Control = append(p.Control, observedLines(&e.Control.Steps[i])...)
		}
	}
	return p
}

// newStep shows a request; prefix begins the fields of what was found in it.
func newStep(i int, prefix string, st *scenarios.Step, bound *scenarios.Scenario, met []verdicts.Difference, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) stepView {
	v := stepView{Number: i, Step: st, Bound: bound, Seen: o}
	switch {
	case st.Request == nil:
	case o == nil:
		v.Missing = "was not sent"
	case st.Expect != nil:
		v.Checks = checks(i, prefix, met, r.Differences)
		v.reviews(st, bound.Requestors[st.Request.By], prefix, r, e, o)
	}
	return v
}

func said(o *verdicts.Observation) string {
	if o.Client != nil {
		return excerpt(o.Client.Stderr + o.Client.Stdout)
	}
	if st := verdicts.StatusOf(o.Response); st != nil && st.Message != "" {
		return st.Message
	}
	return excerpt(o.Response.Body)
}

// reviews sets the transcript of access reviews, expected beside seen.
func (v *stepView) reviews(st *scenarios.Step, requestor scenarios.Requestor, prefix string, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) {
	if !slices.Contains(e.Capabilities, scenarios.Reviews) {
		v.ReviewsNote = "The target cannot show access reviews."
		return
	}
	decided, _ := verdicts.Fold(o.Reviews)
	got := seq.Map(decided, func(d verdicts.Decided) review { return review{Review: verdicts.Describe(d), user: d.Spec.User} })
	if st.Expect.Reviews == nil {
		v.ReviewsNote = "The scenario does not judge the access reviews of this request."
		for i := range got {
			v.Reviews = append(v.Reviews, reviewRow{Got: alone(&got[i]), State: "unjudged"})
		}
		return
	}
	v.Reviews = alignReviews(wantedReviews(st, requestor), got)
	v.markJudged(prefix, r)
	if len(v.Reviews) == 0 {
		v.ReviewsNote = "None expected, none seen."
	}
}

// requestorField is the field of a difference in who a review says that the requestor is.
var requestorField = regexp.MustCompile(`^reviews\[(\d+)\]\.requestor$`)

// markJudged adds what the judge found in a review and no attribute shows: groups, UID and extra of the requestor.
func (v *stepView) markJudged(prefix string, r verdicts.Result) {
	for _, d := range r.Differences {
		m := requestorField.FindStringSubmatch(strings.TrimPrefix(d.Field, prefix))
		if d.Step != v.Number || m == nil {
			continue
		}
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(v.Reviews) && v.Reviews[i].Want != nil && v.Reviews[i].Got != nil {
			row := &v.Reviews[i]
			row.State = "differs"
			row.Want.Attrs = append(row.Want.Attrs, reviewAttr{"requestor", d.Want, true})
			row.Got.Attrs = append(row.Got.Attrs, reviewAttr{"requestor", d.Got, true})
		}
	}
}

// shownFields are the fields of expectations that are shown where they were met; of what follows from others, and of
// what the judge holds together besides, only differences are.
var shownFields = regexp.MustCompile(`^(outcome|code|message|output|user in .*|backend|audit\.(impersonatedUser|constraint|decision)|` +
	`metrics\.(attempts|authorizations)|exitCode|std(out|err)(\[\d+\])?|requests|oneOf)$`)

// checks lists what was compared in one step, or in one request of a client, whose fields have a prefix: what was met,
// then the differences, but for those of reviews, which have a table.
func checks(step int, prefix string, met, differences []verdicts.Difference) (rows []checkView) {
	for _, list := range [][]verdicts.Difference{met, differences} {
		for _, d := range list {
			field, here := strings.CutPrefix(d.Field, prefix)
			here = here && d.Step == step && !strings.HasPrefix(field, "reviews") && !strings.HasPrefix(field, "requests[")
			switch {
			case here && d.Want != d.Got:
				rows = append(rows, checkView{Field: field, Want: d.Want, Got: d.Got, State: "differs"})
			case here && shownFields.MatchString(field):
				rows = append(rows, checkView{Field: field, Want: d.Want, Got: d.Got, State: "same"})
			}
		}
	}
	return rows
}

// indent formats JSON for reading, with as few bytes as reads well.
func indent(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", " "); err != nil {
		return string(raw)
	}
	return b.String()
}

// excerptLength is how much of an answer that is not a Status is shown: the whole is in the evidence.
const excerptLength = 240

func excerpt(body string) string {
	return Ellipsis(strings.Join(strings.Fields(body), " "), excerptLength)
}

func took(from, to time.Time) string {
	if from.IsZero() || to.Before(from) {
		return ""
	}
	return FormatDuration(to.Sub(from))
}
