package loadgen

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/record"
)

// Replaying returns the product with a plan that starts nothing, but records a run that was made before. It is for
// tests of whatever reads reports.
func Replaying(r run.Run) product.Product {
	replaying := Product
	replaying.New = func(fs *pflag.FlagSet) product.Flags { return replayingFlags{Product.New(fs), r} }
	return replaying
}

type replayingFlags struct {
	product.Flags
	run run.Run
}

// Plan implements product.Flags.
func (f replayingFlags) Plan(i *product.Invocation) (product.Plan, error) {
	newPlan, err := f.Flags.Plan(i)
	if err != nil {
		return nil, err
	}
	return &replay{plan: newPlan.(*plan), run: f.run}, nil
}

// replay is a plan that records a run that was made before.
type replay struct {
	*plan
	run run.Run
}

// Run implements product.Plan.
func (p *replay) Run(_ context.Context, log *record.Log, o product.Observer) error {
	for i := range p.run.Blocks {
		if err := run.AppendBlock(log, i, &p.run.Blocks[i]); err != nil {
			return err
		}
	}
	return p.finish(log, &p.run, o)
}
