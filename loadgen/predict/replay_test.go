package predict

import (
	"fmt"
	"testing"
	"time"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// logOf returns a log of agents on nodes that list every 4 s for a minute, of a busier second minute, and of a deputy.
func logOf() *Replay {
	r := &Replay{}
	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	list := oracle.Attributes{Verb: "list", Version: "v1", Resource: "pods", ResourceRequest: true}
	for node := range 10 {
		name := fmt.Sprintf("node-%d", node)
		requestor := oracle.RequestorOf(
			name,
			scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{Namespace: "a", Name: "agent", Pod: name, Node: name}},
		)
		for i := range 15 + 30 {
			at := begin.Add(time.Duration(i)*4*time.Second + time.Duration(node)*10*time.Millisecond)
			if i >= 15 {
				at = begin.Add(time.Minute + time.Duration(i-15)*2*time.Second + time.Duration(node)*10*time.Millisecond)
			}
			r.Add(
				LoggedRequest{
					At:        at,
					Client:    name,
					Requestor: requestor,
					As:        scenarios.Impersonate{User: "system:node:" + name, Groups: []string{"system:nodes"}},
					Request:   list,
				},
			)
		}
	}
	deputy := oracle.RequestorOf("d", scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{Namespace: "d", Name: "deputy"}})
	r.Add(LoggedRequest{At: begin, Client: "d", Requestor: deputy, Request: list, As: scenarios.Impersonate{
		User: "alice", Groups: []string{"dev", "ops"}, Extra: map[string][]string{"example.com/tenant": {"t"}},
	}})
	masters := oracle.Authenticated(scenarios.User{Name: "admin", Groups: []string{"system:masters"}})
	r.Add(LoggedRequest{At: begin, Client: "m", Requestor: masters, As: scenarios.Impersonate{User: "alice"}, Request: list})
	return r
}

func TestReplay(t *testing.T) {
	p := Defaults()
	p.Authorizer.Cache = false
	got, err := logOf().Predict(t.Context(), &p)
	if err != nil || len(got.Situations) != 3 || len(got.Accounts) != 3 || got.Requests != 452 {
		t.Fatalf("%v: %+v", err, got)
	}
	agent := got.Accounts[0]
	if agent.Name != "system:serviceaccount:a:agent" || agent.Requests != 450 || agent.Modes[oracle.AssociatedNode] != 450 {
		t.Errorf("%+v", agent)
	}
	// These are node, group and request, for every request of each agent. In constrained modes all agents ask the same,
	// which is remembered for 10 s: an action and an identity.
	misses := int64(0)
	last := -time.Minute
	for i := range 15 + 30 {
		at := time.Duration(i) * 4 * time.Second
		if i >= 15 {
			at = time.Minute + time.Duration(i-15)*2*time.Second
		}
		if at >= last+10*time.Second {
			misses, last = misses+1, at
		}
	}
	for i, want := range []int64{3 * 450, 3 * 450, 450 + 2*misses} {
		if s := agent.Situations[i]; s.Checks != want || s.Reviews != want {
			t.Errorf("%s: %d checks and %d reviews, want %d", s.Name, s.Checks, s.Reviews, want)
		}
	}
	peak := agent.Situations[0].Peak
	if peak.Begin.Minute() != 5 || peak.Checks != 3*300/60.0 {
		t.Errorf("%+v", peak)
	}
	// These are alice, two groups, a value of extra and the request. With the gate on, there is also an action check
	// first, whether it is denied or not.
	for _, a := range got.Accounts[1:] {
		want := []int64{5, 6, 6}
		if a.Name == "admin" { // no webhook sees the admin, except as alice
			want = []int64{1, 1, 1}
		}
		for i, s := range a.Situations {
			if s.Reviews != want[i] {
				t.Errorf("%s, %s: %d checks and %d reviews, want %d", a.Name, s.Name, s.Checks, s.Reviews, want[i])
			}
		}
	}
	if got.Situations[0].Peak.Begin.Minute() != 5 || got.From.Minute() != 4 || got.To.Minute() != 5 {
		t.Errorf("%+v", got)
	}
}

// TestReplayRemembers checks that what the API server remembers of the webhook's answers is left out, and that each API
// server remembers by itself.
func TestReplayRemembers(t *testing.T) {
	p := Defaults()
	one, err := logOf().Predict(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	p.APIServers = 3
	three, err := logOf().Predict(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range one.Situations {
		if s.Reviews >= s.Checks/5 || three.Situations[i].Reviews < s.Reviews {
			t.Errorf("%s: %d reviews of %d checks, %d with three API servers", s.Name, s.Reviews, s.Checks, three.Situations[i].Reviews)
		}
	}
}
