package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func TestEffectiveGate(t *testing.T) {
	tests := []struct {
		version string
		asked   scenarios.Gate
		want    scenarios.Gate
	}{
		{"1.33", scenarios.GateDefault, scenarios.GateOff},
		{"1.34.4", scenarios.GateOff, scenarios.GateOff},
		{"1.34", scenarios.GateOn, scenarios.GateOff}, // there is nothing to switch on
		{"1.35", scenarios.GateDefault, scenarios.GateOff},
		{"1.35.4", scenarios.GateOn, scenarios.GateOn},
		{"1.36", scenarios.GateDefault, scenarios.GateOn},
		{"1.37.1", scenarios.GateDefault, scenarios.GateOn},
		{"1.37", scenarios.GateOff, scenarios.GateOff},
		{"2.0", scenarios.GateDefault, scenarios.GateOn},
	}
	for _, test := range tests {
		if got := EffectiveGate(test.version, test.asked); got != test.want {
			t.Errorf("%s asked %s: %s, want %s", test.version, test.asked, got, test.want)
		}
	}
}

// TestDetectGate uses the answers of real API servers.
func TestDetectGate(t *testing.T) {
	for message, want := range map[string]scenarios.Gate{
		`requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name`: scenarios.GateOn,
		`requested [{Group  g    }] without impersonating a user`:                                                                              scenarios.GateOff,
		`Internal Server Error: "/version": requested [{Group  g    }] without impersonating a user`:                                           scenarios.GateOff,
		`something else`: scenarios.GateUnknown,
		"":               scenarios.GateUnknown,
	} {
		if got := reports.DetectGate(message); got != want {
			t.Errorf("%q: %s, want %s", message, got, want)
		}
	}
}

func TestCountersSince(t *testing.T) {
	times := func(n int) counterValue { return counterValue{times: n} }
	before := counters{
		{name: "a", mode: "legacy", decision: "allowed"}: times(1), {name: "b", mode: "", decision: "denied"}: times(2),
		{name: "h_count", mode: "", decision: "denied"}: {times: 2, histogram: true, sum: 0.5},
	}
	now := counters{
		{name: "a", mode: "legacy", decision: "allowed"}:    times(3),
		{name: "b", mode: "", decision: "denied"}:           times(2),
		{name: "a", mode: "user-info", decision: "allowed"}: times(1),
		{name: "h_count", mode: "", decision: "denied"}:     {times: 3, histogram: true, sum: 0.75},
	}
	quarter := 0.25
	want := []verdicts.MetricSample{
		{Name: "a", Mode: "legacy", Decision: "allowed", Delta: 2},
		{Name: "a", Mode: "user-info", Decision: "allowed", Delta: 1},
		{Name: "h_count", Decision: "denied", Delta: 1, Seconds: &quarter},
	}
	if diff := cmp.Diff(want, now.since(before)); diff != "" {
		t.Error(diff)
	}
	if got := (counters{}).since(before); len(got) != 3 || got[0].Delta != -1 {
		t.Errorf("a restarted server gives %v", got)
	}
	if got := before.since(before); got == nil || len(got) != 0 {
		t.Errorf("no movement gives %v, which is not the same as no metrics", got)
	}
}

func TestWanted(t *testing.T) {
	for line, want := range map[string]bool{
		"apiserver_impersonation_attempts_total{mode=\"x\"} 1":    true,
		"# HELP apiserver_impersonation_attempts_total [ALPHA] x": true,
		"# TYPE apiserver_impersonation_attempts_total counter":   true,
		"apiserver_request_total 1":                               false,
		"# HELP other mentions apiserver_impersonation_":          false,
		"": false,
	} {
		if got := isWanted([]byte(line), []string{impersonationPrefix}); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func TestAuditIndex(t *testing.T) {
	x := newAuditIndex()
	event := func(id, stage string) string { return `{"auditID":"` + id + `","stage":"` + stage + `"}` + "\n" }
	write := func(s string) {
		if _, err := x.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	write(event("a", "ResponseStarted") + event("a", "ResponseComplete")[:10])
	write(event("a", "ResponseComplete")[10:])
	raw, err := x.Await(t.Context(), "a")
	if err != nil || !strings.Contains(string(raw), "ResponseComplete") {
		t.Fatalf("got %s, %v", raw, err)
	}
	if got := string(x.beginning("a")); !strings.Contains(got, "ResponseStarted") {
		t.Errorf("as the answer began: %s", got)
	}
	if got := string(x.beginning("a")); got != `"none"` {
		t.Errorf("as the answer began, again: %s", got)
	}
	if again := x.repeated(); again != nil {
		t.Errorf("there is one event, and again %s", again)
	}
	if write(event("a", "ResponseComplete")); x.repeated() == nil {
		t.Error("a second event of a request that was asked for is not told of")
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		write(event("late", "ResponseComplete"))
	}()
	if _, err := x.Await(t.Context(), "late"); err != nil || x.repeated() != nil {
		t.Error(err, "or what came again of another request")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Await(ctx, "never"); err == nil {
		t.Error("an event that does not come is found")
	}
}

// TestChains: every chain of the fixtures can be rendered, with the recorder at
// both ends and no webhook cache.
func TestChains(t *testing.T) {
	r, err := recorder.Start(recorder.Options{Scripts: map[recorder.Point]recorder.Script{policyPoint: nil}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	for _, name := range []string{"", "abac", "webhook-cached", "webhook-cel", "webhook-first", "webhook-last"} {
		m, err := loadMiddle(name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := chain{middle: m, recorder: r, cacheFields: true}.config()
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		config := string(raw)
		front, back := strings.Index(config, "recorder-front"), strings.LastIndex(config, "recorder-back")
		for _, a := range m.Authorizers {
			if at := strings.Index(config, "name: "+a.Name+"\n"); at < front || at > back {
				t.Errorf("%q: authorizer %s is not between the recorder's points:\n%s", name, a.Name, config)
			}
		}
		if strings.Contains(config, "cacheAuthorizedRequests: true") || strings.Count(config, "cacheAuthorizedRequests: false") < 2 {
			t.Errorf("%q: a webhook may cache:\n%s", name, config)
		}
	}
	if _, err := loadMiddle("none"); err == nil {
		t.Error("a chain that does not exist is loaded")
	}
}

func TestPolicyDecision(t *testing.T) {
	first, err := loadMiddle("webhook-first")
	if err != nil {
		t.Fatal(err)
	}
	last, err := loadMiddle("webhook-last")
	if err != nil {
		t.Fatal(err)
	}
	broken := recorder.ScriptedReply{Code: 500}
	if got := first.decision(broken); got != scenarios.NoOpinion {
		t.Errorf("failurePolicy NoOpinion: %s", got)
	}
	if got := last.decision(broken); got != scenarios.Deny {
		t.Errorf("failurePolicy Deny: %s", got)
	}
}
