package reports

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// pathOf3 is the report of a path of three stages, off, on and off, which holds.
// Nothing is derived yet.
func pathOf3(t testing.TB, texts Texts) (*ConformanceReport, []*verdicts.Evidence) {
	t.Helper()
	var cells []Cell
	for i, gate := range []scenarios.Gate{scenarios.GateOff, scenarios.GateOn, scenarios.GateOff} {
		c := gateCell(gate)
		c.Name = fmt.Sprintf("%d-%s", i+1, c.Name)
		cells = append(cells, c)
	}
	r, evidence := testRun(t, texts, cells, nil)
	r.Path = &PathReport{Name: "off-on-off", Description: "what is shown"}
	for i, c := range cells {
		r.Path.Stages = append(r.Path.Stages, PathStage{Cell: c.Name, DownSeconds: float64(i)})
		e := &StageEvidence{
			Cell: c.Name, Verbs: map[string]int{"impersonate": 3, "list": 1},
			Objects: []ObjectState{{"/api/v1/x", `{"kind":"X","metadata":{"name":"x"},"data":{"a":"1"}}`}, {"/api/v1/y", `{"kind":"Y","metadata":{"name":"y"}}`}},
		}
		if i == 1 {
			e.Verbs["impersonate:user-info"], e.Verbs["impersonate-on:user-info:list"] = 2, 4
			e.Flow = &FlowEvidence{Sent: 9, Answers: answers(9, 0, 0)}
		}
		r.Path.Evidence = append(r.Path.Evidence, e)
	}
	return r, evidence
}

// claimOf finds a claim about a stage; there is one at most of each name here.
func claimOf(stage PathStage, name string) Claim {
	for _, c := range stage.Claims {
		if c.Name == name {
			return c
		}
	}
	return Claim{}
}

// Each case spoils what was seen on the path; the claim is about its last stage
// unless another is named.
func TestPathClaims(t *testing.T) {
	const none verdicts.Verdict = ""
	for _, c := range []struct {
		name   string
		spoil  func(stages []*StageEvidence)
		stage  int
		claim  string
		want   verdicts.Verdict
		detail string
	}{
		{"objects are first seen", nil, 1, ClaimObjects, verdicts.Passed, "2 objects made and read"},
		{"objects are the same", nil, 3, ClaimObjects, verdicts.Passed, "2 objects the same, byte for byte"},
		{
			"an object changed", func(l []*StageEvidence) {
				l[2].Objects[0].Body = `{"kind":"X","metadata":{"name":"x"},"data":{"a":"2"}}`
			}, 3, ClaimObjects,
			verdicts.Failed, `1 object changed; the first: /api/v1/x: .data.a was "1", is "2"`,
		},
		{
			"a field is new", func(l []*StageEvidence) { l[2].Objects[1].Body = `{"kind":"Y","metadata":{"name":"y"},"status":{}}` }, 3, ClaimObjects,
			verdicts.Failed, `1 object changed; the first: /api/v1/y: .status was nothing, is {}`,
		},
		{
			"the order of fields changed", func(l []*StageEvidence) {
				l[2].Objects[0].Body = `{"data":{"a":"1"},"metadata":{"name":"x"},"kind":"X"}`
			}, 3, ClaimObjects,
			verdicts.Failed, "1 object changed; the first: /api/v1/x: the order of fields was ",
		},
		{
			"two objects changed", func(l []*StageEvidence) { l[2].Objects[0].Body, l[2].Objects[1].Body = "<", "<" }, 3, ClaimObjects,
			verdicts.Failed, "2 objects changed; the first: /api/v1/x: it is not JSON any more",
		},
		{
			"an object is gone", func(l []*StageEvidence) { l[2].Objects = l[2].Objects[:1] }, 3, ClaimObjects,
			verdicts.Failed, "1 object changed; the first: /api/v1/y is gone",
		},
		{"all objects are gone", func(l []*StageEvidence) { l[1].Objects = nil }, 2, ClaimObjects, verdicts.Failed, "2 objects changed; the first: /api/v1/x is gone"},
		{
			"an object that came later changed", func(l []*StageEvidence) {
				l[1].Objects = append(l[1].Objects, ObjectState{"/api/v1/z", `{"a":1}`})
				l[2].Objects = append(l[2].Objects, ObjectState{"/api/v1/z", `{"a":2}`})
			}, 3, ClaimObjects, verdicts.Failed, "1 object changed; the first: /api/v1/z: .a was 1, is 2",
		},
		{
			"an object that came later is new and no change", func(l []*StageEvidence) {
				l[1].Objects = append(l[1].Objects, ObjectState{"/api/v1/z", `{"a":1}`})
			}, 2, ClaimObjects, verdicts.Passed, "2 objects the same, byte for byte",
		},
		{"an object changed and back", func(l []*StageEvidence) { l[1].Objects[1].Body = "{}" }, 3, ClaimObjects, verdicts.Passed, "2 objects the same"},

		{"no constrained review", nil, 3, ClaimNoConstrained, verdicts.Passed, "none of 4 reviews"},
		{"constrained reviews with the gate on", nil, 2, ClaimNoConstrained, none, ""},
		{"an identity check with the gate off", func(l []*StageEvidence) { l[2].Verbs["impersonate:associated-node"] = 1 }, 3, ClaimNoConstrained, verdicts.Failed, "1 review with the verb impersonate:associated-node"},
		{"an action check with the gate off", func(l []*StageEvidence) { l[2].Verbs["impersonate-on:user-info:get"] = 7 }, 3, ClaimNoConstrained, verdicts.Failed, "7 reviews with the verb impersonate-on:user-info:get"},
		{"no review at all", func(l []*StageEvidence) { l[2].Verbs = nil }, 3, ClaimNoConstrained, verdicts.Invalid, "no review arrived at all"},
		{"no review at all with the gate on", func(l []*StageEvidence) { l[1].Verbs = nil }, 2, ClaimNoConstrained, none, ""},
		{
			"a neighbour without the feature", func(l []*StageEvidence) { l[1].Neighbours = map[string]map[string]int{l[0].Cell: {"impersonate": 2}} }, 2, ClaimNoConstrained,
			verdicts.Passed, "none of 2 reviews at 1-1.37-gate-off",
		},
		{
			"a neighbour without the feature that asks about it", func(l []*StageEvidence) {
				l[1].Neighbours = map[string]map[string]int{l[0].Cell: {"impersonate:user-info": 2}}
			}, 2, ClaimNoConstrained, verdicts.Failed, "2 reviews with the verb impersonate:user-info at 1-1.37-gate-off",
		},
		{
			"a neighbour that nobody asked", func(l []*StageEvidence) { l[1].Neighbours = map[string]map[string]int{l[0].Cell: nil} }, 2, ClaimNoConstrained,
			verdicts.Invalid, "no review arrived at all at 1-1.37-gate-off",
		},

		{"right answers", nil, 2, ClaimAnswers, verdicts.Passed, "9 requests, 0 wrong answers"},
		{"nothing flowed", nil, 3, ClaimAnswers, none, ""},
		{"a wrong answer", func(l []*StageEvidence) { l[1].Flow.Answers = answers(8, 1, 0) }, 2, ClaimAnswers, verdicts.Failed, "9 requests, 1 wrong answers"},
		{"a lost answer", func(l []*StageEvidence) { l[1].Flow.Answers = answers(8, 0, 0) }, 2, ClaimAnswers, verdicts.Invalid, "9 requests, 0 wrong answers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			texts := testTexts(t)
			r, evidence := pathOf3(t, texts)
			if c.spoil != nil {
				c.spoil(r.Path.Evidence)
			}
			r.Complete(texts.Set, evidence, nil)
			got := claimOf(r.Path.Stages[c.stage-1], c.claim)
			if got.Verdict != c.want || !strings.HasPrefix(got.Detail, c.detail) {
				t.Errorf("got  %s: %s\nwant %s: %s", got.Verdict, got.Detail, c.want, c.detail)
			}
			if r.Outcome.Result == verdicts.Passed && (c.want == verdicts.Failed || c.want == verdicts.Invalid) {
				t.Errorf("the claim is %s and the path passed", c.want)
			}
		})
	}
}

// What is derived twice is the same, and the counts are those of the evidence.
func TestPathCounts(t *testing.T) {
	texts := testTexts(t)
	r, evidence := pathOf3(t, texts)
	r.Complete(texts.Set, evidence, nil)
	once := generic(r.Path)
	r.Complete(texts.Set, evidence, nil)
	if again := generic(r.Path); !same(once, again) {
		t.Errorf("derived twice: %s", change(once, again))
	}
	for i, want := range [][3]int{{2, 4, 0}, {2, 10, 6}, {2, 4, 0}} {
		l := r.Path.Stages[i]
		if got := [3]int{l.Objects, l.Reviews, l.ConstrainedReviews}; got != want {
			t.Errorf("%s: objects, reviews and constrained reviews are %v, want %v", l.Cell, got, want)
		}
	}
}

func TestPathOutcome(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(p *PathReport)
		want   verdicts.Verdict
		exit   int
		reason string
	}{
		{"all holds", func(*PathReport) {}, verdicts.Passed, ExitPassed, ""},
		{"failed", func(p *PathReport) { p.Evidence[2].Objects[1].Body = "{}" }, verdicts.Failed, ExitFailed, "3-1.37-gate-off: objects-unchanged: 1 object changed"},
		{"invalid", func(p *PathReport) { p.Evidence[2].Verbs = nil }, verdicts.Invalid, ExitInvalid, "3-1.37-gate-off: no-constrained-review: no review arrived at all"},
		{"a stage without evidence", func(p *PathReport) { p.Evidence = p.Evidence[:2] }, verdicts.Invalid, ExitInvalid, "3-1.37-gate-off: objects-unchanged: the stage was not reached, or broke off"},
		{"a stage that is no cell", func(p *PathReport) { p.Stages[2].Cell = "4-moon" }, verdicts.Invalid, ExitInvalid, "4-moon: objects-unchanged: the stage was not reached"},
		{
			"invalid wins over failed", func(p *PathReport) {
				p.Evidence[1].Objects[1].Body = "{}"
				p.Evidence[2].Verbs = nil
			}, verdicts.Invalid, ExitInvalid, "3-1.37-gate-off: no-constrained-review",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			texts := testTexts(t)
			r, evidence := pathOf3(t, texts)
			c.spoil(r.Path)
			o := r.Complete(texts.Set, evidence, nil)
			if o.Result != c.want || o.ExitCode != c.exit {
				t.Errorf("outcome %+v, want %s, exit code %d", o, c.want, c.exit)
			}
			if first := append(o.Reasons, "")[0]; !strings.HasPrefix(first, c.reason) || (c.reason == "") != (first == "") {
				t.Errorf("first reason %q, want %q", first, c.reason)
			}
		})
	}
}

// withToken lets the audit events of a scenario show the token of a user.
func withToken(t *testing.T, e *verdicts.Evidence, user, id string) {
	t.Helper()
	for i := range e.Steps {
		event := verdicts.AuditOf(&e.Steps[i])
		event.User = authenticationv1.UserInfo{Username: user, Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {id}}}
		raw, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		e.Steps[i].Audit = raw
	}
}

// on are the pieces of evidence of a stage.
func on(cell string, evidence []*verdicts.Evidence) []*verdicts.Evidence {
	return slices.DeleteFunc(slices.Clone(evidence), func(e *verdicts.Evidence) bool { return e.Cell.Name != cell })
}

func TestPathTokens(t *testing.T) {
	for _, c := range []struct {
		name   string
		ids    [3]string // of a stage's first scenario, on the three stages
		stage  int
		want   verdicts.Verdict
		detail string
	}{
		{"first seen", [3]string{"JTI=1", "JTI=1", "JTI=1"}, 1, "", ""},
		{"no token", [3]string{}, 3, "", ""},
		{"seen again", [3]string{"JTI=1", "", "JTI=1"}, 3, verdicts.Passed, "1 token of an earlier stage, the same ones"},
		{"another one", [3]string{"JTI=1", "", "JTI=2"}, 3, verdicts.Failed, "alice has the token JTI=2, not JTI=1"},
		{"another one, and back", [3]string{"JTI=1", "JTI=2", "JTI=1"}, 3, verdicts.Passed, "1 token of an earlier stage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			texts := testTexts(t)
			r, evidence := pathOf3(t, texts)
			for i, id := range c.ids {
				if id != "" {
					withToken(t, on(r.Cells[i].Name, evidence)[0], "alice", id)
				}
			}
			r.Path.derive(r, texts.Set, evidence)
			got := claimOf(r.Path.Stages[c.stage-1], ClaimTokens)
			if got.Verdict != c.want || !strings.HasPrefix(got.Detail, c.detail) {
				t.Errorf("got  %s: %s\nwant %s: %s", got.Verdict, got.Detail, c.want, c.detail)
			}
		})
	}
}

// Which of several wrong tokens is named does not depend on the order of the
// evidence: it is another one when the report is verified.
func TestPathTokensInAnyOrder(t *testing.T) {
	texts := testTexts(t)
	r, evidence := pathOf3(t, texts)
	for i, cell := range []string{r.Cells[0].Name, r.Cells[2].Name} {
		e := on(cell, evidence)[0]
		other := *e
		other.Steps = slices.Clone(e.Steps)
		withToken(t, e, "alice", fmt.Sprintf("JTI=%d", i))
		withToken(t, &other, "bob", fmt.Sprintf("JTI=%d", i))
		evidence = append(evidence, &other)
	}
	r.Path.derive(r, texts.Set, evidence)
	once := claimOf(r.Path.Stages[2], ClaimTokens)
	slices.Reverse(evidence)
	r.Path.derive(r, texts.Set, evidence)
	again := claimOf(r.Path.Stages[2], ClaimTokens)
	if once.Verdict != verdicts.Failed || once != again {
		t.Errorf("%+v, and in another order %+v", once, again)
	}
}
