// Command load-results publishes storms: it reads the folders of their reports, and writes the pages of docs/results, or the
// metrics in the forms that the field reads.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

func main() { os.Exit(publish()) }

func publish() (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := newCommand()
	c.SetOut(os.Stdout)
	if err := c.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	c := &cobra.Command{Use: "load-results", Short: "Publish the reports of storms", SilenceUsage: true, SilenceErrors: true}
	c.AddCommand(newPages(), newExport())
	return c
}

func newPages() *cobra.Command {
	var folder string
	c := &cobra.Command{
		Use:   "pages [RUNS] --out FOLDER",
		Short: "Write README.md for each part of RUNS/PART/RUN, and one with what all of them say of the KEP's statements",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return writeResults(strings.Join(args, ""), folder)
		},
	}
	c.Flags().StringVar(&folder, "out", "docs/results", "folder for README.md and the parts")
	return c
}

func newExport() *cobra.Command {
	var address, tokenFile, openMetricsFile, perfDataFile string
	c := &cobra.Command{
		Use:   "export FOLDER",
		Short: "Write the metrics of a storm to files, or send them to a receiver of Prometheus' remote write",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openStorm(args[0])
			if err != nil {
				return err
			}
			if openMetricsFile != "" {
				err = writeFile(openMetricsFile, func() ([]byte, error) { return makeOpenMetrics(&s.Run) })
			}
			if err == nil && perfDataFile != "" {
				err = writeFile(
					perfDataFile,
					func() ([]byte, error) { return filing.EncodeJSON(makePerfData(&s.Run, s.Report.SuiteVersion)) },
				)
			}
			if err == nil && address != "" {
				err = push(c.Context(), c.OutOrStdout(), s, address, tokenFile)
			}
			return err
		},
	}
	c.Flags().StringVar(&openMetricsFile, "openmetrics", "", "file for the histograms and counters in OpenMetrics")
	c.Flags().StringVar(&perfDataFile, "perfdata", "", "file for latencies in the form that the performance dashboards of Kubernetes read")
	c.Flags().StringVar(&address, "remote-write", "", "URL of a receiver; a user and password may be in it")
	c.Flags().StringVar(&tokenFile, "bearer-token-file", "", "file with a token for the receiver")
	c.MarkFlagsOneRequired("openmetrics", "perfdata", "remote-write")
	return c
}

func writeFile(name string, render func() ([]byte, error)) error {
	data, err := render()
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// push sends the metrics of a storm to a receiver.
func push(ctx context.Context, out io.Writer, s *loadgen.Storm, address, tokenFile string) error {
	to, err := ParseReceiver(address)
	if err != nil {
		return fmt.Errorf("--remote-write: %w", err)
	}
	var token []byte
	if tokenFile != "" {
		if token, err = filing.Input(tokenFile); err != nil {
			return fmt.Errorf("--bearer-token-file: %w", err)
		}
	}
	streams, err := makeStreams(&s.Run)
	if err != nil {
		return err
	}
	if err := (&Receiver{URL: to, Token: strings.TrimSpace(string(token))}).Push(ctx, streams); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "sent: %d series of %s to %s\n", len(streams), reports.Plural(len(s.Run.Blocks), "block"), to.Redacted())
	return err
}
