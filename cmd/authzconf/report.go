package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/load"
	loadrun "github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/verdicts"
)

func newReport() *cobra.Command {
	c := plainCommand("report", (*cobra.Command).Help)
	c.AddCommand(newReportDiff(), newReportPRR(), newReportGA())
	return c
}

func newReportDiff() *cobra.Command {
	var whole bool
	c := commandWith("diff FOLDER[:CELL] FOLDER[:CELL]", func(c *cobra.Command, args []string) error {
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
	return commandWith("prr FOLDER", func(c *cobra.Command, args []string) error {
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

func newReportGA() *cobra.Command {
	return commandWith("ga FOLDER...", func(c *cobra.Command, args []string) error {
		sources := make([]reports.Source, len(args))
		for i, dir := range args {
			var err error
			if sources[i], err = sourceOf(dir); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
		text, err := reports.GA(sources)
		if err != nil {
			return invalid(err)
		}
		_, err = fmt.Fprint(c.OutOrStdout(), text)
		return err
	})
}

// sourceOf reads and verifies a report of a run, an upgrade path or a storm.
func sourceOf(dir string) (s reports.Source, err error) {
	s.Folder = dir
	var differences []string
	inconclusive := false
	if load.Folder.In(dir) {
		saved, err := load.LoadSaved(dir)
		if err != nil {
			return s, err
		}
		result, differ, _, err := load.Verify(dir, suiteVersion(), declaredBy)
		if err != nil {
			return s, err
		}
		s.Tool, s.Command, differences, inconclusive = result.Tool, saved.Run.Command, differ, result.Outcome == load.Inconclusive
		for _, c := range result.Comparisons {
			s.Loads = append(s.Loads, fmt.Sprintf("%s, %s: %.3f, then %.3f reviews per request; p50 %s; p99 %s; processor %s; the run %s",
				c.Name, reports.Plural(c.Pairs, "pair"), c.ReviewsA, c.ReviewsB, c.P50, c.P99, c.CPU, result.Outcome))
		}
		for _, v := range result.Variants {
			if used, known := v.Usage[loadrun.APIServer]; known {
				s.Loads = append(s.Loads, fmt.Sprintf("%s: the API server took %.2f ms of processor time per request, and %d MiB of memory at most",
					v.Name, used.PerRequest, used.RSS>>20))
			}
		}
	} else {
		v, err := reports.Verify(dir, reports.VerifyOptions{SuiteVersion: suiteVersion()})
		if err != nil {
			return s, err
		}
		s.Tool, s.Command, s.Run, s.Set, s.Digest, differences = v.Report.SuiteVersion, v.Report.Command, v.Report, v.Set, v.Digest, v.Differences
	}
	switch {
	case len(differences) > 0:
		s.Problem = "it does not follow from its evidence: " + differences[0]
	case inconclusive:
		s.Problem = "the run is inconclusive"
	}
	return s, nil
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
	"printable": printable, "problems": problems, "existing": func() string { return existing.Label },
	"megabytes": func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) },
	"minus":     func(a, b any) int64 { return reflect.ValueOf(a).Int() - reflect.ValueOf(b).Int() },
}).Parse(outputText))

func render(w io.Writer, name string, data any) error {
	var b bytes.Buffer
	err := outputs.ExecuteTemplate(&b, name, data)
	if err == nil {
		_, err = b.WriteTo(w)
	}
	return err
}

func renderTable(w io.Writer, name string, data any, flags uint) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', flags)
	return errors.Join(render(t, name, data), t.Flush())
}

func printAs(w io.Writer, form, text string, data any) error {
	if form == "text" {
		return render(w, text, data)
	}
	raw, err := json.MarshalIndent(data, "", "  ")
	if err == nil && form == "yaml" {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimRight(string(raw), "\n"))
	}
	return err
}

type problem struct {
	What string
	verdicts.Result
	More int
}

// problems are what did not pass. Results of a cell with one reason are one: when a target dies, hundreds have it.
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

// display shows progress: on a terminal in a line that is rewritten, otherwise in a plain line every so often.
type display struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	shown time.Time
}

const (
	plainEvery = 5 * time.Second
	// liveEvery is the pause between two counts on a terminal, for what counts quickly.
	liveEvery = 200 * time.Millisecond
	eraseLine = "\r\x1b[K"
)

func newDisplay(out io.Writer) *display {
	f, ok := out.(*os.File)
	return &display{out: out, live: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb", shown: time.Now()}
}

func (d *display) due() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		return time.Since(d.shown) >= liveEvery
	}
	return time.Since(d.shown) > plainEvery
}

// status rewrites the live line, or prints a plain one if it is time.
func (d *display) status(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.live:
		_, _ = fmt.Fprint(d.out, eraseLine+text)
	case time.Since(d.shown) > plainEvery:
		_, _ = fmt.Fprintln(d.out, text)
	default:
		return
	}
	d.shown = time.Now()
}

func (d *display) line(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		text = eraseLine + text
	}
	_, _ = fmt.Fprintln(d.out, text)
}

func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		_, _ = fmt.Fprint(d.out, eraseLine)
	}
}

type progress struct {
	*display
	verbose bool
	total   int
	started time.Time

	counting     sync.Mutex
	done, failed int
	said         string // the last text or reason printed
}

func newProgress(out io.Writer, total int, verbose bool) *progress {
	return &progress{display: newDisplay(out), verbose: verbose, total: total, started: time.Now()}
}

func (p *progress) event(e conformance.Event) {
	p.counting.Lock()
	defer p.counting.Unlock()
	if e.Text != "" {
		p.said = e.Text
		p.line(e.Text)
	}
	if e.Result == nil {
		return
	}
	p.done++
	bad := e.Result.Verdict == verdicts.Failed || e.Result.Verdict == verdicts.Invalid
	if bad {
		p.failed++
	}
	// When a target dies all that is left has the same reason, with its log: it is shown once.
	again := bad && strings.HasSuffix(p.said, e.Result.Reason)
	if p.verbose || bad && !again {
		p.line(fmt.Sprintf("%-8s %s  %s (%d ms)", e.Result.Verdict, e.Result.Cell, e.Result.Scenario, e.Took.Milliseconds()))
	}
	if bad && !again {
		p.said = e.Result.Reason
		p.line("         " + p.said)
	}
	p.status(fmt.Sprintf("%d/%d scenarios, %d not passed, %.0f s", p.done, p.total, p.failed, time.Since(p.started).Seconds()))
}

type loadProgress struct {
	*display
	last storm.Progress
}

// progress shows rates over the time since the last call, latencies over the block.
func (p *loadProgress) progress(now storm.Progress) {
	before := p.last
	if before.Block != now.Block {
		before = storm.Progress{}
	}
	p.last = now
	p.status(loadLine(before, now))
}

func (p *loadProgress) created(done, total int64) {
	if done == total || p.due() {
		p.status(inEnglish.Sprintf("%d of %d objects", done, total))
	}
}

var inEnglish = message.NewPrinter(language.English)

func loadLine(before, now storm.Progress) string {
	seconds := max((now.Elapsed - before.Elapsed).Seconds(), 0.001)
	rate := func(now, before float64) float64 { return (now - before) / seconds }
	ms := func(q float64) float64 { return float64(now.Live.Latency.Quantile(q).Microseconds()) / 1000 }
	return fmt.Sprintf("block %d/%d %s on %s: %.1f of %.1f requests/s, p50 %.1f ms, p99 %.1f ms, %.1f reviews/s, %d errors, %s left",
		now.Block, now.Blocks, now.Side.Variant, now.Side.Server,
		rate(float64(now.Live.Sent), float64(before.Live.Sent)), rate(now.Asked, before.Asked), ms(0.5), ms(0.99),
		rate(float64(now.Reviews), float64(before.Reviews)), now.Live.Errors, now.Left.Round(time.Second))
}
