package certify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
)

// Judge returns what the answers show. It returns an error if an answer belongs to no planned question.
func (b *Plan) Judge(answers []Answer) (*Certification, error) {
	answers = b.readBodiesAgain(answers)
	findings, err := b.examine(answers)
	if err != nil {
		return nil, err
	}
	c := &Certification{
		Seed: b.Policy.Seed, Mode: "direct", SuiteDigest: b.Digest, PolicyDigest: b.Policy.Digest(),
		Findings: findings.Sorted(allLevels()), Cases: map[string]CaseResult{},
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
	j := &judgement{plan: b, answers: answers, ownAnswers: withoutControls(answers), findings: findings, certification: c}
	j.concludeDirect()
	j.concludeLoad()
	j.concludeCluster()
	j.concludeRevocation()
	if slices.ContainsFunc(c.Results, func(r LevelResult) bool { return r.Level == InCluster }) {
		c.Mode = "direct and in-cluster"
	}
	return c.Grant(), nil
}

// readBodiesAgain returns the answers with only what their bodies say.
func (b *Plan) readBodiesAgain(answers []Answer) []Answer {
	return seq.MapInParallel(answers, func(a Answer) Answer {
		hasBody := a.Stage == nil && a.ClusterObservation == nil
		if v, isKnown := b.findQuestion(a.Vector); isKnown && hasBody {
			return a.readBodyAgain(v)
		}
		return a
	})
}

// withoutControls returns the answers without those of the reference.
func withoutControls(answers []Answer) []Answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.Control })
}

// judgement collects the results of levels and of their parts.
type judgement struct {
	plan *Plan
	// ownAnswers are the answers without those of the reference.
	answers, ownAnswers []Answer
	findings            *Findings
	certification       *Certification
}

// conclude adds the result of a level whose parts were counted, and the results of these parts.
func (j *judgement) conclude(r LevelResult, t *tally) {
	sum, complete := t.sumLevel(r.Level)
	r.Planned, r.Reviews = sum.planned, sum.answered
	j.certification.Results = append(j.certification.Results, r.Conclude(complete, j.certification.Findings))
	for _, p := range t.partsOf(r.Level) {
		result := j.certification.Cases[p.id()]
		result.Planned, result.Answered, result.Findings = t.counts[p].planned, t.counts[p].answered, j.findings.OfCase(p.id())
		j.certification.Cases[p.id()] = result
	}
}

// concludeDirect adds the levels of direct mode.
func (j *judgement) concludeDirect() {
	t := j.plan.planTally()
	t.addAnswers(j.plan, j.ownAnswers)
	j.certification.Observation = j.plan.observe(j.ownAnswers)
	unclear := j.concludeTime()
	concurrencies := j.plan.measureConcurrency(j.ownAnswers)
	for _, level := range j.plan.levels {
		r := LevelResult{Level: level}
		if level == j.plan.repeatLevel() {
			r.Concurrency, r.Inconclusive = concurrencies, j.concludeConcurrency(concurrencies)
		}
		r.Inconclusive = cmp.Or(r.Inconclusive, unclear[level])
		j.conclude(r, t)
	}
}

// concludeConcurrency marks the checks in which too few reviews were in flight at the same time. It returns why the
// level is inconclusive, or "".
func (j *judgement) concludeConcurrency(concurrencies []Concurrency) (why string) {
	for _, c := range concurrencies {
		if !c.isEnough() {
			j.certification.Cases[part{j.plan.repeatLevel(), c.Check}.id()] = CaseResult{
				Inconclusive: c.String() + ", and half of them have to",
			}
			why = cmp.Or(why, c.Check+": "+c.String())
		}
	}
	return why
}

// concludeTime marks the parts in which an answer was late while the harness itself was late. It returns, by level, why
// the level is inconclusive.
func (j *judgement) concludeTime() map[CertificationLevel]string {
	unclear := map[CertificationLevel]string{}
	for _, a := range j.ownAnswers {
		if !a.isTimeUnclear() {
			continue
		}
		v, isKnown := j.plan.findQuestion(a.Vector)
		if !isKnown {
			continue
		}
		p := partOf(a.Check, v)
		why := fmt.Sprintf(
			"an answer took %d ms while the harness needed %d ms itself: nothing can be said about time",
			a.Millis,
			a.HarnessMs,
		)
		j.certification.Cases[p.id()] = CaseResult{Inconclusive: why}
		unclear[p.level] = cmp.Or(unclear[p.level], why)
	}
	return unclear
}

// concludeLoad adds the level load, if any rate was kept up.
func (j *judgement) concludeLoad() {
	rates := j.plan.rates(j.ownAnswers)
	if len(rates) == 0 {
		return
	}
	r := LevelResult{Level: Load, Measurements: Measurements{Rates: rates}}
	for _, rate := range rates {
		if rate.Inconclusive {
			r.Inconclusive = "the harness was late itself at a rate"
			j.certification.Cases[partOfLoad(rate.check()).id()] = CaseResult{
				Inconclusive: "the harness was late itself: nothing can be said about time",
			}
		}
	}
	minimum := CaseResult{Planned: 1, Answered: 1, Inconclusive: missingLoad(rates, j.ownAnswers)}
	j.certification.Cases[minimumLoad.id()] = minimum
	r.Inconclusive = cmp.Or(r.Inconclusive, minimum.Inconclusive)
	j.conclude(r, loadTally(j.ownAnswers))
}

// concludeCluster adds the level of the chain of an API server, if anything was seen of it.
func (j *judgement) concludeCluster() {
	if !slices.ContainsFunc(j.ownAnswers, func(a Answer) bool { return a.Check == inCluster }) {
		return
	}
	t := j.plan.clusterTally()
	j.countObserved(inCluster, t)
	j.conclude(LevelResult{Level: InCluster}, t)
}

// countObserved counts once each check that was carried out and can be judged.
func (j *judgement) countObserved(check string, t *tally) {
	isCounted := map[string]bool{}
	for _, a := range j.ownAnswers {
		if a.Check != check || a.ClusterObservation == nil {
			continue
		}
		if isCounted[a.Vector] {
			continue
		}
		isCounted[a.Vector] = true
		if result, err := j.plan.judgeObservation(a); err == nil && !result.unclear {
			t.countOf(j.plan.partOfObservation(a)).answered++
		}
	}
}

// concludeRevocation adds the level of changes of the policy, if anything was seen of it.
func (j *judgement) concludeRevocation() {
	if !slices.ContainsFunc(j.ownAnswers, func(a Answer) bool { return a.Check == revocation }) {
		return
	}
	t := newTally()
	for _, w := range windows() {
		t.countOf(part{Revocation, w.ID}).planned++
	}
	j.countObserved(revocation, t)
	r := LevelResult{Level: Revocation}
	for _, w := range windows() {
		i := slices.IndexFunc(j.ownAnswers, func(a Answer) bool { return a.Check == revocation && a.Vector == w.ID })
		if i >= 0 {
			observation := j.ownAnswers[i].ClusterObservation
			r.Windows = append(r.Windows, MeasuredWindow{w.ID, observation.Window, observation.Limit})
		}
	}
	slices.SortFunc(r.Windows, func(x, y MeasuredWindow) int {
		phase := func(w MeasuredWindow) string { before, _, _ := strings.Cut(w.Name, "/"); return before }
		return cmp.Or(-strings.Compare(phase(x), phase(y)), cmp.Compare(x.Millis, y.Millis), strings.Compare(x.Name, y.Name))
	})
	j.conclude(r, t)
}

// minimumLoad is the part of level load that fails if less was asked than the level demands.
var minimumLoad = part{Load, "as-much-as-the-level"}

// missingLoad returns which questions were fewer than the level demands, or "" if there were enough.
func missingLoad(rates []Rate, answers []Answer) string {
	isVolume := slices.ContainsFunc(answers, func(a Answer) bool { return isStage(a, volumeCheck) && a.Stage.Planned >= LoadVolume })
	isIdle := slices.ContainsFunc(answers, func(a Answer) bool { return isStage(a, idleCheck) && a.Stage.IdleMs >= LoadIdle.Milliseconds() })
	isFast := slices.ContainsFunc(rates, func(r Rate) bool { return r.TargetRate >= LoadMinimum })
	isLenient := slices.ContainsFunc(rates, func(r Rate) bool { return r.Limit > float64(LoadP99.Milliseconds()) })
	isComplete := isVolume && isIdle && isFast && !isLenient
	if isComplete {
		return ""
	}
	return fmt.Sprintf(
		"the level is %d reviews/s or more with 99 %% of the answers within %s, then %d more, and some after %s without any",
		LoadMinimum,
		LoadP99,
		LoadVolume,
		LoadIdle,
	)
}
