package load

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Cost is several runs side by side: what each variant costs at each number of agents and with each authorizer.
type Cost struct {
	Columns  []column // the runs, Variants the rows: every variant on its server
	Variants []variantKey
}

type column struct {
	Saved
	Result Result
	Title  string
}

// Measured is what the run has of a variant, nil if it has nothing.
func (c column) Measured(of variantKey) *Variant {
	i := slices.IndexFunc(c.Result.Variants, func(v Variant) bool { return v.Variant == of.variant && v.Server == of.server })
	if i < 0 {
		return nil
	}
	return &c.Result.Variants[i]
}

// titles are what tells runs from each other.
var titles = []func(r *run.Run) string{
	func(r *run.Run) string { return r.Profile },
	func(r *run.Run) string { return reports.Plural(r.Agents, "agent") },
	func(r *run.Run) string { return reports.Plural(r.Population.ServiceAccounts, "ServiceAccount") },
	func(r *run.Run) string { return r.Authorizer },
	func(r *run.Run) string {
		if r.Population.Every == 0 {
			return "once a block"
		}
		return "every " + text(r.Population.Every)
	},
}

func (c *Cost) add(col column) {
	c.Columns = append(c.Columns, col)
	c.Variants = seq.AppendMissing(c.Variants, seq.Map(col.Result.Variants, func(v Variant) variantKey { return variantKey{v.Variant, v.Server} })...)
}

// NewCost judges each run by its own thresholds. Runs are put in order of profile, agents, accounts, then authorizer.
func NewCost(runs ...Saved) *Cost {
	c := &Cost{}
	for _, s := range runs {
		c.add(column{Saved: s, Result: Judge(s.Run, s.Thresholds)})
	}
	slices.SortStableFunc(c.Columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.Run.Profile, y.Run.Profile), x.Run.Agents-y.Run.Agents, x.Run.Population.ServiceAccounts-y.Run.Population.ServiceAccounts,
			cmp.Compare(x.Run.Authorizer, y.Run.Authorizer))
	})
	slices.SortFunc(c.Variants, variantKey.compare)
	for _, title := range titles {
		if first := title(&c.Columns[0].Run); !slices.ContainsFunc(c.Columns, func(col column) bool { return title(&col.Run) != first }) {
			continue
		}
		for i := range c.Columns {
			col := &c.Columns[i]
			col.Title = strings.TrimPrefix(col.Title+", "+title(&col.Run), ", ")
		}
	}
	for i := range c.Columns { // runs that differ in nothing that is known
		c.Columns[i].Title = cmp.Or(c.Columns[i].Title, fmt.Sprintf("%s, run %d", c.Columns[i].Run.Profile, i+1))
	}
	return c
}

// curve draws the reviews per request against the number of agents, with shared and with own ServiceAccounts; what is the
// same is one curve. It is empty unless some variant ran with several numbers, of one profile.
func (c *Cost) curve() (string, error) {
	const label = "access reviews per request"
	chart := statistics.Chart{
		Label: label + " by number of agents, in the steady state", Height: 340, Alone: true,
		X: statistics.Axis{Label: "agents", Log: true, Room: true}, Y: statistics.Axis{Label: label, Zero: true, Room: true},
	}
	const own = " (own accounts)"
	for _, row := range c.Variants {
		name := row.variant
		if slices.ContainsFunc(c.Variants, func(other variantKey) bool { return other.variant == row.variant && other != row }) {
			name = row.String()
		}
		for _, accounts := range []string{"", own} {
			curve, agents := statistics.Curve{Name: name + accounts}, map[int]bool{}
			for _, col := range c.Columns {
				v := col.Measured(row)
				if v == nil || agents[v.Agents] || strings.HasSuffix(col.Title, " ServiceAccounts") != (accounts == own) { // of several runs the first
					continue
				}
				agents[v.Agents] = true
				curve.Points = append(curve.Points, statistics.Point{X: float64(v.Agents), Y: v.Reviews.PerRequest.Estimate, Interval: v.Reviews.interval()})
			}
			same := slices.IndexFunc(chart.Curves, func(x statistics.Curve) bool {
				return slices.EqualFunc(x.Points, curve.Points, func(p, q statistics.Point) bool { return p.X == q.X && math.Abs(p.Y-q.Y) < 0.005 })
			})
			switch {
			case len(agents) < 2 || c.base(0) != c.base(len(c.Columns)-1): // columns are in order of profiles
			case same < 0:
				chart.Curves = append(chart.Curves, curve)
			case !slices.Contains(strings.Split(chart.Curves[same].Name, ", "), name):
				chart.Curves[same].Name += ", " + curve.Name
			}
		}
	}
	return chart.SVG()
}

func (c *Cost) base(i int) string {
	return strings.TrimRight(c.Columns[i].Result.Profile, "-0123456789")
}

var slug = strings.NewReplacer(", ", "-", " ", "-", ":", "", "(", "", ")", "")

// perRun draws the differences of each run of which something can be said, and the reviews over time where they came in waves:
// where in some second there were three times as many as on average.
func (c *Cost) perRun(files map[string][]byte) error {
	for _, col := range c.Columns {
		svg, err := plotEffects(col.Result.Comparisons)
		files[slug.Replace(col.Title)+"-differences.svg"] = []byte(svg)
		if err == nil && slices.ContainsFunc(col.Result.Variants, func(v Variant) bool { return float64(v.MostReviews) > 3*v.ReviewsPerSecond }) {
			svg, err = plotTimeline(groupVariants(&col.Run), ": "+col.Title)
			files[slug.Replace(col.Title)+".svg"] = []byte(svg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Files are README.md and the plots, as SVG files.
func (c *Cost) Files() (map[string][]byte, error) {
	reviews, err := c.curve()
	files := map[string][]byte{"reviews.svg": []byte(reviews)}
	err = cmp.Or(err, c.perRun(files))
	maps.DeleteFunc(files, func(_ string, svg []byte) bool { return len(svg) == 0 })
	readme, err2 := c.Markdown(slices.Sorted(maps.Keys(files))...)
	files["README.md"] = readme
	return files, cmp.Or(err, err2)
}

// Write writes Files to a folder.
func (c *Cost) Write(dir string) error {
	files, err := c.Files()
	if err != nil {
		return err
	}
	return writePages(dir, files)
}

// Markdown has a table for each thing that was measured, with a variant in each row and a run in each column, then
// the comparisons, and whether the runs were sound. plots are the names of SVG files to show, if any.
func (c *Cost) Markdown(plots ...string) ([]byte, error) {
	return markdown("cost", struct {
		*Cost
		Plots []string
	}{c, plots})
}

// queuesText is the mean wait of a request dispatched, in ms, and how many were rejected, over all priority levels.
func queuesText(v *Variant) string {
	sums := map[string]float64{}
	for name, n := range v.FlowControl {
		if !strings.Contains(name, " exempt") { // what measures, not what is measured
			what, _, _ := strings.Cut(name, " ")
			sums[what] += n
		}
	}
	return fmt.Sprintf("%.2f, %g", 1000*sums["waited"]/max(sums["dispatched"], 1), sums["rejected"])
}

// Usage is what one program used for a variant.
type Usage struct {
	// PerRequest is ms of CPU time above idle for each request sent, Idle the part of a processor used without requests.
	PerRequest float64 `json:"cpuMillisecondsPerRequest"`
	Idle       float64 `json:"idleProcessors"`
	RSS        int64   `json:"rssBytes"` // the most at a block's end
	// Allocated bytes for each request sent, and garbage collections in all blocks.
	Allocated float64 `json:"allocatedBytesPerRequest,omitempty"`
	GCs       int64   `json:"gcs,omitempty"`
	PeakHeap  int64   `json:"peakHeapBytes,omitempty"` // of all blocks
}

func usageOf(blocks []*run.Block) (used map[string]Usage) {
	var sent int64
	var length time.Duration
	for _, b := range blocks {
		sent, length = sent+b.Sent, length+time.Duration(b.Length)
		for name, c := range b.Cost {
			if used == nil {
				used = map[string]Usage{}
			}
			u := used[name]
			u.PerRequest += milliseconds(time.Duration(c.CPU - c.Idle))
			u.Idle += time.Duration(c.Idle).Seconds()
			u.RSS, u.Allocated, u.GCs, u.PeakHeap = max(u.RSS, c.RSS), u.Allocated+float64(c.Allocated), u.GCs+c.GCs, max(u.PeakHeap, c.PeakHeap)
			used[name] = u
		}
	}
	for name, u := range used {
		u.PerRequest, u.Allocated, u.Idle = u.PerRequest/float64(max(sent, 1)), u.Allocated/float64(max(sent, 1)), u.Idle/length.Seconds()
		used[name] = u
	}
	return used
}

// The files of a report folder.
const (
	runFile      = "run.json"
	reportFile   = "report.json"
	perfDataFile = "perfdata.json"
	metricsFile  = "metrics.txt"
	summaryFile  = "summary.md"
	htmlFile     = "report.html"
)

var fileNames = []string{runFile, reportFile, perfDataFile, metricsFile, summaryFile, htmlFile}

// Folder is a load report in a folder.
var Folder = filing.Kind{
	Name: "load report", Marker: runFile,
	Head:  map[string]string{"kind": run.Kind, "apiVersion": "authzconf.dev/*"},
	Files: fileNames,
}

func render(r run.Run, result Result) (map[string][]byte, error) {
	return filing.Render(map[string]func() ([]byte, error){
		runFile:      func() ([]byte, error) { return filing.EncodeJSON(r) },
		reportFile:   func() ([]byte, error) { return filing.EncodeJSON(result) },
		perfDataFile: func() ([]byte, error) { return filing.EncodeJSON(perfData(&r)) },
		metricsFile:  func() ([]byte, error) { return openMetrics(&r) },
		summaryFile:  func() ([]byte, error) { return Markdown(&r, &result) },
		htmlFile:     func() ([]byte, error) { return HTML(&r, &result) },
	})
}

// Write writes run.json, report.json, perfdata.json, metrics.txt, summary.md and report.html to folder dir, which
// has to be missing, empty, or hold an earlier load report, which is replaced.
func Write(dir string, r run.Run, result Result) error {
	files, err := render(r, result)
	if err != nil {
		return err
	}
	return Folder.Write(dir, files)
}

// Load reads the run of a report folder, or a file, strictly: judged without an unknown part it would be judged wrong.
func Load(path string) (r run.Run, err error) {
	r, _, err = read(path)
	return r, err
}

func read(path string) (r run.Run, digest string, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, runFile)
	}
	data, err := filing.ReadIn(filepath.Split(path))
	if err != nil {
		return r, "", fmt.Errorf("there is no load run: %w", err)
	}
	return r, fmt.Sprintf("%x", sha256.Sum256(data)), decode(path, data, &r, run.Kind)
}

// Saved is a run and the thresholds that were declared for it.
type Saved struct {
	Run        run.Run
	Thresholds Thresholds
	Digest     string // the SHA-256 of the file of the run
	stored     Result // what the report beside it says
}

// LoadSaved reads the run of a report folder, and its thresholds from the report beside it.
func LoadSaved(dir string) (s Saved, err error) {
	if s.Run, s.Digest, err = read(dir); err != nil {
		return s, err
	}
	path := filepath.Join(dir, reportFile)
	data, err := filing.ReadIn(dir, reportFile)
	if err != nil {
		return s, fmt.Errorf("there is no load report: %w", err)
	}
	if err = decode(path, data, &s.stored, Kind); err == nil && (s.stored.Seed != s.Run.Seed || !s.stored.Started.Equal(s.Run.Started)) {
		err = fmt.Errorf("%s is the report of another run than the %s beside it", path, runFile)
	}
	s.Thresholds = s.stored.Thresholds
	return s, err
}

func decode(path string, data []byte, v any, kind string) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%s is not JSON that authzconf wrote: %w", path, err)
	}
	if head.Kind != kind || head.APIVersion != run.APIVersion {
		return fmt.Errorf("%s is a %q of %q, expected a %s of %s", path, head.Kind, head.APIVersion, kind, run.APIVersion)
	}
	if err := reports.DecodeStrictly(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Verify judges the run of a report folder again, by the thresholds in its report, and lists in what the folder
// differs from what follows. An error means that there is no report to be verified. Tool is the version of this
// authzconf: pages of a report of another one that do not come out the same are for that one to judge. declared, if given, says which
// thresholds the text of the run's profile and its command amount to, and which comparisons: those of the report have to
// be the same, and a run that passed has all of them.
func Verify(dir, tool string, declared func(*run.Run) (Thresholds, []string, error)) (result Result, differences, unjudged []string, err error) {
	saved, err := LoadSaved(dir)
	if err != nil {
		return Result{}, nil, nil, err
	}
	r, stored := saved.Run, saved.stored
	result = Judge(r, stored.Thresholds)
	files, err := render(r, result)
	if err != nil {
		return Result{}, nil, nil, err
	}
	if declared != nil {
		t, compared, err := declared(&r)
		for _, name := range compared {
			if result.Outcome == Passed && !slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return b.Comparison == name }) {
				differences = append(differences, fmt.Sprintf("the run has no block of the comparison %s, which its profile and command ask for", name))
			}
		}
		if err != nil {
			differences = append(differences, fmt.Sprintf("what the run was to keep cannot be told: %s", err))
		} else if change := reports.Change(stored.Thresholds, t); change != "" {
			differences = append(differences, "the thresholds of the report are not those of the run's profile and command: "+change)
		}
	}
	if stored.Outcome != result.Outcome {
		differences = append(differences, fmt.Sprintf("the report says %q, its run %q", stored.Outcome, result.Outcome))
	}
	for _, name := range fileNames {
		page := !slices.Contains([]string{runFile, reportFile}, name)
		got, err := filing.ReadIn(dir, name)
		switch {
		case err != nil:
			differences = append(differences, fmt.Sprintf("%s cannot be read: %s", name, strings.TrimPrefix(err.Error(), "open ")))
		case bytes.Equal(got, files[name]):
		case page && r.Tool != tool:
			unjudged = append(unjudged, name)
		default:
			differences = append(differences, name+" is not what follows from the run")
		}
	}
	return result, differences, unjudged, nil
}
