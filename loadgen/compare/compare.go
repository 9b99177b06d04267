// Package compare compares two storms: one from before a change of a cluster, such as a gate turned on, and one from
// after it.
package compare

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/scenarios"
)

// Storm is one of the two storms.
type Storm struct {
	Run    run.Run
	Result judge.Result
}

// Comparison is what changed between two storms.
type Comparison struct {
	Before Circumstances `json:"before"`
	After  Circumstances `json:"after"`
	// Variants are the variants that both storms have, paired according to Options.
	Variants []Variant `json:"variants"`
	// OnlyBefore and OnlyAfter are variants that only one of the storms has.
	OnlyBefore []string `json:"onlyBefore,omitempty"`
	OnlyAfter  []string `json:"onlyAfter,omitempty"`
	// Notes say what a reader should know of all figures.
	Notes []string `json:"notes,omitempty"`
}

// Circumstances are the circumstances of a storm.
type Circumstances struct {
	Started    time.Time      `json:"started"`
	GitVersion string         `json:"gitVersion"`
	Gate       scenarios.Gate `json:"gate"`
	Load       float64        `json:"loadAverage"` // before the first block
}

// Variant is what agents did in both storms.
type Variant struct {
	Before  string   `json:"before"` // the names of the variant
	After   string   `json:"after"`
	Figures []Figure `json:"figures"`
}

// Figure is one quantity before and after the change.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"` // "ms", or empty for a number
	// Before and After are means over blocks. Difference is After less Before, with its 95 % interval by Welch's t over
	// blocks.
	Before     float64             `json:"before"`
	After      float64             `json:"after"`
	Difference statistics.Interval `json:"difference"`
	// Bounded is false if a side has only one block, because there is no interval then.
	Bounded bool `json:"bounded"`
	// Blocks are how many blocks each side has.
	Blocks [2]int `json:"blocks"`
	// Why says why nothing can be said. Then the figures are 0.
	Why string `json:"why,omitempty"`
}

// Changed reports whether the interval leaves out that nothing changed.
func (f Figure) Changed() bool {
	isUnchanged := f.Difference.Low <= 0 && f.Difference.High >= 0
	return f.Bounded && !isUnchanged
}

// Options say which variants are compared.
type Options struct {
	// Pairs are variants of the second storm by variants of the first. All others are compared with the variant of the
	// same name.
	Pairs map[string]string
}

const level = 0.95

// Compare compares two storms. It is an error if they differ in what they asked, or if one of them counted nothing.
func Compare(before, after *Storm, o Options) (*Comparison, error) {
	if err := findDifference(&before.Run, &after.Run); err != nil {
		return nil, err
	}
	if err := errors.Join(before.checkCounted("first"), after.checkCounted("second")); err != nil {
		return nil, err
	}
	c := &Comparison{Before: describe(&before.Run), After: describe(&after.Run), Notes: note(before, after)}
	groups := groupByName(&after.Run)
	used := map[string]bool{}
	for _, g := range judge.GroupVariants(&before.Run) {
		name := g.Key.Variant
		if other, paired := o.Pairs[name]; paired {
			name = other
		}
		blocks, there := groups[name]
		if !there {
			c.OnlyBefore = append(c.OnlyBefore, g.Key.Variant)
			continue
		}
		used[name] = true
		figures := compareBlocks(g.Blocks, blocks)
		if before.Run.OwnUnknown || after.Run.OwnUnknown {
			figures[0].forget("the checks of agents could not be told from those of others in the cluster")
		}
		c.Variants = append(c.Variants, Variant{Before: g.Key.Variant, After: name, Figures: figures})
	}
	for _, g := range judge.GroupVariants(&after.Run) {
		if name := g.Key.Variant; !used[name] {
			c.OnlyAfter = append(c.OnlyAfter, name)
		}
	}
	if len(c.Variants) == 0 {
		return nil, fmt.Errorf(
			"the storms have no variant in common (%s; %s): name those that belong together with --variants BEFORE=AFTER",
			strings.Join(c.OnlyBefore, ", "),
			strings.Join(c.OnlyAfter, ", "),
		)
	}
	return c, nil
}

// checkCounted returns an error if something disturbed what the storm counts.
func (s *Storm) checkCounted(name string) error {
	if s.Result.Counted() {
		return nil
	}
	return fmt.Errorf("the %s storm is inconclusive, so that its figures say nothing: %s", name, strings.Join(s.Result.Reasons, "; "))
}

// findDifference returns an error if two storms did not ask the same, because of other agents or other times.
func findDifference(before, after *run.Run) error {
	switch {
	case before.Population != after.Population:
		return fmt.Errorf("the storms had other agents: %s; and %s", before.Population, after.Population)
	case before.Engine != after.Engine || before.Shards != after.Shards:
		return errors.New("the agents of the storms ran in other places: expected the same --engine and --shards")
	case blockLength(before) != blockLength(after):
		return fmt.Errorf("the storms have blocks of %s and of %s", blockLength(before), blockLength(after))
	case severalServers(before) || severalServers(after):
		return errors.New("a storm compares servers of its own: expected storms with one server each, as those of an existing cluster are (the profile before-and-after)")
	}
	return nil
}

func blockLength(r *run.Run) time.Duration {
	if len(r.Blocks) == 0 {
		return 0
	}
	return time.Duration(r.Blocks[0].Length)
}

func severalServers(r *run.Run) bool { return len(r.Servers) != 1 }

func describe(r *run.Run) Circumstances {
	s := r.Servers[0]
	return Circumstances{Started: r.Started, GitVersion: s.GitVersion, Gate: s.Gate, Load: r.Machine.LoadBefore}
}

// note returns what a reader should know of all figures.
func note(before, after *Storm) (notes []string) {
	notes = append(notes,
		"latency and processor time are of one start of the API server each: two starts of one program differ, and that is not in the intervals",
	)
	if before.Run.Machine.CPUs != after.Run.Machine.CPUs {
		notes = append(notes, "the generators ran on different machines")
	}
	return notes
}

// groupByName returns the blocks of each variant.
func groupByName(r *run.Run) map[string][]*run.Block {
	groups := map[string][]*run.Block{}
	for _, g := range judge.GroupVariants(r) {
		groups[g.Key.Variant] = append(groups[g.Key.Variant], g.Blocks...)
	}
	return groups
}

// quantities are what is compared. measure returns the value of a block, or why the block has none.
var quantities = []struct {
	name, unit string
	measure    judge.Measurement
}{
	{"checks per request", "", measureChecks},
	{"reviews at webhooks per request", "", measureWebhookCalls},
	{"API server's CPU per request", "ms", judge.MeasureCPU},
	{"latency, p50", "ms", judge.MeasureQuantile(0.5)},
	{"latency, p99", "ms", judge.MeasureQuantile(0.99)},
}

func compareBlocks(before, after []*run.Block) (figures []Figure) {
	for _, q := range quantities {
		f := Figure{Name: q.name, Unit: q.unit, Blocks: [2]int{len(before), len(after)}}
		a, why := measureAll(before, q.measure)
		b, whyAfter := measureAll(after, q.measure)
		if why == "" {
			why = whyAfter
		}
		if why != "" {
			f.Why = why
		} else {
			f.Before, f.After = statistics.Mean(a), statistics.Mean(b)
			f.Difference, f.Bounded = statistics.DifferenceInterval(a, b, level)
		}
		figures = append(figures, f)
	}
	return figures
}

// forget marks a figure as unknown.
func (f *Figure) forget(why string) {
	*f = Figure{Name: f.Name, Unit: f.Unit, Blocks: f.Blocks, Why: why}
}

func measureAll(blocks []*run.Block, measure judge.Measurement) (values []float64, why string) {
	for _, b := range blocks {
		value, why := measure(b)
		if why != "" {
			return nil, why
		}
		values = append(values, value)
	}
	return values, ""
}

// measureChecks counts all checks, those of impersonation and those of the request itself. They are not told apart,
// because a server with the gate off does not count those of impersonation.
func measureChecks(b *run.Block) (float64, string) {
	if b.Sent == 0 {
		return 0, "a block in which nothing was sent"
	}
	n := seq.Sum(b.Reviews, func(r run.ReviewCount) int64 { return r.Count })
	return float64(n) / float64(b.Sent), ""
}

func measureWebhookCalls(b *run.Block) (float64, string) {
	if b.Sent == 0 {
		return 0, "a block in which nothing was sent"
	}
	return float64(b.WebhookCalls) / float64(b.Sent), ""
}
