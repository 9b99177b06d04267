package certify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Measured is what some levels have beside findings.
type Measured struct {
	// NotSupported says why the level cannot be tried with what the vendor gives.
	NotSupported string `json:"notSupported,omitempty"`
	// Inconclusive says why nothing can be said although all was tried.
	Inconclusive string `json:"inconclusive,omitempty"`
	// Rates are those of level load, Windows those of level revocation.
	Rates   []Rate           `json:"rates,omitempty"`
	Windows []MeasuredWindow `json:"windows,omitempty"`
}

// MeasuredWindow is how long it took until a change of policy was noticed.
type MeasuredWindow struct {
	Name   string `json:"name"`
	Millis int64  `json:"ms"`
	Limit  int64  `json:"limitMs"`
}

// Conclude grants the level if it is complete and nothing stands against it.
func (r LevelResult) Conclude(complete bool, findings []Finding) LevelResult {
	for _, f := range findings {
		if f.Level == r.Level && !f.Advice {
			r.Findings++
		}
	}
	r.Granted = complete && r.Findings == 0 && r.Planned > 0 && r.Inconclusive == "" && r.NotSupported == ""
	return r
}

// Verdict says in a word what became of the level.
func (r LevelResult) Verdict() string {
	switch {
	case r.Granted:
		return "yes"
	case r.Reviews == 0 && r.Findings == 0 && r.NotSupported == "":
		return "not tried"
	case r.Inconclusive != "" && r.Findings == 0:
		return "inconclusive"
	}
	return "no"
}

// measured are the results of the levels beyond direct mode that were tried.
func (b *Plan) measured(answers []Answer, findings []Finding) (out []LevelResult) {
	rates, planned, answered := b.rates(ownOnly(answers))
	soaked := slices.IndexFunc(rates, func(r Rate) bool { return r.Soak > 0 })
	if load := slices.DeleteFunc(slices.Clone(rates), func(r Rate) bool { return r.Soak > 0 }); len(load) > 0 {
		r := LevelResult{Level: Load, Planned: planned, Reviews: answered, Measured: Measured{Rates: load}}
		r.Inconclusive = cmp.Or(late(load), lessThanLoad(load, answers))
		out = append(out, r.Conclude(answered >= planned, findings))
	}
	if soaked >= 0 {
		s := rates[soaked]
		r := LevelResult{Level: Soak, Planned: int(s.Soak * float64(s.Asked)), Measured: Measured{Rates: []Rate{s}, Inconclusive: late([]Rate{s})}}
		r.Reviews = len(slices.DeleteFunc(ownOnly(answers), func(a Answer) bool { return a.Check != soak || a.Stage != nil }))
		if s.Soak < SoakLength.Seconds() || s.Asked < SoakRate {
			r.Inconclusive = cmp.Or(r.Inconclusive, fmt.Sprintf("the level is %s at %d reviews/s or more", SoakLength, SoakRate))
		}
		out = append(out, r.Conclude(r.Reviews >= r.Planned, findings))
	}
	seen := map[about]bool{}
	results := map[string]*LevelResult{}
	for _, a := range answers {
		if a.Seen == nil || a.Control {
			continue
		}
		if results[a.Check] == nil {
			results[a.Check] = &LevelResult{Level: CertificationLevel(a.Check)}
		}
		r := results[a.Check]
		switch key := (about{a.Check, a.Vector}); {
		case a.Seen.Cell != nil:
		case a.Seen.NotSupported != "":
			r.NotSupported = a.Seen.NotSupported
		case !seen[key]:
			seen[key] = true
			if j, err := b.judgeSeen(a); err == nil && !j.unclear {
				r.Reviews++
			}
			if a.Check == revocation {
				r.Windows = append(r.Windows, MeasuredWindow{a.Vector, a.Seen.Window, a.Seen.Limit})
			}
		}
	}
	needed := map[string]int{inCluster: 0, revocation: len(windows())}
	if results[inCluster] != nil {
		needed[inCluster] = len(b.clusterChecks())
	}
	for _, check := range []string{inCluster, revocation} {
		if r := results[check]; r != nil {
			slices.SortFunc(r.Windows, func(x, y MeasuredWindow) int {
				return cmp.Or(-strings.Compare(x.Name[:6], y.Name[:6]), cmp.Compare(x.Millis, y.Millis), strings.Compare(x.Name, y.Name))
			})
			r.Planned = needed[check]
			out = append(out, r.Conclude(r.Reviews >= r.Planned, findings))
		}
	}
	return out
}

func late(rates []Rate) string {
	if slices.ContainsFunc(rates, func(r Rate) bool { return r.Inconclusive }) {
		return "the harness was late itself at a rate"
	}
	return ""
}

// lessThanLoad says what was asked for that is less than the level.
func lessThanLoad(rates []Rate, answers []Answer) string {
	enough := map[string]bool{}
	for _, a := range answers {
		if s := a.Stage; s != nil && !a.Control {
			enough["volume"] = enough["volume"] || a.Check == volume && s.Planned >= LoadVolume
			enough["idle"] = enough["idle"] || a.Check == idle && s.IdleMs >= LoadIdle.Milliseconds()
		}
	}
	for _, r := range rates {
		enough["rate"] = enough["rate"] || r.Asked >= LoadLeast
		enough["limit"] = enough["limit"] || r.Limit > float64(LoadP99.Milliseconds())
	}
	if enough["volume"] && enough["idle"] && enough["rate"] && !enough["limit"] {
		return ""
	}
	return fmt.Sprintf("the level is %d reviews/s or more with 99 %% of the answers within %s, then %d more, and some after %s without any", LoadLeast, LoadP99, LoadVolume, LoadIdle)
}

// Terms are what a badge says beside the level, for those that are measured.
func (r LevelResult) Terms() string {
	switch {
	case r.Level == Soak:
		return fmt.Sprintf(" %.0f min at %d/s", r.Rates[0].Soak/60, r.Rates[0].Asked)
	case r.Level == Load:
		best := slices.MaxFunc(r.Rates, func(x, y Rate) int { return cmp.Compare(x.Asked, y.Asked) })
		return fmt.Sprintf(" %d/s, p99 < %.0f ms", best.Asked, best.Limit)
	case len(r.Windows) > 0:
		longest := slices.MaxFunc(r.Windows, func(x, y MeasuredWindow) int { return cmp.Compare(x.Limit, y.Limit) })
		return fmt.Sprintf(" within %.0f s", float64(longest.Limit)/1000)
	}
	return ""
}

// ownOnly leaves out what the reference answered.
func ownOnly(answers []Answer) []Answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.Control })
}

// Lines say in words what was measured, and why there may be nothing.
func (r LevelResult) Lines() (out []string) {
	line := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("%s: "+format, append([]any{r.Level}, args...)...))
	}
	if r.NotSupported != "" {
		line("not supported: %s", r.NotSupported)
	}
	if r.Inconclusive != "" {
		line("inconclusive: %s", r.Inconclusive)
	}
	for _, a := range r.Rates {
		line("%d reviews/s: %.1f achieved, p50 %.2f ms, p99 %.2f ms (limit %.2f ms), max %.2f ms, %d wrong, %d late, %d dropped",
			a.Asked, a.Achieved, a.P50, a.P99, a.Limit, a.Max, a.Wrong, a.Late, a.Dropped)
		if a.Soak > 0 { // the only one of its level
			line("%.0f s, p99 of each tenth in ms %v, memory in bytes %v (0 is not known)", a.Soak, a.P99s, a.Memory)
		}
	}
	for _, w := range r.Windows {
		line("%s: noticed after %d ms (limit %d ms)", w.Name, w.Millis, w.Limit)
	}
	return out
}
