package certify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
)

// CertificationLevel is a level that an authorizer can reach. Each is granted independently of the others.
type CertificationLevel string

// Safe is the level below all others. It needs no policy in the authorizer: nobody was granted anything, so nothing may
// be allowed. It is tried by itself (NewSafePlan).
const Safe CertificationLevel = "safe"

// These are the levels that direct mode grants.
const (
	// Core is about the decisions that API servers ask for today.
	Core CertificationLevel = "core"
	// NoOvergrant is the level at which an authorizer allows nothing beyond the policy.
	NoOvergrant CertificationLevel = "no-overgrant"
	// Robust is about faults, size, concurrency and time.
	Robust CertificationLevel = "robust"
)

// These are the levels that are tried only on request.
const (
	// Load is about right answers in time at stated rates.
	Load CertificationLevel = "load"
	// InCluster is about the chain of a real API server: position, failure policy, caches, impersonation from end to
	// end.
	InCluster CertificationLevel = "in-cluster"
	// Revocation is about how long something is still allowed after the grant was taken away. It needs a way to load
	// another policy.
	Revocation CertificationLevel = "revocation"
)

// Levels returns the levels that are always tried, in order. allLevels has those that need a flag, too.
func Levels() []CertificationLevel { return []CertificationLevel{Core, NoOvergrant, Robust} }

// allLevels returns all levels, in the order of reports.
func allLevels() []CertificationLevel {
	return slices.Concat([]CertificationLevel{Safe}, Levels(), []CertificationLevel{Load, InCluster, Revocation})
}

// LevelResult is the result of a level.
type LevelResult struct {
	Level   CertificationLevel
	Granted bool
	// Reviews is how many of the Planned reviews were judged.
	Reviews, Planned int
	// Findings is how many kinds of findings keep the level from being granted.
	Findings int
	Measurements
}

// Measurements are what some levels have in addition to findings.
type Measurements struct {
	// NotSupported says why the level cannot be tried with what the vendor provides.
	NotSupported string
	// Inconclusive says why nothing can be said although everything was tried.
	Inconclusive string
	// Concurrency is how many reviews were in flight in the checks that ask questions at the same time.
	Concurrency []Concurrency
	// Rates are those of level load, and Windows those of level revocation.
	Rates   []Rate
	Windows []MeasuredWindow
}

// MeasuredWindow is how long it took until decisions showed a change of policy, in milliseconds.
type MeasuredWindow struct {
	Name          string
	Millis, Limit int64
}

// Conclude grants the level if it is complete and no finding is against it.
func (r LevelResult) Conclude(complete bool, findings []Finding) LevelResult {
	r.Findings += seq.Count(findings, func(f Finding) bool { return f.Level == r.Level && !f.Advice })
	isTried := r.Planned > 0 && r.Inconclusive == "" && r.NotSupported == ""
	r.Granted = complete && r.Findings == 0 && isTried
	return r
}

// Verdict returns the result of the level in a word.
func (r LevelResult) Verdict() string {
	nothing := r.Reviews == 0 && r.Findings == 0 && r.NotSupported == ""
	switch {
	case r.Granted:
		return "yes"
	case nothing:
		return "not tried"
	case r.Inconclusive != "" && r.Findings == 0:
		return "inconclusive"
	}
	return "no"
}

// Terms returns what has to be added to the name of a level that is measured, such as " 500/s, p99 < 100 ms".
func (r LevelResult) Terms() string {
	switch {
	case r.Level == Load && len(r.Rates) > 0:
		best := slices.MaxFunc(r.Rates, func(x, y Rate) int { return cmp.Compare(x.TargetRate, y.TargetRate) })
		return fmt.Sprintf(" %d/s for %s, p99 < %.0f ms", best.TargetRate, best.length(), best.Limit)
	case len(r.Windows) > 0:
		longest := slices.MaxFunc(r.Windows, func(x, y MeasuredWindow) int { return cmp.Compare(x.Limit, y.Limit) })
		return fmt.Sprintf(" within %.0f s", float64(longest.Limit)/1000)
	}
	return ""
}
