package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"text/tabwriter"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

func newReport() *cobra.Command {
	c := plainCommand("report", func(c *cobra.Command) error { return c.Help() })
	c.AddCommand(newReportDiff(), newReportPRR())
	return c
}

func newReportDiff() *cobra.Command {
	var whole bool
	c := commandWith("diff FOLDER[:CELL] FOLDER[:CELL]", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		d, err := reports.Diff(reports.ParseSide(args[0]), reports.ParseSide(args[1]))
		if err != nil {
			return err
		}
		if err := render(c.OutOrStdout(), "difference", struct {
			*reports.BehaviourDiff
			Whole bool
		}{d, whole}); err != nil {
			return invalid(err)
		}
		return failedIf(len(d.Changed) > 0)
	})
	c.Flags().BoolVar(&whole, "whole", false, "also print the lines that are the same")
	return c
}

func newReportPRR() *cobra.Command {
	return commandWith("prr FOLDER", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		v, err := reports.Verify(args[0], reports.VerifyOptions{SuiteVersion: suiteVersion()})
		if err != nil {
			return err
		}
		text, err := reports.PRR(v)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		_, err = fmt.Fprint(c.OutOrStdout(), text)
		return err
	})
}

// concludeRun says where the report is, and turns its outcome into the exit code. unwritten is why there is no
// report: what a run has found is printed all the same.
func concludeRun(w io.Writer, r *reports.ConformanceReport, dir string, unwritten error) error {
	switch {
	case unwritten != nil:
		return unwritten
	case dir != "":
		_, _ = fmt.Fprintf(w, "report: %s\ncheck it: authzconf verify %s\n", filepath.Join(dir, "report.html"), dir)
	}
	return exitWith(r.Outcome.ExitCode)
}

//go:embed output.tmpl
var outputText string

var outputs = template.Must(template.New("output").Funcs(reports.TextFuncs).Funcs(template.FuncMap{
	"printable": printable, "problems": problems, "passed": passed, "existing": func() string { return existing.Label },
	"megabytes": func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) },
	"minus":     func(a, b any) int64 { return reflect.ValueOf(a).Int() - reflect.ValueOf(b).Int() },
}).Parse(outputText))

// render prints a text of output.tmpl.
func render(w io.Writer, name string, data any) error {
	var b bytes.Buffer
	err := outputs.ExecuteTemplate(&b, name, data)
	if err == nil {
		_, err = b.WriteTo(w)
	}
	return err
}

// renderTable prints a text of output.tmpl that is a table.
func renderTable(w io.Writer, name string, data any, flags uint) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', flags)
	return errors.Join(render(t, name, data), t.Flush())
}

// problem is a result that is not passed, and how many more of the cell have the same reason.
type problem struct {
	What string
	verdicts.Result
	More int
}

// problems are what did not pass. Results of a cell with the same reason are one: when a target dies, hundreds have it,
// with its log.
func problems(cells []reports.Cell) (all []*problem) {
	same := map[[3]string]*problem{}
	for _, c := range cells {
		for _, r := range c.Results {
			if r.Verdict != verdicts.Failed && r.Verdict != verdicts.Invalid {
				continue
			}
			p := &problem{What: string(r.Verdict), Result: r}
			if r.KnownFailing != "" {
				p.What = "known failing"
			}
			key := [3]string{c.Name, p.What, r.Reason}
			if same[key] != nil {
				same[key].More++
				continue
			}
			same[key] = p
			all = append(all, p)
		}
	}
	return all
}

func passed(results []verdicts.Result) (n int) {
	for _, r := range results {
		if r.Verdict == verdicts.Passed {
			n++
		}
	}
	return n
}
