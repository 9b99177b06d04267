package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/loadgen/judge"
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
	Started    time.Time      `json:"started"`
	Population run.Population `json:"population,omitzero"`
	Authorizer string         `json:"authorizer,omitempty"`
	Length     run.Duration   `json:"blockLength,omitzero"`
	Finished   time.Time      `json:"finished,omitzero"`
}

// column returns the run as it was published.
func (p published) column(title string) column {
	return column{Title: title, Result: p.Result, Run: run.Run{
		Profile: p.Profile, Seed: p.Seed, Population: p.Population, Authorizer: p.Authorizer,
		Blocks: []run.Block{{Length: p.Length}}, Started: p.Started, Finished: p.Finished,
	}}
}

// publish writes the page of a part, its plots and the judgement of its runs.
func (p *Part) publish(dir string) error {
	all := map[string]published{}
	for _, c := range p.Columns {
		r := c.Run
		all[c.Title] = published{c.Result, r.Profile, r.Seed, r.Started, r.Population, r.Authorizer, c.length(), r.Finished}
	}
	data, err := filing.EncodeJSON(all)
	files, err2 := p.Files()
	if err := cmp.Or(err, err2); err != nil {
		return err
	}
	files[publishedFile] = data
	folder := filepath.Join(dir, p.Name)
	if err := writePages(folder, files); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(folder, "*.svg"))
	for _, plot := range old {
		if files[filepath.Base(plot)] == nil { // of other runs
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
			list = append(list, slices.DeleteFunc(slices.Clone(p.Columns), func(c column) bool { return c.Run.Population.ServiceAccounts != 1 })...)
		}
	}
	slices.SortStableFunc(list, func(x, y column) int {
		return cmp.Or(y.Run.Population.Nodes-x.Run.Population.Nodes, cmp.Compare(y.Run.Population.Every, x.Run.Population.Every))
	})
	return list
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
// the KEP's statements. Without parts README.md is written anew of what is published.
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
	if parts = append(parts, before...); len(parts) == 0 {
		return fmt.Errorf("%s has no PART/README.md: expected the pages that make load-results writes", dir)
	}
	slices.SortFunc(parts, func(x, y Part) int { return cmp.Compare(x.Name, y.Name) })
	took := seq.Sum(parts, Part.Took)
	text, err := markdown("results", map[string]any{"Parts": parts, "Statements": makeStatements(parts), "Took": took, "DaemonSets": daemonSets(parts)})
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
	return column{Run: s.Run, Result: s.Result, Command: s.Report.Command, Digest: s.Report.Record.Digest}, nil
}
