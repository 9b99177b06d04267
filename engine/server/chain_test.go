package server

import (
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// A review that neither the webhook nor the point behind it saw was denied by a
// match condition; every other one is told as before.
func TestConditionErrors(t *testing.T) {
	m, err := loadMiddle("webhook-cel")
	if err != nil {
		t.Fatal(err)
	}
	at := func(point string) verdicts.Review { return verdicts.Review{Point: point} }
	seen := []verdicts.Review{
		at("front"), at("policy"), at("behind"), at("back"), // asked, no opinion
		at("front"), at("behind"), // excluded, allowed by another
		at("front"),               // a condition failed
		at("front"), at("policy"), // asked, decided
		at("front"), // a condition failed
	}
	decided, stray := verdicts.DeriveDecisions(m.conditionErrors(seen))
	if len(stray) > 0 {
		t.Fatalf("stray: %v", stray)
	}
	want := []scenarios.Decision{scenarios.NoOpinion, scenarios.Allow, scenarios.Deny, scenarios.Allow, scenarios.Deny}
	if len(decided) != len(want) {
		t.Fatalf("%d decisions, want %d", len(decided), len(want))
	}
	for i, d := range decided {
		if d.Decision != want[i] {
			t.Errorf("review %d: %s, want %s", i, d.Decision, want[i])
		}
	}
	if plain := (middle{}).conditionErrors(seen); len(plain) != len(seen) {
		t.Error("a chain without conditions was changed")
	}
}
