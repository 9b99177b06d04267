package certify

import (
	"encoding/json"
	"fmt"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// scenarioReview is a review that a webhook gets in the scenarios, with the first scenario that sends it.
type scenarioReview struct {
	spec     spec
	scenario string
}

// collectReviews returns the reviews that webhooks get in the scenarios, each of them once.
func collectReviews(bound []*scenarios.Scenario) ([]scenarioReview, error) {
	var plays []play
	for _, s := range bound {
		for _, f := range factsFor(s) {
			plays = append(plays, play{s, f})
		}
	}
	known := map[string]bool{}
	var out []scenarioReview
	for i, played := range seq.MapInParallel(plays, play.reviews) {
		s := plays[i].scenario
		if played.err != nil {
			return nil, fmt.Errorf("%s: %w", s.ID, played.err)
		}
		for _, raw := range played.reviews {
			if known[string(raw)] {
				continue
			}
			known[string(raw)] = true
			// This is what arrives: JSON cannot have bytes that are not UTF-8.
			var arrives spec
			if err := json.Unmarshal(raw, &arrives); err != nil {
				return nil, fmt.Errorf("%s: %w", s.ID, err)
			}
			out = append(out, scenarioReview{arrives, s.ID})
		}
	}
	return out, nil
}

// play is a scenario on an API server.
type play struct {
	scenario *scenarios.Scenario
	facts    scenarios.Facts
}

// playedReviews are the reviews that webhooks see in a play, as JSON.
type playedReviews struct {
	reviews [][]byte
	err     error
}

// reviews returns the reviews that webhooks see in a play.
func (p play) reviews() (played playedReviews) {
	predictions, err := oracle.Play(p.scenario, p.facts, fixtures.FS)
	if err != nil {
		return playedReviews{err: err}
	}
	for _, r := range visibleReviews(predictions) {
		raw, err := json.Marshal(r)
		if err != nil {
			return playedReviews{err: err}
		}
		played.reviews = append(played.reviews, raw)
	}
	return played
}

// factsFor returns the API servers that a scenario is for.
func factsFor(s *scenarios.Scenario) (out []scenarios.Facts) {
	for _, version := range oracle.Versions() {
		for _, gate := range []scenarios.Gate{scenarios.GateOff, scenarios.GateOn} {
			f := scenarios.Facts{
				Kubernetes:   version,
				Binary:       version,
				Gate:         gate,
				Chain:        s.Requires.Chain,
				Capabilities: scenarios.AllCapabilities(),
			}
			hasGate := gate == scenarios.GateOff || version >= "1.35"
			if selected, _, _ := s.Selected(f); selected && hasGate {
				out = append(out, f)
			}
		}
	}
	return out
}

// visibleReviews returns the reviews of a scenario that webhooks see.
func visibleReviews(predictions []oracle.PredictedRequest) (out []spec) {
	for _, p := range predictions {
		for _, segment := range p.Prediction.Segments {
			for _, run := range segment.Runs {
				for _, r := range run {
					if !r.Hidden {
						out = append(out, r.Spec)
					}
				}
			}
		}
	}
	return out
}
