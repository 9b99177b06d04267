package upgradepath

import (
	"errors"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

const granularGate = "DRAResourceClaimGranularStatusAuthorization"

func TestPathsAboutAnotherGate(t *testing.T) {
	p, err := Parse("1.35,1.36,1.36-gate,1.37+gate", Options{FeatureGate: granularGate})
	if err != nil {
		t.Fatal(err)
	}
	targets, err := p.Targets(matrix.Matrix{})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name            string
		asked, expected scenarios.Gate
	}{
		{"1-1.35", scenarios.GateDefault, scenarios.GateOff},
		{"2-1.36", scenarios.GateDefault, scenarios.GateOn},
		{"3-1.36-gate-off", scenarios.GateOff, scenarios.GateOff},
		{"4-1.37-gate-on", scenarios.GateOn, scenarios.GateOn},
	}
	for i, o := range targets {
		facts := server.ExpectedFacts(o)
		if o.Cell.Name != want[i].name || o.Cell.FeatureGate.Name != granularGate || o.Cell.FeatureGate.Gate != want[i].asked {
			t.Errorf("stage %d: %+v, want %+v", i+1, o.Cell, want[i])
		}
		if facts.FeatureGates[granularGate] != want[i].expected {
			t.Errorf("stage %d: facts %v, want %s", i+1, facts.FeatureGates, want[i].expected)
		}
		if o.Cell.Gate != scenarios.GateDefault {
			t.Errorf("stage %d: ConstrainedImpersonation is asked for as %s", i+1, o.Cell.Gate)
		}
	}
	if !p.HasOtherGate() || p.Gate() != granularGate {
		t.Errorf("the path is about %s", p.Gate())
	}
}

func TestStagesOfAnotherGateHaveToChangeSomething(t *testing.T) {
	for path, want := range map[string]string{
		"1.36+gate,1.36+gate": "a stage has to change something",
		"1.35+gate,1.36":      "which came with 1.36",
	} {
		if _, err := Parse(path, Options{FeatureGate: granularGate}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Parse("1.36,1.37", Options{FeatureGate: "NoSuchGate"}); err == nil || !strings.Contains(err.Error(), `"NoSuchGate"`) {
		t.Errorf("an unknown gate: %v", err)
	}
	p, err := Parse("1.36,1.37", Options{FeatureGate: server.GateName})
	if err != nil || p.HasOtherGate() {
		t.Errorf("%s is another gate: %v", server.GateName, err)
	}
}

func TestVersionsAreResolved(t *testing.T) {
	resolve := func(version string) (string, error) {
		switch version {
		case "ci/latest":
			return "1.38.0-alpha.2.31+0123abc", nil
		case "source":
			return "", errors.New("no tree is named")
		}
		return version, nil
	}
	p, err := Parse("1.37,ci/latest-gate/webhook-first,ci/latest", Options{Resolve: resolve})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Stages[1]; s.Kubernetes != "1.38.0-alpha.2.31+0123abc" || s.Gate != scenarios.GateOff || s.Chain != "webhook-first" {
		t.Errorf("%+v", s)
	}
	if s := p.Stages[2]; s.Kubernetes != "1.38.0-alpha.2.31+0123abc" || s.Chain != "" {
		t.Errorf("%+v", s)
	}
	_, err = Parse("1.37,source", Options{Resolve: resolve})
	if err == nil || !strings.Contains(err.Error(), "stage 2: no tree is named") {
		t.Errorf("%v", err)
	}
}
