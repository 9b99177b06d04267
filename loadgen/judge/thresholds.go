package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Limits are what a variant has to keep. A limit that is left out is not judged.
type Limits struct {
	// ReviewsPerRequest is the most access reviews that a request may cost in the mean.
	ReviewsPerRequest float64 `json:"reviewsPerRequest,omitempty"`
	// P99 is the largest allowed p99 of the latency from the intended send.
	P99 run.Duration `json:"p99,omitempty,omitzero"`
	// SLOHeld demands the latency objectives of Kubernetes: a p99 of 1 s for a single object, and of 30 s for a list.
	SLOHeld bool `json:"sloHeld,omitempty"`
	// ErrorRate is the largest part of the answers, 0 to 1, that may be errors.
	ErrorRate *float64 `json:"errorRate,omitempty"`
	// ChecksAtOnce is how many checks of impersonation have to be open at the authorizer at the same time, at some
	// moment.
	ChecksAtOnce int `json:"checksAtOnce,omitempty"`
}

// Thresholds are what a run has to keep. They have to be declared before the run.
type Thresholds struct {
	// Limits are the limits of every variant that Variants does not name.
	Limits
	// Variants are variants with limits of their own, which replace the others, by name.
	Variants map[string]Limits `json:"variants,omitempty"`
	// Margin is the part, such as 0.05, within which the p50 of the two sides of a comparison has to be the same.
	// MarginP99 is that for the p99. 0 means that it is not judged.
	Margin    float64 `json:"margin,omitempty"`
	MarginP99 float64 `json:"marginP99,omitempty"`
	// Comparisons are comparisons with margins of their own, which replace these, by name.
	Comparisons map[string]Margins `json:"comparisons,omitempty"`
	// MinPairs and MinStarts are how many pairs a comparison was declared to have, and in how many starts of the
	// servers. If they are 0, they are 20 in 5. A statement about a difference needs what the statistics demand in any
	// case.
	MinPairs  int `json:"minPairs,omitempty"`
	MinStarts int `json:"minStarts,omitempty"`
}

// Margins are the parts within which the two sides of a comparison have to be the same. 0 means that it is not judged.
type Margins struct {
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	// CPU is about the API server's processor time above idle for each request.
	CPU float64 `json:"cpu,omitempty"`
}

// margins returns the margins of a comparison.
func (t Thresholds) margins(comparison string) Margins {
	if declared, ok := t.Comparisons[comparison]; ok {
		return declared
	}
	return Margins{P50: t.Margin, P99: t.MarginP99}
}

// These are the parts within which two equal servers have to be alike, unless the profile declares others for the A/A
// comparison. The p99 and the processor time are judged only if a margin of them is declared.
const (
	sameMargin    = 0.1
	sameMarginP99 = 0.25
	sameMarginCPU = 0.05
)

// sameMargins returns the margins of an A/A comparison.
func (t Thresholds) sameMargins(comparison string) Margins {
	own := t.Comparisons[comparison]
	m := Margins{P50: cmp.Or(own.P50, sameMargin), P99: own.P99, CPU: own.CPU}
	declared := slices.Collect(maps.Values(t.Comparisons))
	limitsP99 := slices.ContainsFunc(declared, func(m Margins) bool { return m.P99 > 0 })
	limitsCPU := slices.ContainsFunc(declared, func(m Margins) bool { return m.CPU > 0 })
	if t.MarginP99 > 0 || limitsP99 {
		m.P99 = cmp.Or(m.P99, sameMarginP99)
	}
	if limitsCPU {
		m.CPU = cmp.Or(m.CPU, sameMarginCPU)
	}
	return m
}

// declareMargins reports whether any comparison has to be within a margin.
func (t Thresholds) declareMargins() bool {
	own := slices.Collect(maps.Values(t.Comparisons))
	return t.Margin > 0 || t.MarginP99 > 0 || slices.ContainsFunc(own, func(m Margins) bool { return m != Margins{} })
}

// limitLatency reports whether latencies or their differences are limited, in addition to the objectives of Kubernetes.
func (t Thresholds) limitLatency() bool {
	all := append(slices.Collect(maps.Values(t.Variants)), t.Limits)
	return t.declareMargins() || slices.ContainsFunc(all, func(l Limits) bool { return l.P99 > 0 })
}

const defaultMinPairs = 20

// Validate returns an error that names a meaningless threshold by its path in a file. One below 0 would otherwise
// silently not be judged.
func (t Thresholds) Validate() error {
	parts := map[string]float64{"margin": t.Margin, "marginP99": t.MarginP99}
	for name, m := range t.Comparisons {
		for quantity, part := range m.parts() {
			parts["comparisons."+name+"."+quantity] = part
		}
	}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		if part := parts[path]; !(part >= 0 && part < 1) {
			return fmt.Errorf("%s: %g is not a part from 0 to below 1", path, part)
		}
	}
	if t.MinPairs < 0 || t.MinStarts < 0 {
		return fmt.Errorf("minPairs, minStarts: %d, %d: one is below 0", t.MinPairs, t.MinStarts)
	}
	if err := t.Limits.validate(""); err != nil {
		return err
	}
	for _, variant := range slices.Sorted(maps.Keys(t.Variants)) {
		if err := t.Variants[variant].validate("variants." + variant + "."); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) validate(path string) error {
	switch {
	case !(l.ReviewsPerRequest >= 0) || math.IsInf(l.ReviewsPerRequest, 0):
		return fmt.Errorf("%sreviewsPerRequest: %g is not a number of reviews", path, l.ReviewsPerRequest)
	case l.ChecksAtOnce < 0:
		return fmt.Errorf("%schecksAtOnce: %d is below 0", path, l.ChecksAtOnce)
	case l.P99 < 0:
		return fmt.Errorf("%sp99: %s is below 0", path, describeDuration(l.P99))
	case l.ErrorRate != nil && !(*l.ErrorRate >= 0 && *l.ErrorRate <= 1):
		return fmt.Errorf("%serrorRate: %g is not a part from 0 to 1", path, *l.ErrorRate)
	}
	return nil
}

// design is how many pairs of blocks a comparison has, and in how many starts of the servers.
type design struct{ pairs, starts int }

func (d design) String() string {
	return reports.Plural(d.pairs, "pair") + " in " + reports.Plural(d.starts, "start")
}

func (d design) covers(least design) bool { return d.pairs >= least.pairs && d.starts >= least.starts }

// declared returns the smallest design that a comparison was declared to have.
func (t Thresholds) declared() design {
	return design{cmp.Or(t.MinPairs, defaultMinPairs), cmp.Or(t.MinStarts, statistics.MinStarts)}
}

// neededForClaim returns what one statement of the given number of tests needs: what was declared, and at least what
// the statistics demand.
func (t Thresholds) neededForClaim(tests int) design {
	d := t.declared()
	return design{max(d.pairs, statistics.PairsNeeded(tests)), max(d.starts, statistics.MinStarts)}
}

// MayClaim reports whether something may be said about differences in a run with these numbers of pairs, starts, and
// comparisons that are not A/A.
func (t Thresholds) MayClaim(pairs, starts, comparisons int) bool {
	if t.declareMargins() {
		return true
	}
	return comparisons > 0 && design{pairs, starts}.covers(t.neededForClaim(testsEach*comparisons))
}

// LimitsOf returns the limits of a variant.
func (t Thresholds) LimitsOf(variant string) Limits {
	if l, ok := t.Variants[variant]; ok {
		return l
	}
	return t.Limits
}

// ThresholdsOf returns the thresholds of a profile. The pairs and starts that its file declares count, whatever a flag
// asked for: with fewer, no claim about latency can be made. The objectives of Kubernetes are judged in every profile.
func ThresholdsOf(p *profile.Profile) Thresholds {
	t := Thresholds{
		Limits: Limits{SLOHeld: !p.Counts}, Variants: map[string]Limits{}, Comparisons: map[string]Margins{},
		MinPairs: p.Declared.Pairs, MinStarts: p.Declared.Starts,
	}
	for _, limit := range p.Thresholds {
		t.Variants[limit.Variant] = Limits{
			ErrorRate:         limit.ErrorRate,
			ReviewsPerRequest: ptr.Deref(limit.ReviewsPerRequest, 0),
			P99:               run.Duration(ptr.Deref(limit.P99, 0)),
			SLOHeld:           !p.Counts,
			ChecksAtOnce:      limit.ChecksAtOnce,
		}
	}
	for _, c := range p.Comparisons {
		t.Comparisons[c.Name] = Margins(c.Margins)
	}
	return t
}
