package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/history"
)

// flakesFlags are the flags of report flakes.
type flakesFlags struct{ since, until, maxGap, output string }

func newReportFlakes() *cobra.Command {
	var flags flakesFlags
	c := commandWith("flakes HISTORY...", func(c *cobra.Command, args []string) error {
		window, err := flags.window(time.Now())
		if err != nil {
			return err
		}
		var entries []history.Entry
		for _, path := range args {
			read, err := history.ReadFile(path)
			if err != nil {
				return err
			}
			entries = append(entries, read...)
		}
		return writeFlakes(c, flags.output, window, history.Find(entries, window))
	})
	c.Flags().StringVar(&flags.since, "since", "14d", "how long the window is, such as 14d or 36h")
	c.Flags().StringVar(&flags.until, "until", "", "the end of the window, in RFC 3339 (default: now)")
	c.Flags().StringVar(&flags.maxGap, "max-gap", "48h", "the longest time without a run in which the window still counts as covered")
	c.Flags().StringVarP(&flags.output, "output", "o", "text", "text, json or yaml")
	return c
}

// window reads the flags.
func (f flakesFlags) window(now time.Time) (w history.Window, err error) {
	w.Until = now.UTC()
	if f.until != "" {
		if w.Until, err = time.Parse(time.RFC3339, f.until); err != nil {
			return w, fmt.Errorf("--until %q is not a time; write it like 2006-01-02T15:04:05Z", f.until)
		}
	}
	if w.Since, err = history.ParsePeriod(f.since); err != nil {
		return w, fmt.Errorf("--since: %w", err)
	}
	if w.MaxGap, err = history.ParsePeriod(f.maxGap); err != nil {
		return w, fmt.Errorf("--max-gap: %w", err)
	}
	return w, checkForm(f.output)
}

// writeFlakes prints what was found, and returns it as the exit code.
func writeFlakes(c *cobra.Command, form string, w history.Window, flakes history.Flakes) error {
	err := printAs(c.OutOrStdout(), form, "flakes", struct {
		history.Flakes
		Window string `json:"-"`
		Gap    string `json:"-"`
		MaxGap string `json:"-"`
	}{
		flakes,
		history.FormatPeriod(w.Since),
		history.FormatPeriod(time.Duration(flakes.LongestGap) * time.Second),
		history.FormatPeriod(w.MaxGap),
	})
	if err != nil {
		return invalid(err)
	}
	switch {
	case len(flakes.Flaky)+len(flakes.Failing) > 0:
		return exitWith(reports.ExitFailed)
	case !flakes.Covered:
		return exitWith(reports.ExitInvalid)
	}
	return nil
}
