// Package surface compares an API server with the gate on, and off again, with the same one before: what it offers, what it
// stores, counts and logs, and what it needs. It answers what the production readiness review of KEP-5284 asks about API
// types, flags, metrics, objects and resources.
package surface

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
)

// Product is the surface of an API server with the gate off, on, and off again.
var Product = product.Product{Name: "surface", Command: "surface", New: newFlags}

// flags are those of the product.
type flags struct {
	kubernetes string
	requests   int
	binaries   local.Binaries
}

func newFlags(set *pflag.FlagSet) product.Flags {
	f := &flags{}
	set.StringVar(&f.kubernetes, "kubernetes", "", "version of the API server (default: the newest)")
	set.IntVar(&f.requests, "requests", 100, "how many requests of each kind are sent in each state of the gate")
	f.binaries.RegisterFlags(set)
	return f
}

// Plan implements product.Flags.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.requests < 1 {
		return nil, fmt.Errorf("--requests %d: expected at least 1", f.requests)
	}
	release, err := local.ParseRelease(f.kubernetes)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes: %w", err)
	}
	if !hasGate(release) {
		return nil, fmt.Errorf("--kubernetes %s: that version does not have the gate; expected 1.35 or newer", release.Minor)
	}
	f.binaries.Progress = i.Messages
	return newPlan(release, &f.binaries, f.requests), nil
}
