package main

import (
	"errors"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conditional/cost"
)

func newConditionsCost() *cobra.Command {
	var o cost.CostOptions
	c := &cobra.Command{
		Use:   "cost",
		Short: "Measure what conditional authorization (KEP-5681) costs",
		Long: `Count the webhook calls of a conditional request in the four cells of KEP-5681's
table, and those of an API server of today that over-grants and judges in admission;
and measure a condition in CEL beside the same expression as a
ValidatingAdmissionPolicy, whose time the API server itself reports.

Exit codes: 0 the calls are as the KEP's table says, 1 they are not, 2 bad usage, 3
the environment broke.`,
		Example: "  authzconf conditions cost --rounds 24 --requests 100",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Rounds < 2 || o.Rounds > 1000:
				return errors.New("--rounds: expected 2 to 1000")
			case o.Requests < 1 || o.Requests > 10000:
				return errors.New("--requests: expected 1 to 10000")
			case !c.Flags().Changed("seed"):
				o.Seed = rand.Int64N(1_000_000)
			}
			o.Binaries = &local.Binaries{Progress: c.ErrOrStderr()}
			cost, err := cost.MeasureCost(c.Context(), o)
			if err != nil {
				return invalid(err)
			}
			if err := cost.Print(c.OutOrStdout()); err != nil {
				return invalid(err)
			}
			if !cost.Agrees() {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 24, "blocks of each variant, interleaved")
	c.Flags().IntVar(&o.Requests, "requests", 100, "requests of a block")
	c.Flags().Int64Var(&o.Seed, "seed", 0, "seed of the order and of the intervals (default: random, printed)")
	return c
}
