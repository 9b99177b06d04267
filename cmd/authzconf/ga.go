package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/surface"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/loadgen"
	loadjudge "github.com/authzconf/authzconf/loadgen/judge"
	loadrun "github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/ga"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/suites/labels"
)

func newReportGA() *cobra.Command {
	var scenarios string
	c := commandWith("ga FOLDER...", func(c *cobra.Command, args []string) error {
		sources := make([]ga.Source, len(args))
		for i, dir := range args {
			var err error
			if sources[i], err = readSource(dir, scenarios); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
		text, err := ga.Answer(sources)
		if err != nil {
			return invalid(err)
		}
		_, err = fmt.Fprint(c.OutOrStdout(), text)
		return err
	})
	c.Flags().
		StringVar(&scenarios, "scenarios", "", "folder of the scenario files that the reports are judged by, in place of the built-in ones")
	return c
}

// readSource reads and verifies a report of a run, an upgrade path or a storm. scenarios is the folder with the
// scenarios by which it is judged, or "" for the built-in ones.
func readSource(dir, scenarios string) (ga.Source, error) {
	s := ga.Source{Folder: dir}
	read, closeFolder, err := reports.ReadFolder(dir)
	if err != nil {
		return s, err
	}
	defer closeFolder()
	v, err := product.Verify(read, planBy(scenarios), io.Discard)
	if err != nil {
		return s, err
	}
	if v.Report.Product == loadgen.Product.Name {
		return readStorm(dir)
	}
	isSurface := v.Report.Product == surface.Product.Name
	if !isSurface && !conformance.IsOfScenarios(v.Report) {
		return s, fmt.Errorf("it is a report of %s, and this is about those of run, upgrade, surface and load", v.Report.Product)
	}
	s.Tool, s.Command, s.Report, s.Digest = v.Report.SuiteVersion, v.Report.Command, v.Report, record.Digest(v.Marker)
	if len(v.Differences) > 0 {
		s.Problem = "it does not follow from its evidence: " + v.Differences[0]
		return s, nil
	}
	if isSurface {
		return s, nil
	}
	s.Set, err = conformance.LoadRecorded(v.View)
	return s, err
}

// readStorm reads and verifies a report of a storm.
func readStorm(dir string) (ga.Source, error) {
	s := ga.Source{Folder: dir}
	storm, err := loadgen.Open(dir, labels.Filter)
	if err != nil {
		return s, err
	}
	s.Tool, s.Command = storm.Report.SuiteVersion, storm.Report.Command
	result := storm.Result
	for _, c := range result.Comparisons {
		s.Loads = append(s.Loads, fmt.Sprintf("%s, %s: %.3f, then %.3f reviews per request; p50 %s; p99 %s; processor %s; the run %s",
			c.Name, reports.Plural(c.Pairs, "pair"), c.ReviewsA, c.ReviewsB, c.P50, c.P99, c.CPU, result.Outcome))
	}
	for _, v := range result.Variants {
		if use, known := v.Usage[loadrun.APIServer]; known {
			s.Loads = append(s.Loads,
				fmt.Sprintf("%s: the API server took %.2f ms of processor time per request, and %d MiB of memory at most",
					v.Name, use.PerRequest, use.RSS>>20),
			)
		}
	}
	switch {
	case len(storm.Differences) > 0:
		s.Problem = "it does not follow from its evidence: " + storm.Differences[0]
	case result.Outcome == loadjudge.Inconclusive:
		s.Problem = "the run is inconclusive"
	}
	return s, nil
}
