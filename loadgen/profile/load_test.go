package profile

import (
	"slices"
	"testing"
)

func TestLoad(t *testing.T) {
	want := []string{
		"apiserver-restart",
		"before-and-after",
		"concurrency",
		"denied-flood",
		"deputy",
		"every-variant",
		"expiry-wave",
		"legacy-fallback",
		"many-accounts",
		"node-agent-busy",
		"one-cluster",
		"reviews",
		"rollout-burst",
		"rollout-waves",
		"self-subject-review-flood",
		"steady",
		"three-servers",
		"three-servers-restart",
		"throttled",
		"token-churn",
	}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("profiles %v, want %v", got, want)
	}
	for _, name := range Names() {
		p, err := Load(name, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != name || p.Description == "" {
			t.Errorf("%s.yaml calls itself %q", name, p.Name)
		}
		if p.Pairs < 20 && p.Comparisons[0].AA() {
			t.Errorf("%s: %d pairs are too few for a claim", name, p.Pairs)
		}
	}
	if _, err := Load("../go", nil); err == nil {
		t.Error("a profile that is none")
	}
}
