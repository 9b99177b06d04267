package nodes

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/reports"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// line is an attempt of the agent on node a.
func line(verb, target string, code int) Attempt {
	return Attempt{Time: noon, Node: "a", As: "system:node:" + target, Verb: verb, Resource: map[string]string{"list": "pods", "get": "nodes"}[verb], Target: target, Code: code}
}

// event is the audit event of a line, by a constraint if it was impersonated.
func event(l Attempt, constraint string) auditv1.Event {
	e := auditv1.Event{
		Verb: l.Verb, ObjectRef: &auditv1.ObjectReference{Resource: l.Resource}, StageTimestamp: metav1.NewMicroTime(noon.Add(-time.Millisecond)),
		User:           authenticationv1.UserInfo{Extra: map[string]authenticationv1.ExtraValue{serviceaccount.NodeNameKey: {l.Node}}},
		ResponseStatus: &metav1.Status{Code: int32(l.Code)}, //nolint:gosec // a status code
	}
	if constraint != "" {
		e.ImpersonatedUser = &authenticationv1.UserInfo{Username: l.As}
		e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
	return e
}

var allLines = []Attempt{line("list", "a", 200), line("get", "a", 200), line("list", "b", 403), line("get", "b", 403)}

func allEvents() (events []auditv1.Event) {
	for _, l := range allLines {
		constraint := ""
		if l.Target == "a" {
			constraint = "impersonate:associated-node"
		}
		events = append(events, event(l, constraint))
	}
	return events
}

// failed joins what did not pass.
func failed(checks []reports.AgentCheck) string {
	var all []string
	for _, c := range (&reports.Agents{Checks: checks}).Failed() {
		all = append(all, c.What+": "+c.Got)
	}
	return strings.Join(all, "; ")
}

func TestJudgeLines(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []Attempt
		want  string
	}{
		{"all is well", allLines, ""},
		{"refused as its node", append(allLines[:3:3], line("get", "b", 403), line("list", "a", 403)), "list pods as node a: 403"},
		{"allowed as another", append(allLines[:3:3], line("get", "b", 200)), "get nodes as node b: 200"},
		{"no answer", append(allLines[:3:3], line("get", "b", 0)), "get nodes as node b: 0"},
		{"never tried another", allLines[:2], "tried both its own node and another: true false"},
		{"nothing", nil, "tried both its own node and another: false false"},
		{"of another agent", append(allLines[:4:4], Attempt{Node: "c", Verb: "get", Target: "a", Code: 200}), "written by c"},
	} {
		if got := failed(judgeLines("a", c.lines)); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestJudgeEvents(t *testing.T) {
	if got := failed(judgeEvents(allLines, allEvents())); got != "" {
		t.Errorf("all is well: %s", got)
	}
	for name, c := range map[string]struct {
		change func(e *auditv1.Event)
		want   string
	}{
		"by another constraint": {func(e *auditv1.Event) {
			if e.AuthenticationMetadata != nil {
				e.AuthenticationMetadata.ImpersonationConstraint = "impersonate:arbitrary-node"
			}
		}, "by impersonate:arbitrary-node"},
		"of a pod elsewhere":  {func(e *auditv1.Event) { e.User.Extra = nil }, "no event"},
		"later":               {func(e *auditv1.Event) { e.StageTimestamp = metav1.NewMicroTime(noon.Add(time.Second)) }, "no event"},
		"by no impersonation": {func(e *auditv1.Event) { e.ImpersonatedUser = nil }, "no event"},
	} {
		events := allEvents()
		for i := range events {
			c.change(&events[i])
		}
		if got := failed(judgeEvents(allLines, events)); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	lines, err := parse([]byte(`{"node":"a","verb":"list","code":403,"message":"no"}` + "\n" + `{"node":"a","ver`))
	if err != nil || len(lines) != 1 || lines[0].Code != 403 || lines[0].Message != "no" {
		t.Errorf("got %+v, %v", lines, err)
	}
	if _, err := parse([]byte("panic: oh\n")); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Errorf("got %v", err)
	}
}
