package nodes

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// line is an attempt of the agent on node a.
func line(verb, target string, code int) Attempt {
	return Attempt{
		Time:     noon,
		Node:     "a",
		As:       "system:node:" + target,
		Verb:     verb,
		Resource: map[string]string{"list": "pods", "get": "nodes"}[verb],
		Target:   target,
		Code:     code,
	}
}

// event is the audit event of a line, by a constraint if it was impersonated.
func event(l Attempt, constraint string) auditv1.Event {
	e := auditv1.Event{
		Verb:           l.Verb,
		ObjectRef:      &auditv1.ObjectReference{Resource: l.Resource},
		StageTimestamp: metav1.NewMicroTime(noon.Add(-time.Millisecond)),
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
func failed(checks []Check) string {
	var all []string
	for _, c := range checks {
		if !c.Passed() {
			all = append(all, c.What+": "+c.Got)
		}
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
		{"never tried another", allLines[:2], "did not try: list as node b; get as node b"},
		{"left out what was allowed", allLines[:3], "did not try: get as node b"},
		{"nothing", nil, "did not try: list as node a; get as node a; list as node b; get as node b"},
		{"of another agent", append(allLines[:4:4], Attempt{Node: "c", Verb: "get", Target: "a", Code: 200}), "written by c"},
	} {
		if got := failed(judgeLines("a", []string{"a", "b"}, c.lines)); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
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
		"of a pod elsewhere": {func(e *auditv1.Event) { e.User.Extra = nil }, "no event"},
		"later":              {func(e *auditv1.Event) { e.StageTimestamp = metav1.NewMicroTime(noon.Add(time.Second)) }, "no event"},
		"long before":        {func(e *auditv1.Event) { e.StageTimestamp = metav1.NewMicroTime(noon.Add(-time.Minute)) }, "no event"},
		"without an answer":  {func(e *auditv1.Event) { e.ResponseStatus = nil }, "no event"},
		"as another, too": {func(e *auditv1.Event) {
			if e.ImpersonatedUser == nil && e.Verb == "get" {
				*e = event(line("get", "b", 200), "impersonate:associated-node")
			}
		}, "other impersonations: 200, system:node:b, by impersonate:associated-node"},
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

// soundly is what is seen of agents on two nodes where all is well.
func soundly() *AgentsEvidence {
	on := func(node, other string, at time.Time) (lines []Attempt) {
		for _, target := range []string{node, other} {
			for _, verb := range []string{"list", "get"} {
				l := line(verb, target, map[bool]int{true: 200, false: 403}[target == node])
				l.Node, l.Time = node, at
				lines = append(lines, l)
			}
		}
		return lines
	}
	s := &AgentsEvidence{Nodes: []string{"a", "b"}, Work: map[string][]Attempt{"a": on("a", "b", noon), "b": on("b", "a", noon)}}
	for _, lines := range s.Work {
		for _, l := range lines {
			constraint := ""
			if l.Target == l.Node {
				constraint = "impersonate:associated-node"
			}
			e := event(l, constraint)
			e.User.Username = accountOf("x")
			s.Events = append(s.Events, e)
		}
	}
	answers := func(at time.Time, n, last int) (out []TimedCode) {
		for i := range n {
			out = append(out, TimedCode{at.Add(time.Duration(i) * time.Second), 200})
		}
		out[n-1].Code = last
		return out
	}
	pod, node := noon.Add(time.Minute), noon.Add(2*time.Minute)
	s.Pod, s.After = &StolenToken{pod, answers(pod, 10, 401)}, on("a", "b", pod.Add(20*time.Second))
	s.Node = &StolenToken{node, answers(node, 13, 200)}
	return s
}

// TestCheats: each way to make what was seen say something else is found, and nothing else is.
func TestCheats(t *testing.T) {
	judged := func(change func(s *AgentsEvidence), suffix string) string {
		o := &Observation{Seen: *soundly()}
		change(&o.Seen)
		j, err := o.Judge(suffix)
		if err != nil {
			return err.Error()
		}
		var all []Check
		for _, part := range Parts() {
			all = append(all, j.Checks[part]...)
		}
		return failed(all)
	}
	nothing := func(*AgentsEvidence) {}
	if got := judged(nothing, "x"); got != "" {
		t.Fatalf("all is well: %s", got)
	}
	if got := judged(nothing, "y"); !strings.Contains(got, "no event") {
		t.Errorf("events of another cell's account: %q", got)
	}
	for name, c := range map[string]struct {
		change func(s *AgentsEvidence)
		want   string
	}{
		"a node is removed":              {func(s *AgentsEvidence) { s.Nodes = s.Nodes[:1] }, "not all that has to be"},
		"a node is another":              {func(s *AgentsEvidence) { s.Nodes[1] = "c" }, "which is not one of the nodes"},
		"what an agent wrote is removed": {func(s *AgentsEvidence) { delete(s.Work, "b") }, "did not try"},
		"what it must not is removed":    {func(s *AgentsEvidence) { s.Work["a"] = s.Work["a"][:3] }, "did not try: get as node b"},
		"a line is another agent's":      {func(s *AgentsEvidence) { s.Work["a"][0] = s.Work["b"][0] }, "written by b"},
		"agents are swapped":             {func(s *AgentsEvidence) { s.Work["a"], s.Work["b"] = s.Work["b"], s.Work["a"] }, "written by b"},
		"a code is edited":               {func(s *AgentsEvidence) { s.Work["a"][3].Code = 200 }, "get nodes as node b: 200"},
		"an event is removed":            {func(s *AgentsEvidence) { s.Events = s.Events[1:] }, "no event"},
		"events are removed":             {func(s *AgentsEvidence) { s.Events = nil }, "no event"},
		"an event by another constraint": {func(s *AgentsEvidence) { s.Events = append(s.Events, wrong(s.Events)) }, "other impersonations"},
		"the deleted pod is removed":     {func(s *AgentsEvidence) { s.Pod = nil }, "not all that has to be"},
		"the deleted node is removed":    {func(s *AgentsEvidence) { s.Node = nil }, "not all that has to be"},
		"pod and node are swapped":       {func(s *AgentsEvidence) { s.Pod, s.Node = s.Node, s.Pod }, "cannot have been"},
		"the pod was deleted later":      {func(s *AgentsEvidence) { s.Pod.Deleted = s.Pod.Deleted.Add(5 * time.Second) }, "cannot have been"},
		"a token was good for too long": {func(s *AgentsEvidence) {
			s.Pod.Answers = append(s.Pod.Answers[:9], TimedCode{s.Pod.Deleted.Add(11500 * time.Millisecond), 200}, TimedCode{s.Pod.Deleted.Add(12500 * time.Millisecond), 200}, TimedCode{s.Pod.Deleted.Add(13 * time.Second), 401})
		}, "the token of a deleted pod ends: after 13s"},
		"late answers of a token are removed":    {func(s *AgentsEvidence) { s.Pod.Answers = s.Pod.Answers[:9] }, "the token of a deleted pod ends: after"},
		"a refusal in between is removed":        {func(s *AgentsEvidence) { s.Node.Answers = append(s.Node.Answers[:2], s.Node.Answers[9:]...) }, "was not used for"},
		"a token's first answers are removed":    {func(s *AgentsEvidence) { s.Node.Answers = s.Node.Answers[12:] }, "was not used for"},
		"a token's answers are removed":          {func(s *AgentsEvidence) { s.Node.Answers = nil }, "200 for 0s only"},
		"the next pod's lines are removed":       {func(s *AgentsEvidence) { s.After = nil }, "did not try"},
		"the next pod's lines are the first's":   {func(s *AgentsEvidence) { s.After = s.Work["a"] }, "is said to be of the next pod"},
		"the next pod was allowed too much":      {func(s *AgentsEvidence) { s.After[2].Code = 200 }, "list pods as node b: 200"},
		"the node was deleted while pods worked": {func(s *AgentsEvidence) { s.After[3].Time = s.Node.Deleted.Add(time.Second) }, "cannot have been"},
	} {
		if got := judged(c.change, "x"); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestLateRefusal: who is asked late refuses late, and the token may have ended long before.
func TestLateRefusal(t *testing.T) {
	s := soundly()
	s.Pod.Answers = append(
		s.Pod.Answers[:9],
		TimedCode{s.Pod.Deleted.Add(11350 * time.Millisecond), 200},
		TimedCode{s.Pod.Deleted.Add(13180 * time.Millisecond), 401},
	)
	j, err := (&Observation{Seen: *s}).Judge("x")
	if err != nil {
		t.Fatal(err)
	}
	if got := failed(j.Checks[PartPodToken]); got != "" {
		t.Error(got)
	}
}

// TestEveryPart shows that no part is without checks where everything was seen.
func TestEveryPart(t *testing.T) {
	j, err := (&Observation{Seen: *soundly()}).Judge("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range Parts() {
		if len(j.Checks[part]) == 0 {
			t.Errorf("%s has no check", part)
		}
	}
}

// wrong is an event of an impersonation by another constraint, for a node that it is allowed for.
func wrong(events []auditv1.Event) auditv1.Event {
	for _, e := range events {
		if e.ImpersonatedUser != nil {
			e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: "impersonate:arbitrary-node"}
			return e
		}
	}
	return auditv1.Event{}
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
