package loadgen

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// Storm is a storm that was read from the folder of its report, with what it shows.
type Storm struct {
	Report *reports.Report
	// Differences say how the report does not follow from its evidence. If there are any, Run and Result are empty.
	Differences []string
	Run         run.Run
	Result      judge.Result
}

// Open reads a storm from the folder of its report, and verifies it. filter parses expressions of labels, which the
// command line of the storm may have.
func Open(dir string, filter product.LabelFilter) (*Storm, error) {
	read, closeFolder, err := reports.ReadFolder(dir)
	if err != nil {
		return nil, err
	}
	defer closeFolder()
	capture := &capturedFlags{}
	v, err := product.Verify(read, func(words []string) (*product.CommandLine, []string, error) {
		i := slices.Index(words, Product.Command)
		if i < 0 {
			return nil, nil, fmt.Errorf("it starts no %s", Product.Command)
		}
		capturing := Product
		capturing.New = func(fs *pflag.FlagSet) product.Flags {
			capture.Flags = Product.New(fs)
			return capture
		}
		fs := pflag.NewFlagSet(Product.Command, pflag.ContinueOnError)
		fs.SetOutput(io.Discard)
		line := product.NewCommandLine(capturing, fs, filter)
		err := fs.Parse(words[i+1:])
		return line, fs.Args(), err
	}, io.Discard)
	if err != nil {
		return nil, err
	}
	if len(v.Differences) > 0 {
		return &Storm{Report: v.Report, Differences: v.Differences}, nil
	}
	p := capture.plan
	if p == nil || p.run == nil {
		return nil, errors.New(dir + ": it has no storm that came to an end")
	}
	return &Storm{Report: v.Report, Run: *p.run, Result: p.result}, nil
}

// capturedFlags keep the plan that is made from flags.
type capturedFlags struct {
	product.Flags
	plan *plan
}

// Plan implements product.Flags.
func (c *capturedFlags) Plan(i *product.Invocation) (product.Plan, error) {
	newPlan, err := c.Flags.Plan(i)
	if err == nil {
		c.plan, _ = newPlan.(*plan)
	}
	return newPlan, err
}
