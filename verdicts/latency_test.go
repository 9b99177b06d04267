package verdicts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// timed returns evidence of a request of 600 ms with times in its histograms and, if annotations is not empty, in its
// audit event.
func timed(seconds float64, annotations string) *Evidence {
	e := newEvidence()
	o := &e.Steps[0]
	o.Sent = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Answered = o.Sent.Add(600 * time.Millisecond)
	for i := range o.Metrics {
		if strings.HasSuffix(o.Metrics[i].Name, "_count") {
			o.Metrics[i].Seconds = &seconds
		}
	}
	if annotations != "" {
		o.Audit = json.RawMessage(strings.Replace(string(o.Audit), `"annotations":{`, `"annotations":{`+annotations+",", 1))
	}
	return e
}

// TestImpossibleTimesAreNamed checks that impossible times are named, with the same words in every run.
func TestImpossibleTimesAreNamed(t *testing.T) {
	slow := `"apiserver.latency.k8s.io/total":"510ms"`
	total := slow + `,"apiserver.latency.k8s.io/authorization":"7ms"`
	tests := map[string]struct {
		evidence *Evidence
		field    string // "" if nothing is wrong
		got      string
	}{
		"sound":                    {timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"20ms"`), "", ""},
		"quick, so no annotation":  {timed(0.02, ""), "", ""},
		"clock set meanwhile":      {timed(1.1, ""), "", ""},
		"no time":                  {timed(0, ""), "metrics.attempts (time)", "none"},
		"more time than there was": {timed(2, ""), "metrics.attempts (time)", "more than that of the request"},
		"292 years":                {timed(9.2e9, ""), "metrics.attempts (time)", "more than that of the request"},
		"slow and not annotated":   {timed(0.02, total), "audit (latency of impersonation)", "absent"},
		"annotated with no time": {
			timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"0s"`),
			"audit (latency of impersonation)",
			"none",
		},
		"annotated with 292 years": {
			timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"2562047h47m16s"`),
			"audit (latency of impersonation)",
			"more than that of the request",
		},
		"authorization is free": {
			timed(0.02, slow+`,"apiserver.latency.k8s.io/impersonation":"20ms"`),
			"audit (latency of authorization)",
			"absent",
		},
		"authorization of years": {
			timed(0.02, slow+`,"apiserver.latency.k8s.io/authorization":"9000h","apiserver.latency.k8s.io/impersonation":"20ms"`),
			"audit (latency of authorization)",
			"more than that of the request",
		},
		"another handler is quick": {
			timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"20ms","apiserver.latency.k8s.io/etcd":"5ms"`),
			"",
			"",
		},
		"storage of years": {
			timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"20ms","apiserver.latency.k8s.io/etcd":"9000h"`),
			"audit (latency of etcd)",
			"more than that of the request",
		},
		"storage of no duration": {
			timed(0.02, total+`,"apiserver.latency.k8s.io/impersonation":"20ms","apiserver.latency.k8s.io/etcd":"long"`),
			"audit (latency of etcd)",
			"not a duration",
		},
		"sums that nobody looked at": {newEvidence(), "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := Judge(listAsBob(), test.evidence)
			switch {
			case test.field == "" && r.Verdict != Passed:
				t.Errorf("%s: %s", r.Verdict, r.Reason)
			case test.field != "" &&
				(len(r.Differences) == 0 || r.Differences[0].Field != test.field || r.Differences[0].Got != test.got):
				t.Errorf("%s: %v, want %s: %s", r.Verdict, r.Differences, test.field, test.got)
			}
		})
	}
}

// TestSlowRequestHasLatency checks that versions which call slow requests slow have to do so.
func TestSlowRequestHasLatency(t *testing.T) {
	for version, want := range map[string]Verdict{"1.33.13": Passed, "1.34": Passed, "1.35.4": Failed, "1.37.1": Failed} {
		e := timed(0.02, "")
		e.Cell.Kubernetes = version
		event := AuditOf(&e.Steps[0])
		event.StageTimestamp.Time = event.RequestReceivedTimestamp.Add(5 * time.Second)
		e.Steps[0].Audit, _ = json.Marshal(event)
		if r := Judge(listAsBob(), e); r.Verdict != want {
			t.Errorf("%s: %s: %s", version, r.Verdict, r.Reason)
		}
	}
}

// TestLatencyNeedsMetrics checks that older servers need not annotate the latency of impersonation.
func TestLatencyNeedsMetrics(t *testing.T) {
	e := timed(0.02, `"apiserver.latency.k8s.io/total":"510ms","apiserver.latency.k8s.io/authorization":"7ms"`)
	e.Capabilities = scenarios.Capabilities{scenarios.Reviews, scenarios.Audit, scenarios.RequestHeader, scenarios.Signing}
	if r := Judge(listAsBob(), e); r.Verdict != Passed {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// TestLatencyWithoutMetrics checks that a server which measures impersonation has to annotate its latency even where
// its metrics were not read, and that an older one must not.
func TestLatencyWithoutMetrics(t *testing.T) {
	for version, want := range map[string]Verdict{"1.35.4": Failed, "1.36.3": Passed, "1.37.1": Passed} {
		e := timed(
			0.02,
			`"apiserver.latency.k8s.io/total":"510ms","apiserver.latency.k8s.io/authorization":"7ms","apiserver.latency.k8s.io/impersonation":"20ms"`,
		)
		e.Capabilities = scenarios.Capabilities{scenarios.Reviews, scenarios.Audit, scenarios.RequestHeader, scenarios.Signing}
		e.Cell.Kubernetes = version
		s := listAsBob()
		s.Requires.Gate = scenarios.GateOn
		if r := Judge(s, e); r.Verdict != want {
			t.Errorf("%s: %s: %s", version, r.Verdict, r.Reason)
		}
	}
}

// TestLatencyOfAWatch checks that the audit event of a watch may not say how long anything took, because a watch lasts
// as long as its client wants.
func TestLatencyOfAWatch(t *testing.T) {
	for annotations, want := range map[string]string{
		`"acme.com/note":"none"`:                          "",
		`"apiserver.latency.k8s.io/impersonation":"20ms"`: "there",
		`"apiserver.latency.k8s.io/total":"510ms"`:        "there",
	} {
		e := timed(0.02, annotations)
		event := AuditOf(&e.Steps[0])
		event.Verb = "watch"
		e.Steps[0].Audit, _ = json.Marshal(event)
		got := ""
		for _, d := range Judge(listAsBob(), e).Differences {
			if d.Field == "audit (latency of a watch)" {
				got = d.Got
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", annotations, got, want)
		}
	}
}
