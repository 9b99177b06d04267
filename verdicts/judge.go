package verdicts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Judge returns the verdict of scenario s, as it was loaded, on evidence e. It depends on nothing else.
//
// The evidence of a failure has a control run: the same scenario once more, under fresh names. The control run decides
// who is to blame. It is judged in place of the first run if a request of the first run came too late (findDelay).
func Judge(s *scenarios.Scenario, e *Evidence) Result {
	r := judgeOnce(s, e)
	if delay := findDelay(s, e, r); delay != "" && e.Control != nil {
		return judgeControl(s, e, delay)
	}
	if r.Verdict == Failed {
		r.Blame, r.Reason = blame(s, e, r)
	}
	return r
}

// MatchingComparisons returns the comparisons in which the evidence is as the scenario expects. Their two sides are the
// same.
func MatchingComparisons(s *scenarios.Scenario, e *Evidence) []Difference {
	j := &judge{e: e}
	j.judgeScenario(s)
	return j.matches
}

// judgeOnce judges evidence without its control run.
func judgeOnce(s *scenarios.Scenario, e *Evidence) Result { return (&judge{e: e}).judgeScenario(s) }

// judgeScenario judges evidence of a scenario. It compares nothing if the evidence is of another text, or if the
// scenario could not be set up.
func (j *judge) judgeScenario(s *scenarios.Scenario) Result {
	e := j.e
	j.result = Result{Scenario: s.ID, Level: s.Level, Cell: e.Cell.Name}
	if s.Digest != e.Digest {
		return j.makeInvalid(
			BlameHarness,
			"the evidence was made with another text of this scenario (digest "+shorten(e.Digest)+", not "+shorten(s.Digest)+")",
		)
	}
	if len(e.Problems) > 0 {
		return j.judgeProblem(e.Problems[0])
	}
	if problem := j.bind(s); problem != "" {
		return j.makeInvalid(BlameHarness, problem)
	}
	if e.UnappliedGrant != nil {
		return j.judgeUnappliedGrant(e.UnappliedGrant)
	}
	if problem := j.judgeSteps(); problem != "" {
		return j.makeInvalid(BlameHarness, problem)
	}
	return j.conclude()
}

// bind gives the scenario the names that it was run with, and the service accounts that took the place of users. It
// returns a problem of the harness, or "".
func (j *judge) bind(s *scenarios.Scenario) (problem string) {
	bound, _ := s.BindOn(j.e.Suffix, j.e.Nodes)
	if j.e.Substitutes {
		accounts, why := bound.Substitute()
		if why != "" {
			return "no substitute ServiceAccount is possible here: " + why
		}
		bound = accounts
	}
	j.s = bound
	return ""
}

// judgeSteps compares the scenario's steps with the observations. There must be one observation of every request, and
// no others. It returns a problem of the harness, or "".
func (j *judge) judgeSteps() (problem string) {
	remaining := j.e.Steps
	for first := 0; first < len(j.s.Steps); {
		group := j.s.ConcurrentSteps(first)
		if group[0].Sent() != nil {
			if missing, isMissing := findMissing(remaining, first, len(group)); isMissing {
				return "there is no observation of step " + strconv.Itoa(missing)
			}
			if problem := j.judgeGroup(first, group, remaining[:len(group)]); problem != "" {
				return fmt.Sprintf("step %d: %s", first, problem)
			}
			remaining = remaining[len(group):]
		}
		first += len(group)
	}
	if len(remaining) > 0 {
		return "the evidence has more steps than the scenario"
	}
	return ""
}

// findMissing returns the first of the given number of steps whose observation is missing at the beginning of the list.
func findMissing(observations []Observation, first, steps int) (step int, isMissing bool) {
	for i := range steps {
		if i >= len(observations) || observations[i].Step != first+i {
			return first + i, true
		}
	}
	return 0, false
}

// judge collects differences over the steps of one scenario.
type judge struct {
	s       *scenarios.Scenario // with the names that it was run with
	e       *Evidence
	result  Result
	matches []Difference
}

// makeInvalid returns the verdict that nothing is known of the API server.
func (j *judge) makeInvalid(b Blame, why string) Result {
	j.result.Verdict, j.result.Blame, j.result.Reason = Invalid, b, why
	return j.result
}

// conclude returns the verdict that follows from the differences. Its reason is the first of them.
func (j *judge) conclude() Result {
	switch {
	case len(j.result.Differences) > 0:
		j.result.Verdict = Failed
		d := j.result.Differences[0]
		j.result.Reason = fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
	case j.result.Judged == 0:
		return j.makeInvalid(BlameHarness, "nothing was judged")
	default:
		j.result.Verdict = Passed
	}
	return j.result
}

// hasCapability reports whether the target has a capability.
func (j *judge) hasCapability(c scenarios.Capability) bool {
	return slices.Contains(j.e.Capabilities, c)
}

// mustHaveEvent reports whether the API server has to write an audit event of the request and the evidence shows audit
// events.
func (v *stepJudge) mustHaveEvent() bool {
	return v.hasCapability(scenarios.Audit) && scenarios.AuditLevel(v.requestor.Groups) != scenarios.AuditNone
}

// isExcludedByAuditPolicy reports whether the target shows audit events but the audit policy asks for none of this
// requestor.
func (v *stepJudge) isExcludedByAuditPolicy() bool {
	return v.hasCapability(scenarios.Audit) && !v.mustHaveEvent()
}

// addNotJudged notes expectations that the target cannot show.
func (j *judge) addNotJudged(parts ...string) {
	j.result.NotJudged = seq.AppendMissing(j.result.NotJudged, parts...)
}

// judgeGroup judges requests that were sent at the same time. Usually that is one request. It returns a problem of the
// harness, or "".
func (j *judge) judgeGroup(first int, group []scenarios.Step, observations []Observation) (problem string) {
	switch {
	case len(group) > 1:
		return j.judgeConcurrent(first, group, observations)
	case group[0].Kubectl != nil:
		return j.judgeClient(first, &group[0], &observations[0])
	}
	return j.judgeRequest(first, &group[0], &observations[0])
}

// newStepJudge returns the judge of one request.
func (j *judge) newStepJudge(i int, st *scenarios.Step, o *Observation) *stepJudge {
	return &stepJudge{
		judge:        j,
		index:        i,
		request:      st.Request,
		requestor:    j.s.Requestors[st.Request.By],
		expect:       st.Expect.Answered(o.Response.Code),
		o:            o,
		event:        AuditOf(o),
		status:       StatusOf(o.Response),
		isFromClient: j.s.Steps[i].Kubectl != nil,
	}
}

// judgeRequest applies all rules to one request. It returns a problem of the harness, or "". Requests that are sent at
// the same time have a list of rules of their own, in judgeConcurrent.
func (j *judge) judgeRequest(i int, st *scenarios.Step, o *Observation) (problem string) {
	v := j.newStepJudge(i, st, o)
	if problem := cmp.Or(v.checkSent(), v.checkEventExists(), v.checkWebhook()); problem != "" {
		return problem
	}
	v.decided = v.deriveDecisions(o.Reviews)
	if problem := v.checkCounts(); problem != "" {
		return problem
	}
	v.checkSubjects()
	v.checkOutcome()
	v.checkEvent()
	v.checkAnswer()
	v.checkUser()
	v.checkWantedUser()
	v.checkReviews()
	v.checkAudit()
	v.checkReason()
	v.checkSurroundings()
	v.checkMetrics()
	v.checkAlternatives()
	return ""
}

// checkEventExists demands an audit event where the audit policy asks for one, and none where it does not. A missing
// event is the API server's fault if it wrote that of the next request or wrote something else; otherwise the result is
// invalid, because nobody knows what became of the event.
//
// Source: the reference page on auditing, audit policy.
func (v *stepJudge) checkEventExists() (problem string) {
	const none = "no event, as the policy says"
	isMissing := v.mustHaveEvent() && v.event == nil
	switch {
	case v.isExcludedByAuditPolicy():
		v.compare("audit", none, textIf(len(v.o.Audit) == 0, none, "an event"))
	case !isMissing || v.mayLackEvent():
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

// mayLackEvent reports whether the request failed before the point at which API servers begin to audit, or whether its
// connection broke.
func (v *stepJudge) mayLackEvent() bool {
	isNotAudited := v.o.Response.Code == codeHeadersTooLarge || v.o.Request.IsUnreadable()
	return isNotAudited || v.o.Response.Broken != ""
}

// compare counts a comparison, and records a difference if want and got are not the same.
func (v *stepJudge) compare(field, want, got string) {
	v.result.Judged++
	d := Difference{Step: v.index, Field: field, Want: want, Got: got}
	if want != got {
		v.result.Differences = append(v.result.Differences, d)
	} else {
		v.matches = append(v.matches, d)
	}
}

// shorten returns as much of a digest as people need to compare it.
func shorten(digest string) string { return digest[:min(12, len(digest))] }

// textIf returns yes if ok is true, and no otherwise.
func textIf(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// Verdict is the judgement of one scenario on one cell: passed, failed, notSupported, skipped or invalid. It is
// computed from scenario and evidence, and nothing else.
type Verdict string

const (
	// Passed means that everything that was expected was looked at and seen.
	Passed Verdict = "passed"
	// Failed means that something else was seen than what was expected.
	Failed Verdict = "failed"
	// NotSupported means that the target lacks a capability, which Reason names.
	NotSupported Verdict = "notSupported"
	// Skipped means that the user left the scenario out.
	Skipped Verdict = "skipped"
	// Invalid is the verdict where nothing can be said, because our side or the machine broke. It is not a pass.
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
	Differences []Difference `json:"differences,omitempty"` // everything that was seen otherwise than expected
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
