package main

import (
	"cmp"
	_ "embed"
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
	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/suites/labels"
)

// Part is a table of what is published: runs side by side.
type Part struct {
	Name string
	*Cost
}

// publishedFile has the judgement of each run beside the page of its part, by the run's title, so that its figures are not
// lost where another part is measured later, or elsewhere.
const publishedFile = "runs.json"

type published struct {
	judge.Result
	Profile    string         `json:"profile"`
	Seed       int64          `json:"seed"`
	Tool       string         `json:"tool,omitempty"` // the version of authzconf that made the run
	Kubernetes string         `json:"kubernetes,omitempty"`
	Command    []string       `json:"command,omitempty"`
	Digest     string         `json:"digest,omitempty"`
	Evidence   string         `json:"evidence,omitempty"` // the archive beside the page
	Machine    run.Machine    `json:"machine,omitzero"`
	Started    time.Time      `json:"started"`
	Finished   time.Time      `json:"finished,omitzero"`
	Population run.Population `json:"population,omitzero"`
	Who        string         `json:"who,omitempty"`
	Authorizer string         `json:"authorizer,omitempty"`
	Blocks     int            `json:"blocks,omitempty"`
	Length     run.Duration   `json:"blockLength,omitzero"`
	Steady     bool           `json:"steady,omitempty"` // that it is the one of a steady state
	// Served is how long requests took according to the API servers.
	Served []servedVariant `json:"served,omitempty"`
}

// newPublished returns what is published of a run beside its page.
func newPublished(c column) published {
	r := c.Run
	p := published{
		Result:     c.Result,
		Profile:    r.Profile,
		Seed:       r.Seed,
		Tool:       c.Tool,
		Command:    c.Command,
		Digest:     c.Digest,
		Evidence:   c.Evidence,
		Machine:    r.Machine,
		Started:    r.Started,
		Finished:   r.Finished,
		Population: r.Population,
		Who:        c.Who(),
		Authorizer: r.Authorizer,
		Blocks:     len(r.Blocks),
		Length:     c.length(),
		Steady:     r.Steady,
		Served:     c.served,
	}
	if len(r.Servers) > 0 {
		p.Kubernetes = r.Servers[0].GitVersion
	}
	return p
}

// column returns the run as it was published. Its blocks have nothing but their length.
func (p published) column(title string) column {
	c := column{
		Title:    title,
		Result:   p.Result,
		Tool:     p.Tool,
		Command:  p.Command,
		Digest:   p.Digest,
		Evidence: p.Evidence,
		who:      p.Who,
		served:   p.Served,
		Run: run.Run{
			Profile:    p.Profile,
			Seed:       p.Seed,
			Agents:     p.Population.Nodes * p.Population.DaemonSets,
			Population: p.Population,
			Authorizer: p.Authorizer,
			Machine:    p.Machine,
			Started:    p.Started,
			Finished:   p.Finished,
			Steady:     p.Steady,
		},
	}
	if p.Kubernetes != "" {
		c.Run.Servers = []run.Server{{GitVersion: p.Kubernetes}}
	}
	for range p.Blocks {
		c.Run.Blocks = append(c.Run.Blocks, run.Block{Length: p.Length})
	}
	c.Result.Rejudge()
	if !p.Steady && !p.hasSteadyBlocks() {
		c.renameSteady()
	}
	return c
}

// hasSteadyBlocks reports whether a run of a version that did not say so has blocks whose length is that of a steady state.
func (p published) hasSteadyBlocks() bool {
	schedule := profile.Profile{
		Arrivals: profile.Arrivals{Kind: pacer.Arrivals(p.Population.Arrivals), Every: time.Duration(p.Population.Every)},
		Block:    time.Duration(p.Length),
	}
	return schedule.Arrivals.Every > 0 && schedule.Steady()
}

// renameSteady says of figures which an earlier version took for the steady state that they are not.
func (c *column) renameSteady() {
	c.Result.Variants = slices.Clone(c.Result.Variants)
	for i := range c.Result.Variants {
		if v := &c.Result.Variants[i]; v.Reviews.Of == judge.SteadyState {
			v.Reviews.Of = judge.AskedBefore
		}
	}
}

// titledComparison is a comparison of a run, and whether the run has shown that two servers that are the same are alike.
type titledComparison struct {
	Title string
	Alike bool
	judge.Comparison
}

// MeasuredComparisons are those whose difference in time is known.
func (p *Cost) MeasuredComparisons() (list []titledComparison) {
	for _, c := range p.Columns {
		for _, comparison := range c.Result.Comparisons {
			if comparison.P50.Measured {
				list = append(list, titledComparison{c.Title, serversAreAlike(c.Result), comparison})
			}
		}
	}
	return list
}

// CountUnknown returns how many comparisons have no known difference in time.
func (p *Cost) CountUnknown() (n int) {
	for _, c := range p.Columns {
		n += len(c.Result.Comparisons)
	}
	return n - len(p.MeasuredComparisons())
}

// publish writes the page of a part, its plots, and the judgement and the evidence of its runs.
func (p *Part) publish(dir string) error {
	if err := p.publishEvidence(filepath.Join(dir, p.Name)); err != nil {
		return err
	}
	all := map[string]published{}
	for _, c := range p.Columns {
		all[c.Title] = newPublished(c)
	}
	data, err := filing.EncodeJSON(all)
	if err != nil {
		return err
	}
	if err := p.writeFolder(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.Name, publishedFile), data, 0o644)
}

// publishEvidence writes an archive for each run that is read now, and removes those of other runs.
func (p *Part) publishEvidence(folder string) error {
	old, err := filepath.Glob(filepath.Join(folder, "*"+archiveSuffix))
	if err != nil {
		return err
	}
	for _, archive := range old {
		if err := os.Remove(archive); err != nil {
			return err
		}
	}
	for i := range p.Columns {
		c := &p.Columns[i]
		if c.folder == "" {
			continue
		}
		packed, err := packEvidence(c.folder)
		if err != nil {
			return err
		}
		c.Evidence = filepath.Base(c.folder) + archiveSuffix
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, c.Evidence), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeFolder writes the page of a part and its plots. Plots that need the blocks of a run stay as they are where the blocks are
// not there.
func (p *Part) writeFolder(dir string) error {
	folder := filepath.Join(dir, p.Name)
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(seq.Map(old, filepath.Base), func(name string) bool { return !p.keepsTimeline(name) })
	files, err := p.Files(names...)
	if err != nil {
		return err
	}
	if err := writePages(folder, files); err != nil {
		return err
	}
	for _, plot := range old {
		name := filepath.Base(plot)
		if files[name] == nil && !slices.Contains(names, name) { // of other runs
			err = cmp.Or(os.Remove(plot), err)
		}
	}
	return err
}

// readPublished returns the parts with pages in a folder and no runs now. One without a file of its runs has no columns.
func readPublished(dir string, now []Part) (parts []Part, err error) {
	pages, err := filepath.Glob(filepath.Join(dir, "*", "README.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		p := Part{Name: filepath.Base(filepath.Dir(page)), Cost: &Cost{}}
		if slices.ContainsFunc(now, func(other Part) bool { return other.Name == p.Name }) {
			continue
		}
		all, err := readRuns(filepath.Join(filepath.Dir(page), publishedFile))
		if err != nil {
			return nil, err
		}
		for _, title := range slices.Sorted(maps.Keys(all)) {
			p.add(all[title].column(title))
		}
		p.sort()
		parts = append(parts, p)
	}
	return parts, nil
}

// readRuns reads the runs of a part, of this version or of an earlier one, by their titles; none if there is no file.
func readRuns(path string) (all map[string]published, err error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Took is how long the runs took, Outcomes how many had which.
func (p Part) Took() time.Duration {
	return seq.Sum(p.Columns, func(c column) time.Duration { return c.Run.Finished.Sub(c.Run.Started) }).Round(time.Second)
}

// Outcomes is "12 passed, 1 failed".
func (p Part) Outcomes() string {
	var list []string
	for _, outcome := range []judge.Outcome{judge.Passed, judge.Failed, judge.Inconclusive} {
		if n := seq.Count(p.Columns, func(c column) bool { return c.Result.Outcome == outcome }); n > 0 {
			list = append(list, fmt.Sprint(n, " ", outcome))
		}
	}
	return strings.Join(list, ", ")
}

// daemonSets are the runs about pods with one ServiceAccount, by how many and how often they ask.
func daemonSets(parts []Part) (list []column) {
	for _, p := range parts {
		if p.Name == "daemonset" || p.Name == "reviews" {
			list = append(list,
				slices.DeleteFunc(slices.Clone(p.Columns), func(c column) bool { return c.Run.Population.ServiceAccounts != 1 })...)
		}
	}
	slices.SortStableFunc(list, func(x, y column) int {
		return cmp.Or(y.Run.Population.Nodes-x.Run.Population.Nodes, cmp.Compare(y.Run.Population.Every, x.Run.Population.Every))
	})
	return list
}

// describeGenerator returns what sending a request took the generator, from the least to the most of all variants.
func describeGenerator(parts []Part) string {
	low, high := math.Inf(1), 0.0
	for _, p := range parts {
		for _, c := range p.Columns {
			for _, v := range c.Result.Variants {
				low, high = min(low, v.GeneratorCPU), max(high, v.GeneratorCPU)
			}
		}
	}
	return fmt.Sprintf("%.2f to %.2f ms", low, high)
}

// writeResults reads the runs below a folder, those of each part in a folder of its name, and publishes them.
func writeResults(runs, dir string) error {
	parts, err := readParts(runs)
	if err != nil {
		return err
	}
	return publishParts(parts, dir)
}

// publishParts writes a page for each part and README.md with what they, and the parts that were published earlier, say of
// the KEP's statements. The pages of what was published earlier are written anew from its runs.json.
func publishParts(parts []Part, dir string) error {
	for i := range parts {
		if err := parts[i].publish(dir); err != nil {
			return err
		}
	}
	before, err := readPublished(dir, parts)
	if err != nil {
		return err
	}
	for i := range before {
		if len(before[i].Columns) == 0 {
			continue // a page of which only the text is there
		}
		if err := before[i].writeFolder(dir); err != nil {
			return err
		}
	}
	if parts = append(parts, before...); len(parts) == 0 {
		return fmt.Errorf("%s has no PART/README.md: expected the pages that make load-results writes", dir)
	}
	slices.SortFunc(parts, func(x, y Part) int { return cmp.Compare(x.Name, y.Name) })
	statements, err := makeStatements(parts)
	if err != nil {
		return err
	}
	took := seq.Sum(parts, Part.Took)
	text, err := markdown("results", map[string]any{
		"Parts":      parts,
		"Answers":    answerQuestions(parts),
		"Statements": statements,
		"Took":       took,
		"DaemonSets": daemonSets(parts),
		"Generator":  describeGenerator(parts),
	})
	if err != nil {
		return err
	}
	return writePage(dir, text)
}

// readParts reads the reports in PART/RUN below a folder; none without a folder.
func readParts(runs string) (parts []Part, err error) {
	if runs == "" {
		return nil, nil
	}
	paths, err := filepath.Glob(filepath.Join(runs, "*", "*", reports.ReportFile))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no PART/RUN/%s: expected the folders that make load-results leaves", runs, reports.ReportFile)
	}
	columns := map[string][]column{}
	for _, path := range paths {
		folder := filepath.Dir(path)
		c, err := readColumn(folder)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(filepath.Dir(folder))
		columns[name] = append(columns[name], c)
	}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		parts = append(parts, Part{Name: name, Cost: newCost(columns[name]...)})
	}
	return parts, nil
}

// openStorm reads a storm whose report follows from its evidence.
func openStorm(folder string) (*loadgen.Storm, error) {
	s, err := loadgen.Open(folder, labels.Filter)
	if err == nil && len(s.Differences) > 0 {
		err = fmt.Errorf("%s: it does not follow from its evidence: %s", folder, s.Differences[0])
	}
	return s, err
}

// readColumn reads the storm in the folder of a report.
func readColumn(folder string) (c column, err error) {
	s, err := openStorm(folder)
	if err != nil {
		return c, err
	}
	if err := checkTool(s.Report.SuiteVersion); err != nil {
		return c, fmt.Errorf("%s: %w", folder, err)
	}
	return column{
		Run:     s.Run,
		Result:  s.Result,
		Tool:    s.Report.SuiteVersion,
		Command: s.Report.Command,
		Digest:  s.Report.Record.Digest,
		served:  measureServed(&s.Run),
		folder:  folder,
	}, nil
}
