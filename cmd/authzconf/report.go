package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"text/template"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/reports"
)

func newReport() *cobra.Command {
	c := plainCommand("report", (*cobra.Command).Help)
	c.AddCommand(newReportDiff(), newReportGA(), newReportFlakes())
	return c
}

func newReportDiff() *cobra.Command {
	var whole, issue bool
	c := commandWith("diff FOLDER[:CELL] FOLDER[:CELL]", func(c *cobra.Command, args []string) error {
		d, err := conformance.Diff(conformance.ParseSide(args[0]), conformance.ParseSide(args[1]))
		if err != nil {
			return err
		}
		if issue {
			text, err := describeIssue(d)
			if err != nil {
				return invalid(err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return errors.Join(invalid(err), failedIf(len(d.News()) > 0))
		}
		err = render(c.OutOrStdout(), "difference", struct {
			*conformance.BehaviourDiff
			Whole bool
		}{d, whole})
		if err != nil {
			return invalid(err)
		}
		return failedIf(len(d.Changed) > 0)
	})
	c.Flags().BoolVar(&whole, "whole", false, "also print the lines that are the same")
	c.Flags().
		BoolVar(&issue, "issue", false, "print the text of an issue, in Markdown: what changed, in which scenarios, and how to see it again")
	c.MarkFlagsMutuallyExclusive("whole", "issue")
	return c
}

// printable returns a text without characters that would control a terminal or end the comment that contains it. Names
// come from files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '�'
		}
		return r
	}, s)
}

//go:embed output.tmpl
var outputText string

var outputs = template.Must(template.New("output").Funcs(template.FuncMap{
	"printable": printable,
	"join":      strings.Join,
	"plural":    func(n any, noun string) string { return reports.Plural(int(reflect.ValueOf(n).Int()), noun) },
	// first returns the first n values of a list. more returns how many others there are.
	"first": func(n int, list any) any {
		v := reflect.ValueOf(list)
		return v.Slice(0, min(n, v.Len())).Interface()
	},
	"more":      func(n int, list any) int { return max(0, reflect.ValueOf(list).Len()-n) },
	"megabytes": func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) },
	"rate":      formatRate,
	"figures":   nameFigures,
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

// checkForm returns an error if a command cannot write in the form that --output names. more are forms in addition to
// those that all commands have.
func checkForm(form string, more ...string) error {
	forms := append([]string{"text", "json", "yaml"}, more...)
	if slices.Contains(forms, form) {
		return nil
	}
	return fmt.Errorf("--output %q is not one of %s", form, strings.Join(forms, ", "))
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

// display shows progress: on a terminal in a line that is rewritten, and otherwise in a plain line now and then.
type display struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	shown time.Time
}

const (
	plainEvery = 5 * time.Second
	// liveEvery is the pause between two counts on a terminal, for counts that change quickly.
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

// status rewrites the live line, or prints a plain line if it is time for one.
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
