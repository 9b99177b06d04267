package upgrade

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/evidencetest"
)

// builtin loads the built-in scenarios once.
var builtin = sync.OnceValues(func() (conformance.Texts, error) { return conformance.LoadTexts("") })

// offOnOff is a plan of a path of three stages, off, on and off.
func offOnOff(t *testing.T) *Plan {
	t.Helper()
	p, err := upgradepath.Parse("1.37-gate,1.37+gate,1.37-gate", upgradepath.Options{})
	if err != nil {
		t.Fatal(err)
	}
	texts, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(PlanOptions{Path: p, Texts: texts, Base: matrix.Matrix{Binaries: &local.Binaries{}}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// soundRecords are what is seen on these stages where all is well.
func soundRecords() (all []*StageRecord) {
	for i := range 3 {
		e := &StageRecord{DownSeconds: float64(i), Verbs: map[string]int{"impersonate": 3, "list": 1}, Objects: []ObjectState{
			{"/api/v1/x", `{"kind":"X","metadata":{"name":"x"},"data":{"a":"1"}}`}, {"/api/v1/y", `{"kind":"Y","metadata":{"name":"y"}}`},
		}}
		if i == 1 {
			e.Verbs["impersonate:user-info"], e.Verbs["impersonate-on:user-info:list"] = 2, 4
		}
		all = append(all, e)
	}
	return all
}

func viewOf(t *testing.T, p *Plan, records []*StageRecord) record.View {
	t.Helper()
	log := record.New()
	for i, e := range records {
		if err := log.Append(stageKey(p.stages[i].Name()), e); err != nil {
			t.Fatal(err)
		}
	}
	return log.View()
}

// spoiledClaim is a claim about the stage of a number, from 1, on a path of which something was spoiled.
type spoiledClaim struct {
	name   string
	spoil  func(l []*StageRecord)
	stage  int
	claim  Claim
	want   verdicts.Verdict
	detail string // how the reason, or the details, begin
}

// judge spoils records and judges the claim by them.
func (c spoiledClaim) judge(t *testing.T, records []*StageRecord) {
	t.Helper()
	p := offOnOff(t)
	if c.spoil != nil {
		c.spoil(records)
	}
	stage := p.stages[c.stage-1]
	item := ClaimItem{Claim: c.claim, Cell: stage.Name(), Fate: conformance.Run}
	r := p.Judge(stage.Name()+"/"+item.name(stage.Name()), viewOf(t, p, records))
	if detail := r.Reason + strings.Join(r.Details, ""); r.Verdict != c.want || !strings.HasPrefix(detail, c.detail) {
		t.Errorf("got  %s: %s\nwant %s: %s", r.Verdict, detail, c.want, c.detail)
	}
}

// TestClaims spoils what was seen on a path; the claim is about the stage that is named.
func TestClaims(t *testing.T) {
	for _, c := range []spoiledClaim{
		{"objects are first seen", nil, 1, ClaimObjects, verdicts.Passed, "2 objects made and read"},
		{"objects are the same", nil, 3, ClaimObjects, verdicts.Passed, "2 objects the same, byte for byte"},
		{
			"an object changed", func(l []*StageRecord) {
				l[2].Objects[0].Body = `{"kind":"X","metadata":{"name":"x"},"data":{"a":"2"}}`
			}, 3, ClaimObjects, verdicts.Failed, `1 object changed; the first: /api/v1/x: .data.a was "1", is "2"`,
		},
		{
			"a field is new",
			func(l []*StageRecord) { l[2].Objects[1].Body = `{"kind":"Y","metadata":{"name":"y"},"status":{}}` },
			3,
			ClaimObjects,
			verdicts.Failed,
			`1 object changed; the first: /api/v1/y: .status was nothing, is {}`,
		},
		{
			"the order of fields changed", func(l []*StageRecord) {
				l[2].Objects[0].Body = `{"data":{"a":"1"},"metadata":{"name":"x"},"kind":"X"}`
			}, 3, ClaimObjects, verdicts.Failed, "1 object changed; the first: /api/v1/x: the order of fields was ",
		},
		{
			"two objects changed", func(l []*StageRecord) { l[2].Objects[0].Body, l[2].Objects[1].Body = "<", "<" }, 3, ClaimObjects,
			verdicts.Failed, "2 objects changed; the first: /api/v1/x: it is not JSON any more",
		},
		{"an object is gone", func(l []*StageRecord) { l[2].Objects = l[2].Objects[:1] }, 3, ClaimObjects, verdicts.Failed, "1 object changed; the first: /api/v1/y is gone"},
		{"all objects are gone", func(l []*StageRecord) { l[1].Objects = nil }, 2, ClaimObjects, verdicts.Failed, "2 objects changed; the first: /api/v1/x is gone"},
		{
			"an object that came later changed", func(l []*StageRecord) {
				l[1].Objects = append(l[1].Objects, ObjectState{"/api/v1/z", `{"a":1}`})
				l[2].Objects = append(l[2].Objects, ObjectState{"/api/v1/z", `{"a":2}`})
			}, 3, ClaimObjects, verdicts.Failed, "1 object changed; the first: /api/v1/z: .a was 1, is 2",
		},
		{
			"an object that came later is new and no change", func(l []*StageRecord) {
				l[1].Objects = append(l[1].Objects, ObjectState{"/api/v1/z", `{"a":1}`})
			}, 2, ClaimObjects, verdicts.Passed, "2 objects the same, byte for byte",
		},
		{"an object changed and back", func(l []*StageRecord) { l[1].Objects[1].Body = "{}" }, 3, ClaimObjects, verdicts.Passed, "2 objects the same"},
		{"no constrained review", nil, 3, ClaimNoConstrained, verdicts.Passed, "none of 4 reviews"},
		{"an identity check with the gate off", func(l []*StageRecord) { l[2].Verbs["impersonate:associated-node"] = 1 }, 3, ClaimNoConstrained, verdicts.Failed, "1 review with the verb impersonate:associated-node"},
		{"an action check with the gate off", func(l []*StageRecord) { l[2].Verbs["impersonate-on:user-info:get"] = 7 }, 3, ClaimNoConstrained, verdicts.Failed, "7 reviews with the verb impersonate-on:user-info:get"},
		{"no review at all", func(l []*StageRecord) { l[2].Verbs = nil }, 3, ClaimNoConstrained, verdicts.Invalid, "no review arrived at all"},
	} {
		t.Run(c.name, func(t *testing.T) { c.judge(t, soundRecords()) })
	}
}

// TestClaimsOfTheStages: on a stage with the feature nothing is claimed of reviews, and tokens are first seen on the first.
func TestClaimsOfTheStages(t *testing.T) {
	var got []string
	for _, s := range offOnOff(t).stages {
		var names []string
		for _, item := range s.Claims {
			names = append(names, string(item.Claim))
		}
		got = append(got, strings.Join(names, " "))
	}
	want := "objects-unchanged writes-take-effect no-constrained-review, " +
		"objects-unchanged writes-take-effect writes-read-back tokens-work answers-right workloads-go-on, " +
		"objects-unchanged writes-take-effect writes-read-back tokens-work no-constrained-review answers-right workloads-go-on"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestStageThatWasNotReached: nothing is known of it.
func TestStageThatWasNotReached(t *testing.T) {
	p := offOnOff(t)
	view := viewOf(t, p, soundRecords()[:2])
	for _, item := range p.stages[2].Claims {
		r := p.Judge(p.stages[2].Name()+"/"+item.name(p.stages[2].Name()), view)
		if r.Verdict != verdicts.Invalid || r.Reason != "the stage was not reached, or broke off" {
			t.Errorf("%s: %+v", item.Claim, r)
		}
	}
}

// TestTokens gives the first scenario with a service account a token on each stage.
func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name   string
		ids    [3]string
		want   verdicts.Verdict
		detail string
	}{
		{"no token", [3]string{}, verdicts.Skipped, "no token of an earlier stage authenticated"},
		{"seen again", [3]string{"JTI=1", "", "JTI=1"}, verdicts.Passed, "1 token of an earlier stage, the same ones"},
		{"another one", [3]string{"JTI=1", "", "JTI=2"}, verdicts.Failed, "alice has the token JTI=2, not JTI=1"},
		{"another one, and back", [3]string{"JTI=1", "JTI=2", "JTI=1"}, verdicts.Passed, "1 token of an earlier stage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offOnOff(t)
			log := record.New()
			for i, e := range soundRecords() {
				stage := p.stages[i]
				if err := log.Append(stageKey(stage.Name()), e); err != nil {
					t.Fatal(err)
				}
				s := stage.scenario["bob"]
				seen := evidencetest.Perfect(s, stage.Target.Cell, nil, "x", evidencetest.Epoch)
				withToken(t, seen, "alice", c.ids[i])
				if err := log.Append(stage.Name()+"/"+s.ID, seen); err != nil {
					t.Fatal(err)
				}
			}
			v, detail := p.judgeTokens(p.stages[2], log.View())
			if v != c.want || !strings.HasPrefix(detail, c.detail) {
				t.Errorf("got  %s: %s\nwant %s: %s", v, detail, c.want, c.detail)
			}
		})
	}
}

// withToken lets the audit events of a scenario show the token of a user, if there is one.
func withToken(t *testing.T, e *verdicts.Evidence, user, id string) {
	t.Helper()
	if id == "" {
		return
	}
	for i := range e.Steps {
		event := verdicts.AuditOf(&e.Steps[i])
		event.User = authenticationv1.UserInfo{
			Username: user,
			Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {id}},
		}
		raw, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		e.Steps[i].Audit = raw
	}
}
