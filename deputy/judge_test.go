package deputy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/verdicts"
)

// TestUnloggedAnswersAreInconclusive checks that an answer which only the API server can have given must have an event that agrees with it.
func TestUnloggedAnswersAreInconclusive(t *testing.T) {
	known := map[string]*auditv1.Event{"1": {ResponseStatus: &metav1.Status{Code: 200}}, "2": {ResponseStatus: &metav1.Status{Code: 403}}}
	for name, c := range map[string]struct {
		answer reply
		theirs bool // the cluster is not ours
		names  bool
		logged bool
		want   bool
	}{
		"its event":                        {answer: reply{Code: 200, AuditID: "1", Kind: "PodList"}},
		"a refusal and its event":          {answer: reply{Code: 403, AuditID: "2", Kind: "Status", Flow: "f"}},
		"of the proxy":                     {answer: reply{Code: 401}},
		"of a proxy with audit IDs":        {answer: reply{Code: 401, AuditID: "3"}, names: true},
		"a list without":                   {answer: reply{Code: 200, AuditID: "3", Kind: "PodList"}, theirs: true, want: true},
		"a list without, and no ID":        {answer: reply{Code: 200, Kind: "PodList"}, theirs: true, want: true},
		"a list without ID, found by time": {answer: reply{Code: 200, Kind: "PodList"}, theirs: true, logged: true},
		"a refusal without":                {answer: reply{Code: 403, AuditID: "3", Kind: "Status"}, want: true},
		"a refusal without, of a policy":   {answer: reply{Code: 403, AuditID: "3", Kind: "Status"}, theirs: true},
		"its flow, and no ID":              {answer: reply{Code: 403, Kind: "Status", Flow: "f"}, names: true, want: true},
		"another flow":                     {answer: reply{Code: 403, Kind: "Status", Flow: "g"}},
		"a list that was refused":          {answer: reply{Code: 200, AuditID: "2", Kind: "PodList"}, want: true},
		"a refusal that was a list":        {answer: reply{Code: 403, AuditID: "1", Kind: "Status"}, want: true},
	} {
		j := &attackJudge{allEvents: known, flows: map[string]bool{"f": true}, ours: !c.theirs, namesRefusals: c.names}
		if why := j.findUnlogged([]reply{c.answer}, c.logged); (why != "") != c.want {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestFirstInconclusiveAttackIsNamed checks that the reason of an inconclusive kind names the first of its attacks about
// which nothing is known, and not the last.
func TestFirstInconclusiveAttackIsNamed(t *testing.T) {
	people := []*Identity{{Name: "alice"}, {Name: "bob"}}
	refused := attackEvidence{Answers: []reply{{Code: 401}}}
	lost := attackEvidence{Answers: []reply{{Code: 200, AuditID: "lost", Kind: "PodList"}}}
	for name, c := range map[string]struct {
		kind     string
		evidence []attackEvidence
		first    int
		want     string
	}{
		"attacks":  {"connection", []attackEvidence{refused, lost, lost}, 1, `the API server answered 200 with the audit ID "lost", and there is no event of it`},
		"controls": {controlsKind, []attackEvidence{lost, lost}, 0, "it was answered 200, and the audit log has no event of it"},
	} {
		t.Run(name, func(t *testing.T) {
			table := attacksOf(func(kind string) bool { return kind == c.kind })[:len(c.evidence)]
			e := &attacksEvidence{destination: destination{Run: "az"}, Attacks: c.evidence}
			out := newJudgement()
			if err := newAttackJudge(e, table, people, "").judgeAttacks(e, table, func(attack) *judgement { return out }); err != nil {
				t.Fatal(err)
			}
			r, want := out.result(), table[c.first].Name+": "+c.want
			if r.Verdict != verdicts.Invalid || !strings.HasPrefix(r.Reason, want) {
				t.Errorf("%s: %q, want invalid: %q", r.Verdict, r.Reason, want)
			}
		})
	}
}

// TestRevokedAndLetIn checks that it is a failure if the API server allowed a request of a person who was refused.
func TestRevokedAndLetIn(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		refused bool
		after   time.Duration
		failed  int
	}{{true, -time.Second, 0}, {true, time.Millisecond, 1}, {false, time.Millisecond, 1}} {
		e := &revocationEvidence{Run: "az", WatchCode: 200, Revoked: at.Add(-2 * time.Second)}
		e.Last.At, e.Last.Refused = at, c.refused
		e.Events = []json.RawMessage{
			json.RawMessage(
				fmt.Sprintf(
					`{"auditID":"1","requestURI":"/?%s","requestReceivedTimestamp":%q,"annotations":{"authorization.k8s.io/decision":"allow"},"user":{"username":"proxy"},"impersonatedUser":{"username":"alice"}}`,
					markerOf("az", 0, 1),
					at.Add(c.after).Format("2006-01-02T15:04:05.000000Z"),
				),
			),
		}
		out := newJudgement()
		if e.judge(out, &Identity{Name: "alice"}, true); len(out.failures) != c.failed {
			t.Errorf("%+v: %q", c, out.failures)
		}
	}
}
