package nodes

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/internal/seq"
)

// isUnanswered reports whether no API server decided about an attempt.
func (l Attempt) isUnanswered() bool {
	return l.Code == 0 || l.Code == http.StatusTooManyRequests || l.Code >= http.StatusInternalServerError
}

// grant is what an attempt has to lead to.
type grant struct {
	code int
	by   string // the constraint that the audit event names, empty for legacy impersonation
}

// expectation returns what an attempt has to lead to on an API server with the gate on or off.
func (l Attempt) expectation(gateOn bool) grant {
	switch {
	case l.Deputy && l.Target == OldUser:
		return grant{http.StatusOK, ""}
	case l.Deputy && l.Target == NewUser && gateOn:
		return grant{http.StatusOK, "impersonate:user-info"}
	case !l.Deputy && l.Target == l.Node && gateOn:
		return grant{http.StatusOK, "impersonate:associated-node"}
	}
	return grant{http.StatusForbidden, ""}
}

func (l Attempt) String() string {
	who := "the agent on " + l.Node
	if l.Deputy {
		who = "the deputy"
	}
	return fmt.Sprintf("%s, %s %s as %s", who, l.Verb, l.Resource, l.As)
}

// CheckPods checks that the pods are those of an earlier record, and that none of their containers has been started again.
func (r *WorkRecord) CheckPods(first *WorkRecord) (checks []Check) {
	for _, name := range seq.AppendMissing(slices.Sorted(maps.Keys(first.Pods)), slices.Sorted(maps.Keys(r.Pods))...) {
		checks = append(checks,
			Check{What: "the pod " + name, Want: describeWorkload(first.Pods, name), Got: describeWorkload(r.Pods, name)},
		)
	}
	return checks
}

func describeWorkload(pods map[string]WorkloadPod, name string) string {
	pod, known := pods[name]
	if !known {
		return "is not there"
	}
	return fmt.Sprintf("%s on %s, started again %d times", pod.UID, pod.Node, pod.Restarts)
}

// Gates are the states of the gate, true if on, of the API servers that workloads could meet: Before while one was replaced,
// and Now, since the next has been ready. There is more than one state where API servers run beside each other.
type Gates struct{ Before, Now []bool }

// CheckAnswers checks the answers that workloads got from API servers. What came until these were ready may also be what those
// before had to answer. An attempt that nobody answered is no wrong answer, but in the end each workload has to have answers
// again.
func (r *WorkRecord) CheckAnswers(g Gates) (checks []Check) {
	for _, name := range slices.Sorted(maps.Keys(r.Pods)) {
		for _, l := range r.Lines[name] {
			if !l.isUnanswered() {
				checks = seq.AppendMissing(checks, r.checkAnswer(l, g)) // each once, however often it was tried
			}
		}
		checks = append(checks, r.checkLast(name))
	}
	return checks
}

// checkLast checks that what a workload did last was answered, by the API server that is there at the end.
func (r *WorkRecord) checkLast(pod string) Check {
	c := Check{What: "the pod " + pod + " in the end", Want: "works", Got: "works"}
	var last Attempt
	for _, l := range r.Lines[pod] {
		if l.Time.After(last.Time) {
			last = l
		}
	}
	switch {
	case !last.Time.After(r.Ready):
		c.Got = "has written nothing since the API server was ready"
	case last.isUnanswered():
		c.Got = "has no answer: " + last.Message
	}
	return c
}

// checkAnswer checks a line with an answer.
func (r *WorkRecord) checkAnswer(l Attempt, g Gates) Check {
	return r.checkEither(l, g, l.String(), fmt.Sprint(l.Code), func(g grant) string { return fmt.Sprint(g.code) })
}

// checkEither checks that what was seen of an attempt is what it has to lead to on one of the API servers that there were.
// describe returns how an outcome is seen.
func (r *WorkRecord) checkEither(l Attempt, g Gates, what, got string, describe func(grant) string) Check {
	c := Check{What: what, Want: describe(l.expectation(g.Now[0])), Got: got}
	possible := seq.Map(g.Now, l.expectation)
	if r.mayBeEarly(l) {
		possible = append(append(possible, seq.Map(g.Before, l.expectation)...), grant{http.StatusForbidden, ""})
	}
	if slices.ContainsFunc(possible, func(one grant) bool { return describe(one) == got }) {
		c.Want = got
	}
	return c
}

// LongestPause returns the longest time for which a workload had no answer.
func (r *WorkRecord) LongestPause() (longest time.Duration) {
	for _, lines := range r.Lines {
		var since time.Time // the first attempt without an answer
		for _, l := range lines {
			switch {
			case !l.isUnanswered():
				since = time.Time{}
			case since.IsZero():
				since = l.Time
			default:
				longest = max(longest, l.Time.Sub(since))
			}
		}
	}
	return longest
}

// mayBeEarly reports whether an answer may be one of the API server before, or of one that was not ready yet and had not read
// all permissions.
func (r *WorkRecord) mayBeEarly(l Attempt) bool { return l.Time.Before(r.Ready.Add(slack)) }

// CheckEvents checks that each line with an answer has an audit event that says the same, and that no event says that somebody
// was impersonated for whom nothing is granted.
func (r *WorkRecord) CheckEvents(g Gates) (checks []Check) {
	for _, name := range slices.Sorted(maps.Keys(r.Lines)) {
		for _, l := range r.Lines[name] {
			if !l.isUnanswered() {
				checks = seq.AppendMissing(checks, r.checkEvent(l, g))
			}
		}
	}
	other := Check{What: "audit of the workloads, other impersonations", Want: "none", Got: "none"}
	for _, e := range r.Events {
		if u := e.ImpersonatedUser; u != nil && !isGranted(e) {
			other.Got = describeEvent(e)
		}
	}
	return append(checks, other)
}

// checkEvent compares a line with its audit event.
func (r *WorkRecord) checkEvent(l Attempt, g Gates) Check {
	got := fmt.Sprintf("no event with %d", l.Code)
	if i := slices.IndexFunc(r.Events, func(e auditv1.Event) bool { return matchesWorkload(l, e) }); i >= 0 {
		got = describeEvent(r.Events[i])
	}
	return r.checkEither(l, g, "audit: "+l.String(), got, l.describe)
}

// describe returns the event of an attempt with an outcome, as describeEvent does.
func (l Attempt) describe(g grant) string {
	if g.code != http.StatusOK {
		return fmt.Sprintf("%d, nobody, by no constraint", g.code)
	}
	by := g.by
	if by == "" {
		by = "no constraint"
	}
	return fmt.Sprintf("%d, %s, by %s", g.code, l.As, by)
}

// matchesWorkload reports whether an event is that of a line: the same account, verb and resource, with its code, ended before
// the line was written; and for the same user, which an event says only where the impersonation was allowed.
func matchesWorkload(l Attempt, e auditv1.Event) bool {
	isDeputys := strings.Contains(e.User.Username, ":"+deputyName+"-")
	sameRequest := e.Verb == l.Verb && e.ObjectRef != nil && e.ObjectRef.Resource == l.Resource
	if isDeputys != l.Deputy || !sameRequest || e.ResponseStatus == nil {
		return false
	}
	sameNode := slices.Equal(e.User.Extra[serviceaccount.NodeNameKey], []string{l.Node})
	if !sameNode || int(e.ResponseStatus.Code) != l.Code {
		return false
	}
	if e.StageTimestamp.After(l.Time) || l.Time.Sub(e.StageTimestamp.Time) > lineDelay {
		return false
	}
	return e.ImpersonatedUser == nil || e.ImpersonatedUser.Username == l.As
}

// isGranted reports whether somebody was impersonated for whom the workload has permissions.
func isGranted(e auditv1.Event) bool {
	user := e.ImpersonatedUser.Username
	if strings.HasPrefix(user, deputyName+"-") {
		return strings.HasSuffix(user, "-"+NewUser) || strings.HasSuffix(user, "-"+OldUser)
	}
	nodes := e.User.Extra[serviceaccount.NodeNameKey]
	return len(nodes) == 1 && user == "system:node:"+nodes[0]
}
