package certify

import (
	"encoding/json"
	"fmt"

	"github.com/authzconf/authzconf/fixtures"
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
	c := reviewCollector{seen: map[string]bool{}}
	for _, s := range bound {
		for _, f := range factsFor(s) {
			if err := c.collect(s, f); err != nil {
				return nil, fmt.Errorf("%s: %w", s.ID, err)
			}
		}
	}
	return c.out, nil
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

// reviewCollector collects reviews, each of them once.
type reviewCollector struct {
	seen map[string]bool
	out  []scenarioReview
}

// collect adds the new reviews that a scenario sends on an API server.
func (c *reviewCollector) collect(s *scenarios.Scenario, f scenarios.Facts) error {
	predictions, err := oracle.Play(s, f, fixtures.FS)
	if err != nil {
		return err
	}
	for _, r := range visibleReviews(predictions) {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if c.seen[string(raw)] {
			continue
		}
		c.seen[string(raw)] = true
		// This is what arrives: JSON cannot have bytes that are not UTF-8.
		var arrives spec
		if err := json.Unmarshal(raw, &arrives); err != nil {
			return err
		}
		c.out = append(c.out, scenarioReview{arrives, s.ID})
	}
	return nil
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
