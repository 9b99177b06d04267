package verdicts

import "testing"

// TestAllowedCounters checks that a series of allowed requests is judged where it is stated, and may have increased by
// more. An API server counts its own requests in it too.
func TestAllowedCounters(t *testing.T) {
	const allowed, denied = "authorization_attempts_total{result=allowed}", "authorization_attempts_total{result=denied}"
	count := func(result string, n int) MetricSample {
		return MetricSample{Name: "authorization_attempts_total", Labels: []string{"result=" + result}, Delta: n}
	}
	for name, c := range map[string]struct {
		want map[string]int
		got  []MetricSample
		good bool
	}{
		"as many as stated":      {map[string]int{allowed: 1}, []MetricSample{count("allowed", 1)}, true},
		"more than stated":       {map[string]int{allowed: 1}, []MetricSample{count("allowed", 3)}, true},
		"fewer than stated":      {map[string]int{allowed: 2}, []MetricSample{count("allowed", 1)}, false},
		"none at all":            {map[string]int{allowed: 1}, []MetricSample{}, false},
		"not stated":             {map[string]int{denied: 1}, []MetricSample{count("allowed", 1), count("denied", 1)}, true},
		"denied beside":          {map[string]int{allowed: 1}, []MetricSample{count("allowed", 1), count("denied", 1)}, false},
		"none, and only allowed": {map[string]int{"authorization_attempts_total": 0}, []MetricSample{count("allowed", 1)}, true},
		"none, and one denied":   {map[string]int{"authorization_attempts_total": 0}, []MetricSample{count("denied", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := listAsBob(), newEvidence()
			s.Steps[0].Expect.Counters, e.Steps[0].Counters = c.want, c.got
			if r := Judge(s, e); (r.Verdict == Passed) != c.good {
				t.Errorf("%s: %v", r.Verdict, r.Differences)
			}
		})
	}
}
