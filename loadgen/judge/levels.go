package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
)

// exemptLevel is the priority level that is never limited. Whoever measures uses it, and not what is measured.
const exemptLevel = "exempt"

// LevelCounts are what priority and fairness did with requests in one priority level.
type LevelCounts struct {
	Level      string
	Dispatched float64
	// Waited is how many seconds the requests waited, all together.
	Waited float64
	// Rejected is how many requests were rejected, by reason.
	Rejected map[string]float64
}

// String returns the counts on one line.
func (l LevelCounts) String() string {
	text := fmt.Sprintf("%s: %.0f dispatched after %.2f ms", l.Level, l.Dispatched, l.MeanWait())
	if rejected := l.DescribeRejected(); rejected != "" {
		text += ", rejected " + rejected
	}
	return text
}

// DescribeRejected returns how many requests were rejected, by reason, or "" if none was.
func (l LevelCounts) DescribeRejected() string {
	return strings.Join(
		seq.Map(
			slices.Sorted(maps.Keys(l.Rejected)),
			func(reason string) string { return fmt.Sprintf("%.0f (%s)", l.Rejected[reason], reason) },
		),
		", ",
	)
}

// MeanWait returns how long a request that was dispatched waited in the mean, in ms.
func (l LevelCounts) MeanWait() float64 { return 1000 * l.Waited / max(l.Dispatched, 1) }

// SumLevels returns what the counters of priority and fairness of a block or a variant say, by level. The level that
// dispatched most requests comes first.
func SumLevels(counters map[string]float64) []LevelCounts {
	byLevel := map[string]*LevelCounts{}
	for name, n := range counters {
		c := run.ParseFlowCounter(name)
		if c.Level == exemptLevel {
			continue
		}
		l := byLevel[c.Level]
		if l == nil {
			l = &LevelCounts{Level: c.Level, Rejected: map[string]float64{}}
			byLevel[c.Level] = l
		}
		switch c.What {
		case "dispatched":
			l.Dispatched += n
		case "waited":
			l.Waited += n
		case "rejected":
			l.Rejected[c.Further] += n
		}
	}
	levels := seq.Map(slices.Collect(maps.Values(byLevel)), func(l *LevelCounts) LevelCounts { return *l })
	slices.SortFunc(levels, func(x, y LevelCounts) int {
		return cmp.Or(cmp.Compare(y.Dispatched, x.Dispatched), strings.Compare(x.Level, y.Level))
	})
	return levels
}

// noLevel is where requests are counted that are refused before priority and fairness.
const noLevel = "no level"

// mainLevel returns the priority level that dispatched most requests, or "" if that is unknown.
func mainLevel(counters map[string]float64) string {
	if len(counters) == 0 {
		return ""
	}
	levels := SumLevels(counters)
	if len(levels) == 0 || levels[0].Dispatched == 0 {
		return noLevel
	}
	return levels[0].Level
}

// SeparateLevels records in which priority level the sides of comparisons were dispatched. Levels have separate queues
// with other requests in them. If the sides are in different levels, no difference in time is known, whatever was
// measured.
func (r *Result) SeparateLevels() {
	levels := map[string]string{}
	for _, v := range r.Variants {
		levels[v.Name] = mainLevel(v.FlowControl)
	}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		c.LevelA, c.LevelB = levels[c.A], levels[c.B]
		if why := c.explainLevels(levels); why != "" {
			c.forgetTimes(why)
			r.forgetMargins(c)
		}
	}
}

// explainLevels returns why the sides cannot be compared by time, because they are in different priority levels. It
// returns "" if they are in the same one, or if that is unknown.
func (c *Comparison) explainLevels(levels map[string]string) string {
	isElsewhere := func(twin string) bool { return levels[twin] != c.LevelA }
	switch {
	case c.LevelA == "", c.LevelB == "":
		return ""
	case c.LevelA != c.LevelB:
		return fmt.Sprintf("A is dispatched in the priority level %s, B in %s", c.LevelA, c.LevelB)
	case slices.ContainsFunc(c.Twins, isElsewhere):
		return fmt.Sprintf("A is dispatched in the priority level %s, and the same on another server is not", c.LevelA)
	}
	return ""
}

// Measured reports whether a difference in time is known.
func (c *Comparison) Measured() bool { return c.P50.Measured || c.P99.Measured || c.CPU.Measured }

// forgetTimes marks the differences in time as unknown.
func (c *Comparison) forgetTimes(why string) {
	for _, q := range c.quantities(Margins{}) {
		margin := q.effect.Margin
		*q.effect = unmeasured("%s", why)
		q.effect.judge(margin)
	}
	c.logP50 = nil
}

// forgetMargins marks limits that were judged by differences in time as unknown.
func (r *Result) forgetMargins(c *Comparison) {
	for _, q := range c.quantities(Margins{}) {
		for i := range r.Limits {
			if l := &r.Limits[i]; l.Name == q.limit && l.Of == c.Name {
				l.State, l.Detail = Unknown, q.effect.String()
			}
		}
	}
}
