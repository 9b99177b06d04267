package scenarios_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// expectations calls fn for each expectation of a scenario, including those for the requests of clients.
func expectations(s *scenarios.Scenario, fn func(*scenarios.Request, *scenarios.Expect)) {
	for _, st := range s.Steps {
		if st.Request != nil && st.Expect != nil {
			fn(st.Request, st.Expect)
		}
		if st.Kubectl != nil {
			for i, r := range st.ExpectClient.Requests {
				fn(st.Kubectl.Step(r).Request, &st.ExpectClient.Requests[i].Expect)
			}
		}
	}
}

// TestCatalogueHasNoNotes keeps the built-in files short and their denials exact.
func TestCatalogueHasNoNotes(t *testing.T) {
	for _, e := range notes(t, scenarios.FS, fixtures.FS) {
		t.Error(e)
	}
}

// TestCatalogueIsJudgedInFull checks that nothing is lost by leaving out what follows. Where reviews are stated, the
// judged scenario has code, audit fields and metric deltas, and Lean removes what Full adds.
func TestCatalogueIsJudgedInFull(t *testing.T) {
	counted := 0
	for _, s := range embedded(t).All() {
		expectations(s, func(r *scenarios.Request, e *scenarios.Expect) {
			if e.Code == 0 {
				t.Errorf("%s: a code is not judged", s.ID)
			}
			if e.Reviews == nil || e.Outcome == scenarios.HeadersTooLarge {
				return
			}
			if a := e.Audit; a == nil || a.ImpersonatedUser == nil || a.Decision == nil {
				t.Errorf("%s: audit fields are not judged: %+v", s.ID, a)
			}
			if s.Requires.Gate == scenarios.GateOn && r.WantedUser() != "" {
				counted++
				if e.Metrics == nil {
					t.Errorf("%s: metric deltas are not judged", s.ID)
				}
			}
		})
		if diff := cmp.Diff(s, s.Lean().Full()); diff != "" {
			t.Errorf("%s: Lean and Full (-before +after):\n%s", s.ID, diff)
		}
	}
	if counted < 600 {
		t.Errorf("only %d steps have metric deltas", counted)
	}
}

const leanSteps = `steps:
  - request: {by: agent, impersonate: {user: bob}, verb: list, resource: pods, namespace: ns1}
    expect:
`

// TestDerive loads one step and prints what it is judged by.
func TestDerive(t *testing.T) {
	const (
		action   = `{verb: "impersonate-on:user-info:list", version: v1, resource: pods, namespace: ns1, decision: allow}`
		identity = `{verb: "impersonate:user-info", group: authentication.k8s.io, version: v1, resource: users, name: bob, decision: allow}`
		legacy   = `{verb: impersonate, version: v1, resource: users, name: bob, decision: allow}`
		final    = `{by: impersonated, verb: list, version: v1, resource: pods, namespace: ns1, decision: allow}`
	)
	audit := func(impersonated, constraint, decision string) string {
		return `"audit":{"impersonatedUser":` + impersonated + `,"constraint":"` + constraint + `","decision":"` + decision + `"}`
	}
	for _, c := range []struct{ name, gate, expect, want string }{
		{"an outcome", "on", `outcome: allowed`, ``},
		{"a user without a mode", "on", `{outcome: allowed, user: {name: bob}}`, ``},
		{"a user with any gate", "any", `{outcome: allowed, user: {name: bob}}`, audit("true", "", "allow")},
		{"a constrained mode", "on", `{outcome: allowed, reviews: [` + action + "," + identity + "," + final + `]}`,
			audit("true", "impersonate:user-info", "allow") + `,"metrics":{"attempts":[{"mode":"user-info","decision":"allowed","count":1}],"authorizations":[{"mode":"user-info","decision":"allowed","count":2}]}`},
		{"legacy", "on", `{outcome: allowed, reviews: [` + strings.Replace(action, "decision: allow", "decision: noOpinion", 1) + "," + legacy + "," + final + `]}`,
			audit("true", "", "allow") + `,"metrics":{"attempts":[{"mode":"legacy","decision":"allowed","count":1}],"authorizations":[{"mode":"user-info","decision":"denied","count":1},{"mode":"legacy","decision":"allowed","count":1}]}`},
		{"the gate off", "off", `{outcome: allowed, reviews: [` + legacy + "," + final + `]}`, audit("true", "", "allow")},
		{"a cache", "on", `{outcome: allowed, reviews: [` + final + `]}`, ``},
		{"a cache, with the constraint stated", "on", `{outcome: allowed, reviews: [` + final + `], audit: {constraint: "impersonate:user-info"}}`,
			`"audit":{"constraint":"impersonate:user-info"},"metrics":{"attempts":[{"mode":"user-info","decision":"allowed","count":1}],"authorizations":[]}`},
		{"nothing of it to be judged", "on", `{outcome: allowed, reviews: [` + action + "," + identity + "," + final + `], audit: {}, metrics: {}}`, ``},
		{"stated otherwise", "on", `{outcome: allowed, reviews: [` + action + "," + identity + "," + final + `], audit: {decision: ""}, metrics: {attempts: [], authorizations: []}}`,
			`"audit":{"decision":""},"metrics":{"attempts":[],"authorizations":[]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(valid[:strings.Index(valid, "steps:")], "gate: on", "gate: "+c.gate, 1)
			text = strings.Replace(text, "id: identity\n    ", "", 1) + leanSteps + "      " + c.expect
			text = strings.ReplaceAll(text, "expect:\n      {", "expect: {") + "\n"
			files := fstest.MapFS{"a/x.yaml": file(text)}
			set := mustLoad(t, files, nil)
			e := set.All()[0].Steps[0].Expect
			got := ""
			for _, part := range []struct {
				name  string
				given bool
				value any
			}{{"audit", e.Audit != nil, e.Audit}, {"metrics", e.Metrics != nil, e.Metrics}} {
				raw, err := json.Marshal(part.value)
				if err != nil {
					t.Fatal(err)
				}
				if part.given {
					got += `,"` + part.name + `":` + string(raw)
				}
			}
			if got = strings.TrimPrefix(got, ","); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, note := range notes(t, files, nil) {
				t.Error(note)
			}
		})
	}
}

// TestNoted checks that notes name the places where a file states what follows.
func TestNoted(t *testing.T) {
	text := strings.Replace(valid, "      code: 200", `      reviews:
        - {verb: impersonate, version: v1, resource: users, name: bob, decision: allow}
      audit: {impersonatedUser: true, constraint: "", decision: allow}
      metrics:
        attempts: [{mode: legacy, decision: allowed, count: 1}]
        authorizations: [{mode: legacy, decision: allowed, count: 1}]`, 1)
	noted := notes(t, fstest.MapFS{"a/x.yaml": file(text)}, nil)
	const follows = " says only what follows from the rest (expected it left out: it is derived, and judged)"
	want := "a/x.yaml:23:14: audit" + follows + "\na/x.yaml:25:9: metrics" + follows
	if got := noted.Error(); got != want {
		t.Errorf("noted:\n%s\nwant\n%s", got, want)
	}
}

// TestDenialsAreExact checks that notes name the denials that state too little.
func TestDenialsAreExact(t *testing.T) {
	for more, want := range map[string]int{"": 1, "\n      reviews: []": 0, "\n      message: no": 0, "\n      messageMatches: no.*": 0} {
		text := strings.Replace(valid, "outcome: allowed\n      code: 200", "outcome: impersonationForbidden"+more, 1) + "  - request: {by: agent, impersonate: {user: bob}, verb: list, resource: pods, namespace: ns1}\n    expect: {outcome: allowed}\n"
		noted := notes(t, fstest.MapFS{"a/x.yaml": file(text)}, nil)
		if len(noted) != want ||
			want > 0 && !strings.HasPrefix(noted.Error(), "a/x.yaml:20:7: the denial states neither message nor reviews") {
			t.Errorf("%q: %v", more, noted)
		}
	}
}
