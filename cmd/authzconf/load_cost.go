package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports/load"
	loadrun "github.com/authzconf/authzconf/reports/load/run"
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
what was not sound. With --report-dir it goes to README.md there, and where the
numbers of agents differ, the curves to cost.html and SVG files.`,
		Example: `  for n in 10 100 1000; do
    authzconf load --profile every-variant --agents $n --rate $((n / 12)) --report-dir run-$n
  done
  authzconf load cost run-10 run-100 run-1000 --report-dir cost`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var runs []*loadrun.Run
			for _, path := range args {
				r, err := load.Load(path)
				if err != nil {
					return err
				}
				runs = append(runs, &r)
			}
			cost, err := load.NewCost(runs...)
			if err != nil {
				return err
			}
			if reportDir == "" {
				_, err = c.OutOrStdout().Write(cost.Markdown())
				return err
			}
			if err := writeCost(reportDir, cost); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
			return err
		},
	}
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md, cost.html and the curves")
	return c
}

func writeCost(dir string, cost *load.Cost) error {
	pictures := cost.Pictures()
	files := map[string][]byte{"README.md": cost.Markdown(slices.Sorted(maps.Keys(pictures))...)}
	if len(pictures) > 0 { // otherwise there is no curve, only tables
		page, err := cost.HTML()
		if err != nil {
			return err
		}
		files["cost.html"] = page
	}
	maps.Copy(files, pictures)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
