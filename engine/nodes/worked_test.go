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

// worked is a record of an agent and a deputy on an API server with the gate on, an hour after it was ready at noon.
func worked() *WorkRecord {
	ready := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := &WorkRecord{From: ready.Add(-time.Minute), Ready: ready, To: ready.Add(2 * time.Hour), Nodes: []string{"a", "b"},
		Pods:  map[string]WorkloadPod{"agent": {"a", "1", 0}, "deputy": {"b", "2", 0}},
		Lines: map[string][]Attempt{},
	}
	later := ready.Add(time.Hour)
	r.add(
		"agent",
		Attempt{Time: later, Node: "a", As: "system:node:a", Verb: "list", Resource: "pods", Target: "a", Code: 200},
		"impersonate:associated-node",
	)
	r.add("agent", Attempt{Time: later, Node: "a", As: "system:node:b", Verb: "list", Resource: "pods", Target: "b", Code: 403}, "")
	for kind, code := range map[string]int{NewUser: 200, OldUser: 200, NoUser: 403} {
		constraint := ""
		if kind == NewUser {
			constraint = "impersonate:user-info"
		}
		r.add(
			"deputy",
			Attempt{
				Time:     later,
				Deputy:   true,
				Node:     "b",
				As:       "node-deputy-x-" + kind,
				Verb:     "list",
				Resource: "pods",
				Target:   kind,
				Code:     code,
			},
			constraint,
		)
	}
	return r
}

// add adds a line, and its event.
func (r *WorkRecord) add(pod string, l Attempt, constraint string) {
	r.Lines[pod] = append(r.Lines[pod], l)
	e := auditv1.Event{
		Verb:           l.Verb,
		ObjectRef:      &auditv1.ObjectReference{Resource: l.Resource},
		ResponseStatus: &metav1.Status{Code: int32(l.Code)},
		StageTimestamp: metav1.NewMicroTime(l.Time.Add(-time.Millisecond)),
		User: authenticationv1.UserInfo{
			Username: Account("x", l.Deputy),
			Extra:    map[string]authenticationv1.ExtraValue{serviceaccount.NodeNameKey: {l.Node}},
		},
	}
	if l.Code == 200 {
		e.ImpersonatedUser = &authenticationv1.UserInfo{Username: l.As}
		e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
	r.Events = append(r.Events, e)
}

// firstFailed returns the first check that is not passed.
func firstFailed(checks []Check) string {
	for _, c := range checks {
		if !c.Passed() {
			return c.What + ": want " + c.Want + ", got " + c.Got
		}
	}
	return ""
}

func TestWorkRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *WorkRecord)
		now    bool
		beside bool // whether another API server runs, with the gate in the other state
		fails  string
	}{
		{name: "sound", now: true},
		{name: "on a server with the gate off", fails: "as system:node:a: want 403, got 200"},
		{name: "on a server with the gate off, beside one with it on", beside: true},
		{name: "another node is allowed, whichever server answers", beside: true, change: func(r *WorkRecord) { r.Lines["agent"][1].Code = 200 }, fails: "as system:node:b: want 403, got 200"},
		{name: "another node is allowed", now: true, change: func(r *WorkRecord) { r.Lines["agent"][1].Code = 200 }, fails: "as system:node:b: want 403, got 200"},
		{name: "no answer in the end", now: true, change: func(r *WorkRecord) {
			r.Lines["agent"] = append(r.Lines["agent"], Attempt{Time: r.To, Node: "a", Target: "a"})
		}, fails: "has no answer"},
		{name: "no answer while it starts", now: true, change: func(r *WorkRecord) {
			r.Lines["agent"] = append([]Attempt{{Time: r.Ready.Add(-time.Second), Node: "a", Target: "a"}}, r.Lines["agent"]...)
		}},
		{name: "refused for a moment, before it is ready", now: true, change: func(r *WorkRecord) {
			r.add("agent", Attempt{Time: r.Ready.Add(-time.Millisecond), Node: "a", As: "system:node:a", Verb: "list", Resource: "pods", Target: "a", Code: 403}, "")
		}},
		{name: "allowed for nobody, before it is ready", now: true, change: func(r *WorkRecord) {
			r.add("agent", Attempt{Time: r.Ready.Add(-time.Millisecond), Node: "a", As: "system:node:b", Verb: "list", Resource: "pods", Target: "b", Code: 200}, "impersonate:associated-node")
		}, fails: "as system:node:b: want 403, got 200"},
		{name: "silent", now: true, change: func(r *WorkRecord) { r.Lines["deputy"] = nil }, fails: "has written nothing since"},
		{name: "another constraint", now: true, change: func(r *WorkRecord) { r.Events[0].AuthenticationMetadata.ImpersonationConstraint = "" }, fails: "by no constraint"},
		{name: "no event", now: true, change: func(r *WorkRecord) { r.Events = r.Events[1:] }, fails: "no event with 200"},
		{name: "an event too many", now: true, change: func(r *WorkRecord) {
			more := *r.Events[0].DeepCopy()
			more.ImpersonatedUser.Username = "system:node:b"
			r.Events = append(r.Events, more)
		}, fails: "other impersonations: want none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := worked()
			if c.change != nil {
				c.change(r)
			}
			gates := Gates{Before: []bool{c.now}, Now: []bool{c.now}}
			if c.beside {
				gates.Now = append(gates.Now, !c.now)
			}
			got := firstFailed(append(r.CheckAnswers(gates), r.CheckEvents(gates)...))
			if (got == "") != (c.fails == "") || !strings.Contains(got, c.fails) {
				t.Errorf("got %q, want %q", got, c.fails)
			}
		})
	}
}

func TestPodsLiveOn(t *testing.T) {
	first, now := worked(), worked()
	if got := firstFailed(now.CheckPods(first)); got != "" {
		t.Error(got)
	}
	now.Pods["agent"] = WorkloadPod{"a", "1", 1}
	delete(now.Pods, "deputy")
	now.Pods["other"] = WorkloadPod{"b", "3", 0}
	wrong := 0
	for _, c := range now.CheckPods(first) {
		if !c.Passed() {
			wrong++
		}
	}
	if wrong != 3 {
		t.Errorf("%d checks failed, want 3: started again, gone, new", wrong)
	}
}
