package conditions

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
)

// Explore compares two phases with one in generated cases.
var Explore = product.Product{Name: "conditions explore", Command: "conditions explore", New: func(fs *pflag.FlagSet) product.Flags {
	f := &exploreFlags{}
	fs.IntVar(&f.count, "count", 100000, "how many cases to try")
	fs.StringVar(&f.wire, "wire", wire.Seed.Name, "the revision of the wire in which the reference is asked: seed or merged")
	return f
}}

type exploreFlags struct {
	count int
	wire  string
}

// Plan makes the blocks of cases.
func (f *exploreFlags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.count < 1 {
		return nil, fmt.Errorf("--count %d: the number of cases is at least 1", f.count)
	}
	w, err := wire.Named(f.wire)
	if err != nil {
		return nil, fmt.Errorf("--wire: %w", err)
	}
	return newExplorePlan(model.Exploration{Wire: w, Cases: f.count, Seed: i.Seed}), nil
}
