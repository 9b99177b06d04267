package profile

import (
	"slices"
	"testing"
)

func TestLoad(t *testing.T) {
	want := []string{"apiserver-restart", "daemonset-rollout", "denied-flood", "deputy-dashboard", "every-variant", "legacy-fallback", "many-accounts", "node-agent-busy", "node-agent-steady", "token-churn"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("profiles %v, want %v", got, want)
	}
	for _, name := range Names() {
		p, data, notes, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != name || len(data) == 0 || len(notes) > 0 || p.Description == "" {
			t.Errorf("%s.yaml calls itself %q", name, p.Name)
		}
		if p.Pairs < 20 {
			t.Errorf("%s: %d pairs are too few for a claim", name, p.Pairs)
		}
	}
	if _, _, _, err := Load("../go"); err == nil {
		t.Error("a profile that is none")
	}
	if p, _, notes, err := Load("every-arm"); err != nil || p.Name != "every-variant" || len(notes) != 1 {
		t.Errorf("by its old name: %v, notes %q", err, notes)
	}
}
