package granular

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Notice says what the results are not.
const Notice = "No API server implements KEP-3617. This judges a reference enforcer before a real API server; it says nothing about any API server's conformance."

// Report is what a run has found.
type Report struct {
	reports.Record `json:",inline"`

	Notice     string    `json:"notice"`
	Kubernetes string    `json:"kubernetes"`
	Took       string    `json:"took"`
	Results    []*Result `json:"results"`
}

// Section is the results of one section of the KEP.
type Section struct {
	Name                              string
	Scenarios, Attempts, Failed, Lost int
}

// Sections counts results by section, in alphabetical order.
func Sections(results []*Result) (out []*Section) {
	seen := map[string]bool{}
	for _, r := range results {
		i := slices.IndexFunc(out, func(s *Section) bool { return s.Name == r.Section })
		if i < 0 {
			i, out = len(out), append(out, &Section{Name: r.Section})
		}
		s := out[i]
		s.Attempts++
		if !seen[r.Scenario] {
			seen[r.Scenario] = true
			s.Scenarios++
		}
		if len(r.Problems) > 0 {
			s.Failed++
		}
		if r.Invalid != "" {
			s.Lost++
		}
	}
	slices.SortFunc(out, func(a, b *Section) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Print writes what a person wants to know.
func (r *Report) Print(w io.Writer) {
	for _, result := range r.Results {
		for _, p := range result.Problems {
			_, _ = fmt.Fprintf(w, "failed   %s %s: %s\n", result.Scenario, result.Attempt, p)
		}
		if result.Invalid != "" {
			_, _ = fmt.Fprintf(w, "invalid  %s %s: %s\n", result.Scenario, result.Attempt, result.Invalid)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "section of KEP-3617\tscenarios\tattempts\tfailed\tinvalid")
	var all Section
	for _, s := range Sections(r.Results) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", s.Name, s.Scenarios, s.Attempts, s.Failed, s.Lost)
		all.Scenarios, all.Attempts, all.Failed, all.Lost = all.Scenarios+s.Scenarios, all.Attempts+s.Attempts, all.Failed+s.Failed, all.Lost+s.Lost
	}
	_, _ = fmt.Fprintf(t, "all\t%d\t%d\t%d\t%d\n", all.Scenarios, all.Attempts, all.Failed, all.Lost)
	_ = t.Flush()
	_, _ = fmt.Fprintf(w, "Kubernetes %s, %s\n%s\n", r.Kubernetes, r.Took, r.Notice)
}

// Folder is a report in a folder, CostFolder a measurement.
var (
	Folder     = filing.Kind{Name: "report of granular", Marker: "granular.json", Head: map[string]string{"notice": "", "kubernetes": "", "results": ""}, Files: []string{"evidence/*.json.gz", reports.SignatureFile}}
	CostFolder = filing.Kind{Name: "report of granular cost", Marker: "granular-cost.json", Head: map[string]string{"curves": "", "floods": ""}, Files: []string{"granular-cost.svg"}}
)

// Print writes the tables of a measurement.
func (c *Cost) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	table := func(title string, cell func(CostPoint) string) {
		for _, n := range costFields {
			title += fmt.Sprintf("\t%d", n)
		}
		_, _ = fmt.Fprintln(t, title+"\t")
		for _, curve := range c.Curves {
			row := curve.Actor
			for _, p := range curve.Points {
				row += "\t" + cell(p)
			}
			_, _ = fmt.Fprintln(t, row+"\t")
		}
	}
	table("checks per request", func(p CostPoint) string { return fmt.Sprint(p.Checks) })
	table("ms per request", func(p CostPoint) string { return fmt.Sprintf("%.1f", p.Milliseconds) })
	_ = t.Flush()
	for _, curve := range c.Curves {
		outcome := "denied"
		if curve.Points[len(curve.Points)-1].Allowed {
			outcome = "allowed"
		}
		_, _ = fmt.Fprintf(w, "%s holds %s: %s\n", curve.Actor, curve.Holds, outcome)
	}
	for _, f := range c.Floods {
		_, _ = fmt.Fprintf(w, "flood by %s, %d fields, %d clients: %.0f requests/s, %.0f checks/s, %.1f checks per request\n",
			f.Actor, f.Fields, f.Clients, f.RequestsPerSecond, f.ChecksPerSecond, f.ChecksPerRequest)
	}
}

// Write writes a measurement as granular-cost.json, with a plot beside it.
func (c *Cost) Write(dir string) error {
	chart := statistics.Chart{
		Label: "checks per request by fields that a request changes", Height: 360, Legend: true,
		X: statistics.Axis{Label: "fields that a request changes", Log: true}, Y: statistics.Axis{Label: "checks per request", Log: true},
	}
	for _, curve := range c.Curves {
		line := statistics.Curve{Name: curve.Actor}
		for _, p := range curve.Points {
			line.Points = append(line.Points, statistics.Point{X: float64(p.Fields), Y: float64(p.Checks)})
		}
		chart.Curves = append(chart.Curves, line)
	}
	image, err := chart.SVG()
	if err != nil {
		return err
	}
	return CostFolder.WriteReport(dir, c, map[string][]byte{"granular-cost.svg": []byte(image + "\n")})
}
