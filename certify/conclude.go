package certify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Judge returns what the answers show. It returns an error if an answer belongs to no planned question.
func (b *Plan) Judge(answers []Answer) (*Certification, error) {
	answers = b.reread(answers)
	found, err := b.examine(answers)
	if err != nil {
		return nil, err
	}
	c := &Certification{
		Seed: b.Policy.Seed, Mode: "direct", SuiteDigest: b.Digest, PolicyDigest: b.Policy.Digest(),
		Findings: found.Sorted(allLevels()), Cases: map[string]CaseResult{},
	}
	if len(b.Policy.Grants) == 0 {
		c.Mode, c.PolicyDigest = "direct, without a policy", ""
	}
	if b.v1Only {
		c.ReviewVersions = []string{"v1"}
	}
	if b.plainForm == v1beta1 {
		c.ReviewVersions = []string{"v1beta1"}
	}
	j := &judgement{plan: b, answers: answers, own: withoutControls(answers), found: found, c: c}
	j.concludeDirect()
	j.concludeLoad()
	j.concludeCluster()
	j.concludeRevocation()
	if slices.ContainsFunc(c.Results, func(r LevelResult) bool { return r.Level == InCluster }) {
		c.Mode = "direct and in-cluster"
	}
	return c.Grant(), nil
}

// reread returns the answers with only what their raw text says.
func (b *Plan) reread(answers []Answer) []Answer {
	out := slices.Clone(answers)
	for i, a := range out {
		if v, known := b.vector(a.Vector); known && a.Stage == nil && a.Seen == nil {
			out[i] = a.reread(v)
		}
	}
	return out
}

// withoutControls returns the answers without those of the reference.
func withoutControls(answers []Answer) []Answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.Control })
}

// judgement collects the results of levels and of their parts.
type judgement struct {
	plan *Plan
	// own are the answers without those of the reference.
	answers, own []Answer
	found        *Findings
	c            *Certification
}

// conclude adds the result of a level whose parts were counted, and the results of these parts.
func (j *judgement) conclude(r LevelResult, t *tally) {
	sum, complete := t.level(r.Level)
	r.Planned, r.Reviews = sum.planned, sum.answered
	j.c.Results = append(j.c.Results, r.Conclude(complete, j.c.Findings))
	for _, p := range t.partsOf(r.Level) {
		known := j.c.Cases[p.id()]
		known.Planned, known.Answered, known.Findings = t.counts[p].planned, t.counts[p].answered, j.found.OfCase(p.id())
		j.c.Cases[p.id()] = known
	}
}

// concludeDirect adds the levels of direct mode.
func (j *judgement) concludeDirect() {
	t := j.plan.planTally()
	t.count(j.plan, j.own)
	j.c.Observation = j.plan.observe(j.own)
	unclear := j.concludeTime()
	measured := j.plan.measureConcurrency(j.own)
	for _, level := range j.plan.levels {
		r := LevelResult{Level: level}
		if level == j.plan.repeatedFor() {
			r.Concurrency, r.Inconclusive = measured, j.concludeConcurrency(measured)
		}
		r.Inconclusive = cmp.Or(r.Inconclusive, unclear[level])
		j.conclude(r, t)
	}
}

// concludeConcurrency marks the checks in which too few reviews were in flight at the same time. It returns why the
// level is inconclusive, or "".
func (j *judgement) concludeConcurrency(measured []Concurrency) (why string) {
	for _, c := range measured {
		if !c.isEnough() {
			j.c.Cases[part{j.plan.repeatedFor(), c.Check}.id()] = CaseResult{Inconclusive: c.String() + ", and half of them have to"}
			why = cmp.Or(why, c.Check+": "+c.String())
		}
	}
	return why
}

// concludeTime marks the parts in which an answer was late while the harness itself was late. It returns, by level, why
// the level is inconclusive.
func (j *judgement) concludeTime() map[CertificationLevel]string {
	unclear := map[CertificationLevel]string{}
	for _, a := range j.own {
		if !a.isTimeUnclear() {
			continue
		}
		v, known := j.plan.vector(a.Vector)
		if !known {
			continue
		}
		p, why := partOf(a.Check, v), fmt.Sprintf("an answer took %d ms while the harness needed %d ms itself: nothing can be said about time", a.Millis, a.HarnessMs)
		j.c.Cases[p.id()] = CaseResult{Inconclusive: why}
		unclear[p.level] = cmp.Or(unclear[p.level], why)
	}
	return unclear
}

// concludeLoad adds the level load, if any rate was kept up.
func (j *judgement) concludeLoad() {
	rates := j.plan.rates(j.own)
	if len(rates) == 0 {
		return
	}
	r := LevelResult{Level: Load, Measured: Measured{Rates: rates}}
	for _, rate := range rates {
		if rate.Inconclusive {
			r.Inconclusive = "the harness was late itself at a rate"
			j.c.Cases[partOfLoad(rate.check()).id()] = CaseResult{Inconclusive: "the harness was late itself: nothing can be said about time"}
		}
	}
	least := CaseResult{Planned: 1, Answered: 1, Inconclusive: lessThanLoad(rates, j.own)}
	j.c.Cases[leastLoad.id()] = least
	r.Inconclusive = cmp.Or(r.Inconclusive, least.Inconclusive)
	j.conclude(r, loadTally(j.own))
}

// concludeCluster adds the level of the chain of an API server, if anything was seen of it.
func (j *judgement) concludeCluster() {
	if !slices.ContainsFunc(j.own, func(a Answer) bool { return a.Check == inCluster }) {
		return
	}
	t := j.plan.clusterTally()
	j.countSeen(inCluster, t)
	j.conclude(LevelResult{Level: InCluster}, t)
}

// countSeen counts once each check that was carried out and can be judged.
func (j *judgement) countSeen(check string, t *tally) {
	seen := map[string]bool{}
	for _, a := range j.own {
		if a.Check != check || a.Seen == nil {
			continue
		}
		if seen[a.Vector] {
			continue
		}
		seen[a.Vector] = true
		if judged, err := j.plan.judgeSeen(a); err == nil && !judged.unclear {
			t.countOf(j.plan.partOfSeen(a)).answered++
		}
	}
}

// concludeRevocation adds the level of changes of the policy, if anything was seen of it.
func (j *judgement) concludeRevocation() {
	if !slices.ContainsFunc(j.own, func(a Answer) bool { return a.Check == revocation }) {
		return
	}
	t := newTally()
	for _, w := range windows() {
		t.countOf(part{Revocation, w.ID}).planned++
	}
	j.countSeen(revocation, t)
	r := LevelResult{Level: Revocation}
	for _, w := range windows() {
		i := slices.IndexFunc(j.own, func(a Answer) bool { return a.Check == revocation && a.Vector == w.ID })
		if i >= 0 {
			seen := j.own[i].Seen
			r.Windows = append(r.Windows, MeasuredWindow{w.ID, seen.Window, seen.Limit})
		}
	}
	slices.SortFunc(r.Windows, func(x, y MeasuredWindow) int {
		phase := func(w MeasuredWindow) string { before, _, _ := strings.Cut(w.Name, "/"); return before }
		return cmp.Or(-strings.Compare(phase(x), phase(y)), cmp.Compare(x.Millis, y.Millis), strings.Compare(x.Name, y.Name))
	})
	j.conclude(r, t)
}

// leastLoad is the part of level load that fails if less was asked than the level demands.
var leastLoad = part{Load, "as-much-as-the-level"}

// lessThanLoad returns which questions were fewer than the level demands, or "" if there were enough.
func lessThanLoad(rates []Rate, answers []Answer) string {
	isVolume := slices.ContainsFunc(answers, func(a Answer) bool { return isStage(a, volume) && a.Stage.Planned >= LoadVolume })
	isIdle := slices.ContainsFunc(answers, func(a Answer) bool { return isStage(a, idle) && a.Stage.IdleMs >= LoadIdle.Milliseconds() })
	isFast := slices.ContainsFunc(rates, func(r Rate) bool { return r.Asked >= LoadLeast })
	isLenient := slices.ContainsFunc(rates, func(r Rate) bool { return r.Limit > float64(LoadP99.Milliseconds()) })
	if whole := isVolume && isIdle && isFast && !isLenient; whole {
		return ""
	}
	return fmt.Sprintf("the level is %d reviews/s or more with 99 %% of the answers within %s, then %d more, and some after %s without any", LoadLeast, LoadP99, LoadVolume, LoadIdle)
}
