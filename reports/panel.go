package reports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// panel is what is shown of one scenario on one cell, and on all others that cannot be told apart from it.
type panel struct {
	Anchor   string
	Cells    []panelCell
	Mark     mark
	Result   verdicts.Result
	Reason   string // beyond the differences
	Open     bool
	Took     string
	Suffix   string
	Problems []verdicts.Problem
	Steps    []stepView
	Control  []string
}

// stepView is one step of a scenario as it was run.
type stepView struct {
	Number int
	Title  string
	// Request says whether the rest is set: other steps are a line.
	Request     bool
	Line        string
	Headers     []headerView
	Body        string
	Code        string
	Message     string
	Warnings    []string
	Checks      []checkView
	Reviews     []reviewRow
	ReviewsNote string
	Audit       string
	Metrics     []verdicts.MetricSample
	HasMetrics  bool
	Took        string
}

// panelCell is one cell of a panel.
type panelCell struct {
	Name      string
	Evidence  string // path of the evidence file
	NotJudged []string
}

type headerView struct{ Name, Value string }

// checkView is one expectation beside what was seen.
type checkView struct {
	Field, Want, Got string
	// State is same or differs.
	State string
}

// newPanel shows a result with its evidence, which may be missing.
func newPanel(s *scenarios.Scenario, c *Cell, r verdicts.Result, e *verdicts.Evidence) panel {
	p := panel{
		Anchor: anchor(c.Name, r.Scenario), Cells: []panelCell{{Name: c.Name, NotJudged: r.NotJudged}}, Mark: markOf(r), Result: r, Reason: furtherReason(r),
		Open: r.KnownFailing == "" && (r.Verdict == verdicts.Failed || r.Verdict == verdicts.Invalid),
	}
	if e == nil {
		return p
	}
	p.Cells[0].Evidence = evidencePath(c.Name, r.Scenario)
	p.Took, p.Suffix, p.Problems = took(e.Started, e.Ended), e.Suffix, e.Problems
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
	v := stepView{Number: i, Title: stepTitle(st, bound)}
	if st.Request == nil {
		return v
	}
	v.Request = true
	if o == nil {
		v.Title += ": was not sent"
		return v
	}
	v.answer(o)
	if st.Expect == nil {
		return v
	}
	v.Checks = checks(i, prefix, met, r.Differences)
	v.reviews(st, bound.Requestors[st.Request.By], prefix, r, e, o)
	return v
}

// answer sets what was sent and what came back.
func (v *stepView) answer(o *verdicts.Observation) {
	v.Line = o.Request.Method + " " + o.Request.URL
	v.Headers = append(v.Headers, headerView{"requestor", o.Request.Requestor})
	for _, k := range sortedKeys(o.Request.Headers) {
		for _, value := range o.Request.Headers[k] {
			v.Headers = append(v.Headers, headerView{k, value})
		}
	}
	v.Body = indent(o.Request.Body)
	v.Code = strings.TrimSpace(strconv.Itoa(o.Response.Code) + " " + http.StatusText(o.Response.Code))
	if st := verdicts.StatusOf(o.Response); st != nil && st.Message != "" {
		v.Message = st.Message
	} else {
		v.Message = excerpt(o.Response.Body)
	}
	v.Warnings = o.Response.Warnings
	v.Audit = indent(o.Audit)
	v.Metrics, v.HasMetrics = o.Metrics, o.Metrics != nil
	v.Took = took(o.Sent, o.Answered)
}

// reviews sets the transcript of access reviews, expected beside seen.
func (v *stepView) reviews(st *scenarios.Step, requestor scenarios.Requestor, prefix string, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) {
	if !slices.Contains(e.Capabilities, scenarios.Reviews) {
		v.ReviewsNote = "The target cannot show access reviews."
		return
	}
	decided, _ := verdicts.Fold(o.Reviews)
	got := seenReviews(decided)
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

// reviewField is the field of a difference in one review.
var reviewField = regexp.MustCompile(`^reviews\[(\d+)\]\.(\w+)$`)

// markJudged adds what the judge found in a review beyond the attributes that a row shows, such as the groups of
// the requestor.
func (v *stepView) markJudged(prefix string, r verdicts.Result) {
	for _, d := range r.Differences {
		m := reviewField.FindStringSubmatch(strings.TrimPrefix(d.Field, prefix))
		if d.Step != v.Number || m == nil {
			continue
		}
		i, err := strconv.Atoi(m[1])
		if err != nil || i >= len(v.Reviews) || v.Reviews[i].Want == nil || v.Reviews[i].Got == nil {
			continue
		}
		row := &v.Reviews[i]
		if row.State == "differs" && slices.ContainsFunc(row.Want.Attrs, func(a reviewAttr) bool { return a.Differs && shows(a.Name, m[2]) }) ||
			m[2] == "decision" && row.Want.DecisionDiffers {
			continue
		}
		row.State = "differs"
		row.Want.Attrs = append(row.Want.Attrs, reviewAttr{m[2], d.Want, true})
		row.Got.Attrs = append(row.Got.Attrs, reviewAttr{m[2], d.Got, true})
	}
}

// shows says whether the attribute shown under a name covers a field.
func shows(name, field string) bool {
	switch name {
	case "resource":
		return field == "resource" || field == "subresource"
	case "api":
		return field == "group" || field == "version"
	case "fields":
		return field == "fieldSelector"
	case "labels":
		return field == "labelSelector"
	}
	return name == field
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

// stepTitle words a step.
func stepTitle(st *scenarios.Step, bound *scenarios.Scenario) string {
	switch {
	case st.Name != "":
		return st.Name
	case st.Request != nil:
		r := st.Request
		what := r.Path
		if what == "" {
			what = strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
			if r.Name != "" {
				what += " " + r.Name
			}
		}
		as := ""
		if r.Impersonate != nil || len(r.Headers) > 0 {
			as = ", impersonating " + cmp.Or(r.WantedUser(), "nobody") + ","
		}
		return bound.Requestors[r.By].Username() + as + " asks to " + r.Verb + " " + what
	case st.Kubectl != nil:
		return bound.Requestors[st.Kubectl.By].Username() + " runs " + st.Kubectl.Line()
	case st.Wait != 0:
		return "wait until " + time.Duration(st.Wait).String() + " after the previous answer"
	case st.Reload != "":
		return "the authorizer chain becomes " + st.Reload
	case st.Grant != "":
		return "the grant " + st.Grant + " comes into force"
	default:
		return "the grant " + st.Revoke + " is taken away"
	}
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
	return ellipsis(strings.Join(strings.Fields(body), " "), excerptLength)
}

func took(from, to time.Time) string {
	if from.IsZero() || to.Before(from) {
		return ""
	}
	d := to.Sub(from)
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
