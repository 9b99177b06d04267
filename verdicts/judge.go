package verdicts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Judge is the verdict of scenario s, as it was loaded, on evidence e. It depends on nothing else.
func Judge(s *scenarios.Scenario, e *Evidence) Result {
	r := judgeOnce(s, e)
	if late := behind(s, e, r); late != "" && e.Control != nil {
		return inTime(s, e, late)
	}
	if r.Verdict == Failed {
		r.Blame, r.Reason = blame(s, e, r)
	}
	return r
}

// Met are what was compared in evidence and as it is wanted: differences whose sides are the same.
func Met(s *scenarios.Scenario, e *Evidence) []Difference {
	j := &judge{e: e}
	j.once(s)
	return j.met
}

// judgeOnce judges without the control run.
func judgeOnce(s *scenarios.Scenario, e *Evidence) Result { return (&judge{e: e}).once(s) }

func (j *judge) once(s *scenarios.Scenario) Result {
	e := j.e
	j.result = Result{Scenario: s.ID, Level: s.Level, Cell: e.Cell.Name}
	if s.Digest != e.Digest {
		return j.invalid(BlameHarness, "the evidence was made with another text of this scenario (digest "+short(e.Digest)+", not "+short(s.Digest)+")")
	}
	if len(e.Problems) > 0 {
		p := e.Problems[0]
		if !e.Capabilities.Foreign() && p.refused() {
			return j.broken(Difference{Step: len(e.Steps), Field: setupField, Want: "what system:masters may do", Got: p.Text})
		}
		return j.invalid(p.Blame, p.Text)
	}
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	if e.StandIns {
		accounts, why := bound.Substitute()
		if why != "" {
			return j.invalid(BlameHarness, "no substitute ServiceAccount is possible here: "+why)
		}
		bound = accounts
	}
	j.s = bound
	if e.Unheeded != nil {
		return j.unheeded(e.Unheeded)
	}
	seen := 0
	for i := 0; i < len(bound.Steps); {
		group := bound.Together(i)
		first := i
		i += len(group)
		if group[0].Sent() == nil {
			continue
		}
		for at := range group {
			if seen+at >= len(e.Steps) || e.Steps[seen+at].Step != first+at {
				return j.invalid(BlameHarness, "there is no observation of step "+strconv.Itoa(first+at))
			}
		}
		if problem := j.steps(first, group, e.Steps[seen:seen+len(group)]); problem != "" {
			return j.invalid(BlameHarness, fmt.Sprintf("step %d: %s", first, problem))
		}
		seen += len(group)
	}
	if seen != len(e.Steps) {
		return j.invalid(BlameHarness, "the evidence has more steps than the scenario")
	}
	return j.conclude()
}

// judge collects differences over the steps of one scenario.
type judge struct {
	s      *scenarios.Scenario // bound
	e      *Evidence
	result Result
	met    []Difference
}

func (j *judge) invalid(b Blame, why string) Result {
	j.result.Verdict, j.result.Blame, j.result.Reason = Invalid, b, why
	return j.result
}

func (j *judge) conclude() Result {
	switch {
	case len(j.result.Differences) > 0:
		j.result.Verdict = Failed
		d := j.result.Differences[0]
		j.result.Reason = fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
	case j.result.Judged == 0:
		return j.invalid(BlameHarness, "nothing was judged")
	default:
		j.result.Verdict = Passed
	}
	return j.result
}

func (j *judge) has(c scenarios.Capability) bool { return slices.Contains(j.e.Capabilities, c) }

// audited says that there is to be an audit event.
func (v *stepJudge) audited() bool {
	return v.has(scenarios.Audit) && scenarios.AuditLevel(v.requestor.Groups) != scenarios.AuditNone
}

func (j *judge) notJudged(parts ...string) {
	j.result.NotJudged = seq.AppendMissing(j.result.NotJudged, parts...)
}

// steps judges what was sent at the same time, usually one request. It returns a problem of the harness, or "".
func (j *judge) steps(first int, group []scenarios.Step, seen []Observation) (problem string) {
	switch {
	case len(group) > 1:
		return j.together(first, group, seen)
	case group[0].Kubectl != nil:
		return j.client(first, &group[0], &seen[0])
	}
	return j.step(first, &group[0], &seen[0])
}

// request is the judge of one request.
func (j *judge) request(i int, st *scenarios.Step, o *Observation) *stepJudge {
	return &stepJudge{
		judge: j, index: i, request: st.Request, requestor: j.s.Requestors[st.Request.By], expect: st.Expect, o: o, event: AuditOf(o), status: StatusOf(o.Response),
		client: j.s.Steps[i].Kubectl != nil,
	}
}

func (j *judge) step(i int, st *scenarios.Step, o *Observation) (problem string) {
	v := j.request(i, st, o)
	if problem := cmp.Or(v.sent(), v.noEvent(), v.scripted()); problem != "" {
		return problem
	}
	v.decided = v.folded(o.Reviews)
	if problem := v.reconcile(); problem != "" {
		return problem
	}
	v.foreign()
	v.outcome()
	v.told()
	v.answered()
	v.user()
	v.wanted()
	v.reviews()
	v.audit()
	v.reason()
	v.around()
	v.metrics()
	v.oneOf()
	return ""
}

// noEvent is about a request without an audit event. It is the API server's fault if it wrote that of the next
// request, or if it wrote something that is none; otherwise nobody knows what became of the event.
func (v *stepJudge) noEvent() (problem string) {
	switch {
	case v.has(scenarios.Audit) && !v.audited():
		v.compare("audit", "no event, as the policy says", orElse(len(v.o.Audit) == 0, "no event, as the policy says", "an event"))
	case !v.audited() || v.event != nil || v.o.Response.Code == codeHeadersTooLarge || v.o.Request.Unread() || v.o.Response.Broken != "":
		return ""
	case len(v.o.Audit) > 0:
		v.compare("audit", "an audit event", "something else")
	case v.o.NoAudit != "":
		v.compare("audit", "an audit event", "none, while that of the next request was written")
	default:
		return "the audit event of the request was not found"
	}
	return ""
}

// compare counts a comparison, and records a difference if want and got differ.
func (v *stepJudge) compare(field, want, got string) {
	v.result.Judged++
	d := Difference{Step: v.index, Field: field, Want: want, Got: got}
	if want != got {
		v.result.Differences = append(v.result.Differences, d)
	} else {
		v.met = append(v.met, d)
	}
}

func short(digest string) string { return digest[:min(12, len(digest))] }

// Verdict is the judgement of one scenario on one cell.
type Verdict string

const (
	// Passed: everything that was expected was looked at and seen.
	Passed Verdict = "passed"
	// Failed: something else was seen.
	Failed Verdict = "failed"
	// NotSupported: the target lacks a capability; Reason names it.
	NotSupported Verdict = "notSupported"
	// Skipped: the user said so.
	Skipped Verdict = "skipped"
	// Invalid: the harness or the environment broke; nothing is known.
	Invalid Verdict = "invalid"
)

// Result is the verdict of one scenario on one cell.
type Result struct {
	Scenario string          `json:"scenario"`
	Level    scenarios.Level `json:"level"`
	Cell     string          `json:"cell"`
	Verdict  Verdict         `json:"verdict"`
	// Reason says in one line why a verdict is not passed.
	Reason      string       `json:"reason,omitempty"`
	Blame       Blame        `json:"blame,omitempty"`
	Differences []Difference `json:"differences,omitempty"` // all that was seen otherwise than expected
	// NotJudged names expectations that the target cannot show, for example "metrics".
	NotJudged []string `json:"notJudged,omitempty"`
	// Judged is the number of expectations that were compared. A scenario in which nothing was compared is not passed.
	Judged int `json:"judged"`
	// KnownFailing is the stated reason of the known-failing entry that this result matches.
	KnownFailing string `json:"knownFailing,omitempty"`
}

// Difference is one expectation that was not met.
type Difference struct {
	Step  int    `json:"step"`  // the index of the step, from 0
	Field string `json:"field"` // the path of the expectation, for example "reviews[1].name"
	Want  string `json:"want"`
	Got   string `json:"got"`
}
