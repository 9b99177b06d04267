package nodes

import (
	"fmt"
	"slices"
	"strconv"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/reports"
)

// judgeLines compares what an agent wrote with what it must be allowed: everything
// as its own node, nothing as another.
func judgeLines(node string, lines []Attempt) []reports.AgentCheck {
	var checks []reports.AgentCheck
	tried := map[string]bool{}
	for _, l := range lines {
		want := 200
		if l.Target != node {
			want = 403
		}
		c := reports.AgentCheck{What: fmt.Sprintf("the agent on %s, %s %s as node %s", node, l.Verb, l.Resource, l.Target), Want: strconv.Itoa(want), Got: strconv.Itoa(l.Code)}
		tried[l.Verb+" "+l.Target] = true
		if l.Node != node {
			c.Want, c.Got = "written by "+node, "written by "+l.Node
		}
		if !slices.Contains(checks, c) { // each once, however often it was tried
			checks = append(checks, c)
		}
	}
	own := tried["list "+node] && tried["get "+node]
	other := slices.ContainsFunc(lines, func(l Attempt) bool { return l.Target != node })
	return append(checks, reports.AgentCheck{What: "the agent on " + node + " tried both its own node and another", Want: "true true", Got: fmt.Sprint(own, other)})
}

// judgeEvents compares the audit events of the agents' account with the lines:
// each line has an event, which says who it was from and by which constraint.
func judgeEvents(lines []Attempt, events []auditv1.Event) []reports.AgentCheck {
	counts := map[reports.AgentCheck]bool{}
	var checks []reports.AgentCheck
	for _, l := range lines {
		what := fmt.Sprintf("audit of the agent on %s, %s %s as node %s", l.Node, l.Verb, l.Resource, l.Target)
		c := reports.AgentCheck{What: what, Want: wantedEvent(l), Got: "no event"}
		for _, e := range events {
			if matches(l, e) {
				c.Got = describeEvent(e)
				break
			}
		}
		if !counts[c] {
			counts[c] = true
			checks = append(checks, c)
		}
	}
	return checks
}

// matches tells whether an event is that of a line: of the same pod's node, verb,
// resource and wanted user, ended before the line was written.
func matches(l Attempt, e auditv1.Event) bool {
	if e.ObjectRef == nil || e.ObjectRef.Resource != l.Resource || e.Verb != l.Verb || !slices.Equal(e.User.Extra[serviceaccount.NodeNameKey], []string{l.Node}) {
		return false
	}
	if e.StageTimestamp.After(l.Time) {
		return false
	}
	// A refused impersonation leaves no impersonatedUser: of these the code tells.
	if e.ImpersonatedUser == nil {
		return l.Target != l.Node && int(e.ResponseStatus.Code) == l.Code
	}
	return e.ImpersonatedUser.Username == l.As
}

func wantedEvent(l Attempt) string {
	if l.Target != l.Node {
		return "403, nobody, by no constraint"
	}
	return "200, " + l.As + ", by impersonate:associated-node"
}

func describeEvent(e auditv1.Event) string {
	who, by := "nobody", "no constraint"
	if e.ImpersonatedUser != nil {
		who = e.ImpersonatedUser.Username
	}
	if m := e.AuthenticationMetadata; m != nil && m.ImpersonationConstraint != "" {
		by = m.ImpersonationConstraint
	}
	return fmt.Sprintf("%d, %s, by %s", e.ResponseStatus.Code, who, by)
}
