package load

import (
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Compare says how run b differs from run a: blocks of the same comparison, side, variant, server and agents are
// paired in the order of their pairs. The result is like that of Judge: Comparisons has one per variant, with a as
// side A, and the margins of the thresholds apply to them; their other limits apply to b alone.
//
// The two runs were not interleaved, so that a difference is one between the two runs with everything around them,
// the machine included. A note says so. An error means that the two have nothing in common that could be compared.
func Compare(a, b run.Run, t Thresholds) (Result, error) {
	groups := pairRuns(&a, &b)
	if len(groups) == 0 || a.Agents != b.Agents {
		return Result{}, fmt.Errorf("the runs, of %d and %d agents, have no variant in common, on a server of the same name and with as many agents", a.Agents, b.Agents)
	}
	result := newResult(&b, t)
	for _, c := range compareAll(groups, t) {
		c.A, c.B = "earlier run", "later run"
		if b.Started.Before(a.Started) {
			c.A, c.B = "later run", "earlier run"
		}
		result.Comparisons = append(result.Comparisons, c)
	}
	for _, side := range []struct {
		name string
		run  *run.Run
	}{{"A", &a}, {"B", &b}} {
		own := Judge(*side.run, t)
		for _, c := range own.Checks {
			// Pairs within a run are not what is compared here.
			if c.Name != checkPairsName {
				c.Name = "run " + side.name + ": " + c.Name
				result.Checks = append(result.Checks, c)
			}
		}
		if side.name == "B" {
			result.Variants = own.Variants
		}
	}
	result.Checks = append(result.Checks, checkArrivals(groups), checkPairs(groups, t, design{}))
	judgeVariants(&result, groupVariants(&b))
	judgeComparisons(&result)
	result.Notes = append(result.Notes, "the runs were not interleaved: what changed around them between the two is part of the differences")
	result.Notes = append(result.Notes, circumstances(&a, &b)...)
	result.conclude()
	return result, nil
}

// ComparisonThresholds are those of Compare, by the flags of load compare.
func ComparisonThresholds(margin, marginP99 float64, minPairs int) (Thresholds, error) {
	t := Thresholds{Margin: margin, MarginP99: marginP99, MinPairs: minPairs}
	switch {
	case !(margin >= 0 && margin < 1):
		return t, fmt.Errorf("--margin %g: expected a part from 0 to below 1", margin)
	case !(marginP99 >= 0 && marginP99 < 1):
		return t, fmt.Errorf("--margin-p99 %g: expected a part from 0 to below 1", marginP99)
	case margin == 0 && marginP99 == 0:
		return t, errors.New("--margin and --margin-p99 are both 0: there is nothing to judge by")
	case minPairs < statistics.PairsNeeded(1):
		return t, fmt.Errorf("--min-pairs %d: no statement is made on fewer than %d", minPairs, statistics.PairsNeeded(1))
	}
	return t, nil
}

// pairRuns pairs the blocks of two runs. Blocks whose counterpart is missing are a problem of their variant.
func pairRuns(a, b *run.Run) []comparisonPairs {
	type blockKey struct {
		comparison, role string
		aa               bool
		start, pair      int
		variant          variantKey
	}
	keyOfBlock := func(b *run.Block) blockKey {
		return blockKey{b.Comparison, b.Role, b.AA, b.Start, b.Pair, keyOf(b)}
	}
	// Blocks that have no pair of their own are matched in the order of their running.
	counterparts := map[blockKey][]*run.Block{}
	left := map[variantKey]int{}
	for i := range b.Blocks {
		block := &b.Blocks[i]
		counterparts[keyOfBlock(block)] = append(counterparts[keyOfBlock(block)], block)
		left[keyOf(block)]++
	}
	var groups []comparisonPairs
	for _, variant := range groupVariants(a) {
		g := comparisonPairs{key: comparisonKey{name: variant.name}}
		missing := 0
		for _, block := range variant.blocks {
			key := keyOfBlock(block)
			if others := counterparts[key]; len(others) > 0 {
				g.pairs = append(g.pairs, pair{number: len(g.pairs), a: block, b: others[0]})
				counterparts[key] = others[1:]
				left[variant.key]--
			} else {
				missing++
			}
		}
		if len(g.pairs) == 0 {
			continue
		}
		if missing > 0 || left[variant.key] > 0 {
			g.problems = append(g.problems, fmt.Sprintf("%s: %d blocks of A and %d of B have no counterpart in the other run", variant.name, missing, left[variant.key]))
		}
		groups = append(groups, g)
	}
	return groups
}

// circumstances are what is known to differ between two runs.
func circumstances(a, b *run.Run) []string {
	var notes []string
	differ := func(what string, x, y any) {
		if x != y {
			notes = append(notes, fmt.Sprintf("%s: %v in A, %v in B", what, x, y))
		}
	}
	differ("profile", a.Profile, b.Profile)
	if a.Profile == b.Profile && a.ProfileYAML != b.ProfileYAML {
		notes = append(notes, "the text of the profile is not the same")
	}
	differ("seed", a.Seed, b.Seed)
	differ("authzconf", a.Tool, b.Tool)
	differ("CPUs", a.Machine.CPUs, b.Machine.CPUs)
	differ("memory in bytes", a.Machine.MemoryBytes, b.Machine.MemoryBytes)
	differ("Go", a.Machine.Go, b.Machine.Go)
	for _, s := range a.Servers {
		for _, o := range b.Servers {
			if s.Name == o.Name {
				differ("version of "+s.Name, s.GitVersion, o.GitVersion)
				differ("gate of "+s.Name, s.Gate, o.Gate)
				differ("webhook delay of "+s.Name, text(s.WebhookDelay), text(o.WebhookDelay))
			}
		}
	}
	return notes
}
