package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports/load"
)

// newLoadCost is "load cost".
func newLoadCost() *cobra.Command {
	var reportDir string
	c := &cobra.Command{
		Use:   "cost RUN RUN...",
		Short: "Put saved load runs side by side: cost against agents and webhook delay",
		Long: `Read the runs in several report folders (or run.json files) and print, as Markdown,
what each variant cost in each of them: access reviews per request beside the model's
prediction, reviews per second, latency, processor time; then the comparisons, and
what was not sound. Each run is judged by its own thresholds, which are in its
report.json: without it a run has no outcome. With --report-dir it goes to README.md there, and where the
numbers of agents differ, the curves to cost.html and SVG files.`,
		Example: `  for n in 10 100 1000; do
    authzconf load --profile every-variant --agents $n --rate $((n / 12)) --report-dir run-$n
  done
  authzconf load cost run-10 run-100 run-1000 --report-dir cost`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var runs []load.Saved
			for _, path := range args {
				s, err := load.LoadSaved(path)
				if err != nil {
					return err
				}
				runs = append(runs, s)
			}
			cost, err := load.NewCost(runs...)
			if err != nil {
				return err
			}
			if reportDir == "" {
				text, err := cost.Markdown()
				if err == nil {
					_, err = c.OutOrStdout().Write(text)
				}
				return err
			}
			if err := cost.Write(reportDir); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
			return err
		},
	}
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md, cost.html and the curves")
	return c
}
