package load

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	Result
	Population run.Population `json:"population,omitzero"`
	Authorizer string         `json:"authorizer,omitempty"`
	Length     run.Duration   `json:"blockLength,omitzero"`
	Finished   time.Time      `json:"finished,omitzero"`
}

func (p *Part) publish(dir string) error {
	all := map[string]published{}
	for _, c := range p.Columns {
		all[c.Title] = published{c.Result, c.Run.Population, c.Run.Authorizer, c.length(), c.Run.Finished}
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

// writePages writes files to a folder, README.md first: nothing is written beside a page of somebody else.
func writePages(dir string, files map[string][]byte) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = writePage(dir, files["README.md"])
	}
	for name, data := range files {
		if err == nil && name != "README.md" {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
	}
	return err
}

// writePage writes README.md of a folder, unless there is one that does not begin as it does: that is somebody else's.
func writePage(dir string, page []byte) error {
	name := filepath.Join(dir, "README.md")
	before, err := os.ReadFile(name)
	title, _, _ := bytes.Cut(page, []byte("\n"))
	switch {
	case err == nil && !bytes.HasPrefix(before, title):
		return fmt.Errorf("%s is another page than %q; name another folder", name, title)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.WriteFile(name, page, 0o644)
}

// earlier are the parts with pages in a folder and no runs now. One without a file of its runs has no columns.
func earlier(dir string, now []Part) (parts []Part, err error) {
	pages, err := filepath.Glob(filepath.Join(dir, "*", "README.md"))
	for _, page := range pages {
		p := Part{Name: filepath.Base(filepath.Dir(page)), Cost: &Cost{}}
		if slices.ContainsFunc(now, func(other Part) bool { return other.Name == p.Name }) {
			continue
		}
		var all map[string]published
		path := filepath.Join(filepath.Dir(page), publishedFile)
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, title := range slices.Sorted(maps.Keys(all)) {
			was := all[title]
			p.add(column{Title: title, Result: was.Result, Saved: Saved{Run: run.Run{Population: was.Population, Authorizer: was.Authorizer, Blocks: []run.Block{{Length: was.Length}}, Started: was.Started, Finished: was.Finished}}})
		}
		parts = append(parts, p)
	}
	return parts, err
}

// Took is how long the runs took, Outcomes how many had which.
func (p Part) Took() time.Duration {
	return seq.Sum(p.Columns, func(c column) time.Duration { return c.Run.Finished.Sub(c.Run.Started) }).Round(time.Second)
}

// Outcomes is "12 passed, 1 failed".
func (p Part) Outcomes() string {
	var list []string
	for _, outcome := range []Outcome{Passed, Failed, Inconclusive} {
		if n := seq.Count(p.Columns, func(c column) bool { return c.Result.Outcome == outcome }); n > 0 {
			list = append(list, fmt.Sprint(n, " ", outcome))
		}
	}
	return strings.Join(list, ", ")
}

func (c column) length() run.Duration {
	if len(c.Run.Blocks) == 0 {
		return 0
	}
	return c.Run.Blocks[0].Length
}

// Asks is how often each pod asks.
func (c column) Asks() string {
	if every := c.Run.Population.Every; every > 0 {
		return "every " + text(every)
	}
	return "once in " + text(c.length())
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

// Legacy is legacy impersonation without the gate.
func (c column) Legacy() *Variant { return c.Measured(variantKey{"legacy-gate-off", "gate-off"}) }

// Statement is one of the KEP, and what the runs say of it: in a word, in a figure, and in full.
type Statement struct {
	Quote, Section, Verdict, Measured string
	Figures                           []string
	From                              []string // the parts with the figures
}

// Results reads the runs below a folder, those of each part in a folder of its name, and writes a page for each part
// and README.md with what they, and the parts that were published earlier, say of the KEP's statements. Without a folder
// README.md is written anew of what is published.
func Results(runs, dir string) error {
	paths, err := filepath.Glob(filepath.Join(runs, "*", "*", reportFile))
	if err != nil || len(paths) == 0 && runs != "" {
		return fmt.Errorf("%s has no PART/RUN/%s: expected the folders that make load-results leaves", runs, reportFile)
	}
	var parts []Part
	saved := map[string][]Saved{}
	for _, path := range paths {
		s, err := LoadSaved(filepath.Dir(path))
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if saved[name] == nil {
			parts = append(parts, Part{Name: name})
		}
		saved[name] = append(saved[name], s)
	}
	for i := range parts {
		p := &parts[i]
		p.Cost = NewCost(saved[p.Name]...)
		if err := p.publish(dir); err != nil {
			return err
		}
	}
	before, err := earlier(dir, parts)
	if err != nil {
		return err
	}
	if parts = append(parts, before...); len(parts) == 0 {
		return fmt.Errorf("%s has no PART/README.md: expected the pages that make load-results writes", dir)
	}
	slices.SortFunc(parts, func(x, y Part) int { return cmp.Compare(x.Name, y.Name) })
	took := seq.Sum(parts, Part.Took)
	text, err := markdown("results", map[string]any{"Parts": parts, "Statements": statements(parts), "Took": took, "DaemonSets": daemonSets(parts)})
	if err != nil {
		return err
	}
	return writePage(dir, text)
}

// said is a statement about the reviews that variants cost, own that of the request itself included or not.
type said struct {
	quote, server string
	variants      []string
	reviews       float64
}

// scalability are those of the KEP's section Scalability. A request that is disallowed has no review of its own.
var scalability = []said{
	{"The existing impersonation mechanism will introduce 1 access review.", "gate-off", []string{"legacy-gate-off"}, 1 + 1},
	{"2 access review check if the new access rule is passed.", "gate-on", []string{"associated-node-cold", "arbitrary-node"}, 2 + 1},
	{"3 access review check if the new access rule is not passed, and the legacy impersonate access rule is passed.", "gate-on", []string{"legacy-gate-on", "fallback"}, 3 + 1},
	{"When the check is disallowed, it will introduce 3 access review checks.", "gate-on", []string{"denied"}, 3},
}

func statements(parts []Part) (list []Statement) {
	list = seq.Map(scalability, func(s said) Statement { return s.statement(parts) })
	return append(list, highVolume(parts), objectivesHeld(parts), resources(parts))
}

func measured(parts []Part, variant, server string, do func(part string, c *column, v *Variant)) {
	for _, p := range parts {
		for i := range p.Columns {
			if v := p.Columns[i].Measured(variantKey{variant, server}); v != nil {
				do(p.Name, &p.Columns[i], v)
			}
		}
	}
}

// statement rests on runs in which nothing disturbed the counting, and nearly all answers were as expected: a request that
// fails costs fewer reviews. Reviews that are not as predicted refute it.
func (s said) statement(parts []Part) Statement {
	out := Statement{Quote: s.quote, Section: "Scalability", Verdict: "not measured"}
	least, most, refuted := math.Inf(1), 0.0, false
	for _, variant := range s.variants {
		means := map[[2]string][]float64{}
		measured(parts, variant, s.server, func(part string, c *column, v *Variant) {
			for _, r := range []*ReviewRate{v.FirstContact, &v.Reviews} {
				if r == nil || r.Of == allBlocks || r.Verdict != asPredicted && r.Verdict != notPredicted || !c.Result.counted() || float64(v.Errors) > errorsCompared*float64(v.Done) {
					continue
				}
				means[[2]string{r.Of, r.Verdict}] = append(means[[2]string{r.Of, r.Verdict}], r.PerRequest.Estimate)
				out.From = seq.AppendMissing(out.From, part)
			}
		})
		for _, of := range slices.SortedFunc(maps.Keys(means), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) }) {
			all := means[of]
			low, high := slices.Min(all), slices.Max(all)
			out.Figures = append(out.Figures, fmt.Sprintf("%s, %s: %s reviews per request in %s, %s", variant, of[0], Range{low, high}, reports.Plural(len(all), "run"), of[1]))
			least, most, refuted = min(least, low), max(most, high), refuted || of[1] == notPredicted
		}
	}
	const exact = 0.0005
	if len(out.Figures) > 0 {
		out.Measured = fmt.Sprintf("%s reviews per request; by the KEP %g", Range{least, most}, s.reviews)
	}
	switch {
	case len(out.Figures) == 0:
	case refuted:
		out.Verdict = "not known: some is not as the model predicts"
	case most > s.reviews+exact:
		out.Verdict = "does not hold"
	case least < s.reviews-exact:
		out.Verdict = "an upper bound"
	default:
		out.Verdict = "holds"
	}
	return out
}

// counted says whether nothing disturbed what a run counts, whatever it says of latency.
func (r Result) counted() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.State != Held && slices.Contains([]string{"executed", "undisturbed", "servers", "counters"}, c.Name)
	})
}

// highVolume is at the most agents that were measured.
func highVolume(parts []Part) Statement {
	out, highest := Statement{Quote: "… could put load on the authorization chain.", Section: "Risks", Verdict: "not measured"}, 0.0
	for _, of := range []variantKey{{"none", "gate-off"}, {"legacy-gate-off", "gate-off"}, {"associated-node-cold", "gate-on"}, {"fallback", "gate-on"}} {
		var best *Variant
		var title, from string
		measured(parts, of.variant, of.server, func(part string, c *column, v *Variant) {
			if best == nil || v.Agents > best.Agents {
				best, title, from = v, c.Title, part
			}
		})
		if best != nil {
			out.From, out.Verdict = seq.AppendMissing(out.From, from), "measured"
			out.Figures = append(out.Figures, fmt.Sprintf("%s: %.1f reviews/s at %.1f requests/s (%s)", of.variant, best.ReviewsPerSecond, best.Rate, title))
			if most := fmt.Sprintf("%.0f reviews/s of %d agents, %s", best.ReviewsPerSecond, best.Agents, of.variant); best.ReviewsPerSecond > highest {
				highest, out.Measured = best.ReviewsPerSecond, "up to "+most
			}
		}
	}
	return out
}

// objectivesHeld counts the judgements of the API's objectives. One that is broken on the server without the gate, too, is
// not broken by the feature.
func objectivesHeld(parts []Part) Statement {
	out := Statement{Quote: "Use of this feature should not change existing API SLOs.", Section: "SLOs", Verdict: "not judged"}
	states, changed, open := map[State]int{}, false, false
	for _, p := range parts {
		for _, c := range p.Columns {
			slos := slices.DeleteFunc(slices.Clone(c.Result.Limits), func(l LimitResult) bool { return !strings.HasPrefix(l.Name, sloName) })
			for _, l := range slos {
				states[l.State]++
				out.From = seq.AppendMissing(out.From, p.Name)
				if l.State == Held {
					continue
				}
				out.Figures = append(out.Figures, fmt.Sprintf("%s, %s: %s", c.Title, l.Of, l.Detail))
				without := slices.ContainsFunc(slos, func(x LimitResult) bool {
					return x.State == Broken && x.Name == l.Name && strings.Contains(x.Of, "gate-off")
				})
				if l.State == Broken && !without {
					compared := slices.ContainsFunc(c.Result.Comparisons, func(x Comparison) bool { return x.P99.Measured })
					changed, open = changed || compared, open || !compared
				}
			}
		}
	}
	all := states[Held] + states[Broken] + states[Unknown]
	switch {
	case changed:
		out.Verdict = "broken"
	case open:
		out.Verdict = "not known: broken where too few pairs tell the feature from the machine"
	case states[Broken] > 0:
		out.Verdict = "broken without the feature as well, where it is"
	case states[Held] == 0:
	case states[Unknown] > 0:
		out.Verdict = "held wherever it could be judged"
	case all > 0:
		out.Verdict = "held"
	}
	if all > 0 {
		out.Measured = fmt.Sprintf("of %d p99, by variant and kind of request, %d held, %d broken, %d not known", all, states[Held], states[Broken], states[Unknown])
	}
	return out
}

func resources(parts []Part) Statement {
	out := Statement{Quote: "NA", Section: "Resource usage", Verdict: "not judged: no comparison has the pairs and starts that a claim needs"}
	for _, p := range parts {
		for _, c := range p.Columns {
			for _, x := range c.Result.Comparisons {
				if x.CPU.Measured {
					out.Verdict, out.From = "measured", []string{p.Name}
					if out.Measured == "" && !x.AA {
						out.Measured = fmt.Sprintf("%s (p %s) of the %s's CPU above idle per request, %s against %s", worded("change", x.CPU), pValue(x.CPU.P), run.APIServer, x.B, x.A)
					}
					out.Figures = append(out.Figures, fmt.Sprintf("%s, B %s against A %s: %s", x.Name, x.B, x.A, worded("effect", x.CPU)))
				}
			}
		}
	}
	return out
}
