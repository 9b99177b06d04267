package verdicts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// TestEventsOfOtherAuditLevels judges the events of a requestor who is audited at another level than Metadata.
func TestEventsOfOtherAuditLevels(t *testing.T) {
	at := func(level string) (*scenarios.Scenario, *Evidence) {
		s, e := listAsBob(), newEvidence()
		group := "system:audit:" + level
		for alias, r := range s.Requestors {
			r.Groups = []string{group}
			s.Requestors[alias] = r
		}
		o := &e.Steps[0]
		o.Request.Credential.Groups = []string{group}
		for i := range o.Reviews[:2] {
			o.Reviews[i].Spec.Groups = append([]string{group}, o.Reviews[i].Spec.Groups...)
		}
		text := strings.Replace(string(o.Audit), `"level":"Metadata"`, `"level":"`+level+`"`, 1)
		o.Audit = json.RawMessage(strings.Replace(text, `"groups":[`, `"groups":["`+group+`",`, 1))
		return s, e
	}
	for name, test := range map[string]struct {
		level  string
		change func(*Evidence)
		field  string // of the first difference; "" if it passes
	}{
		"request":                {"Request", func(*Evidence) {}, ""},
		"response":               {"RequestResponse", inAudit(`"level"`, `"responseObject":{"kind":"PodList"},"level"`), ""},
		"another answer":         {"RequestResponse", refused(`{"kind":"Status","message":"another"}`), "audit (answer)"},
		"the answer, in order":   {"RequestResponse", refused(`{"message":"no","kind":"Status"}`), ""},
		"response at Request":    {"Request", inAudit(`"level"`, `"responseObject":{"kind":"PodList"},"level"`), "audit (objects)"},
		"not what was asked for": {"RequestResponse", inAudit(`RequestResponse"`, `Metadata"`), "audit (type)"},
		"none":                   {"None", func(e *Evidence) { e.Steps[0].Audit = nil }, ""},
		"an event at None":       {"None", func(*Evidence) {}, "audit"},
		"a level that is none":   {"Everything", inAudit("Everything", "Metadata"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := at(test.level)
			test.change(e)
			r := Judge(s, e)
			switch {
			case test.field == "" && r.Verdict != Passed:
				t.Errorf("%s: %s", r.Verdict, r.Reason)
			case test.field != "" &&
				(len(r.Differences) == 0 || r.Differences[0].Field != test.field):
				t.Errorf("%v, want a difference in %s first", r.Differences, test.field)
			}
		})
	}
}

// refused returns a change that makes the answer a Status, and gives the event the object of the answer.
func refused(object string) func(*Evidence) {
	return func(e *Evidence) {
		e.Steps[0].Response.Body = `{"kind":"Status","message":"no"}`
		inAudit(`{"code":200}`, `{"code":200,"message":"no"}`)(e)
		inAudit(`"level"`, `"responseObject":`+object+`,"level"`)(e)
	}
}

// TestWatchStaysOpen judges a watch that had to stay open.
func TestWatchStaysOpen(t *testing.T) {
	for held, want := range map[string]Verdict{Open: Passed, "": Failed, "ended by itself: EOF": Failed} {
		s, e := listAsBob(), newEvidence()
		s.Steps[0].Request.Hold = true
		e.Steps[0].Response.Held = held
		if r := Judge(s, e); r.Verdict != want ||
			want == Failed && r.Differences[0].Field != "watch" {
			t.Errorf("%q: %s, %v; want %s", held, r.Verdict, r.Differences, want)
		}
	}
}
