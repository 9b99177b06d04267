package main

import (
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// modelVersion is the effective version that statements are about where no run has measured them.
const modelVersion = "1.37"

// modelReviews returns what one request of a variant costs by the model, that of the request itself included: the first of its
// agent, and one when the agent is known and what it asked is forgotten.
func modelReviews(variant, server string) (first, later float64, err error) {
	does, err := profile.VariantNamed(variant)
	if err != nil {
		return 0, 0, err
	}
	side := profile.Side{Variant: variant, Server: profile.Server(server)}
	p := profile.Defaults()
	p.Nodes, p.Mix.List, p.Block = 1, 1, profile.CacheLife
	p.Arrivals = profile.Arrivals{Kind: pacer.Constant, Every: profile.CacheLife}
	p.Comparisons = []profile.Comparison{{Name: variant, A: side, B: side}}
	h, err := population.NewHistory(&p, side.Server, modelVersion)
	if err != nil {
		return 0, 0, err
	}
	begin, rates := time.Unix(0, 0), [2]float64{}
	for i := range rates {
		predicted, err := h.Predict(does, begin.Add(time.Duration(i)*time.Hour), []run.Request{{}})
		if err != nil {
			return 0, 0, err
		}
		low, _ := predicted.Range()
		rates[i] = float64(low)
	}
	return rates[0], rates[1], nil
}
