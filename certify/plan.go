// Package certify judges an authorizer's webhook without a cluster. It asks what API servers would ask, and also what
// no correct authorizer allows, and compares every answer with what a neutral policy says.
//
// makePlan makes the questions. Those of level core that API servers ask in scenarios are made by collectReviews, and
// most others by package policy, which has the grants for them as well (policy.Cases). The questions about the form of
// reviews are in probes.go, and those of level safe in safe_questions.go.
package certify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Plan is everything that is asked with one seed, and the policy by which it is judged.
type Plan struct {
	Policy *policy.Policy
	// Scenario are the reviews of the scenarios, and Probes are all other questions. Both are slices of all, because
	// there are tens of thousands of questions and a copy would take memory.
	Scenario, Probes []Question
	// Digest is the digest of all questions.
	Digest string

	// levels are the levels of the questions, in their order.
	levels []CertificationLevel
	// concurrentCount and driftCount are concurrentReviews and driftReviews, or smaller numbers in tests.
	concurrentCount, driftCount int
	// all are the questions. byID has the index of each of them.
	all  []Question
	byID map[string]int
	// v1Only leaves out the questions in v1beta1. plainForm is the form of the other questions: v1, unless v1 is left
	// out.
	v1Only    bool
	plainForm Form
	// scenarios are the scenarios from which the plan was made, with their own names.
	scenarios []*scenarios.Scenario
	// cell is the API server that checks in a cluster are for, and checks are these checks.
	cell   verdicts.Cell
	checks map[string]clusterCheck
}

// Sample returns a plan with every nth question about decisions, in which fewer questions are asked again. It finds
// authorizers that are wrong in every answer, and shows that a correct one is right. It keeps pairs, and questions with
// one of the given reasons.
func (b *Plan) Sample(n int, reasons ...string) *Plan {
	out := *b
	out.concurrentCount, out.driftCount = 200, 500
	isWanted := func(v Question) bool {
		isNamed := slices.Contains(reasons, v.Reason)
		return v.Level == Robust || v.Paired || isNamed
	}
	sample := func(all []Question) (questions []Question) {
		for i, v := range all {
			if i%n == 0 || isWanted(v) {
				questions = append(questions, v)
			}
		}
		return questions
	}
	out.setQuestions(sample(b.Scenario), sample(b.Probes))
	return &out
}

// NewPlan returns the plan for a seed.
func NewPlan(set *scenarios.Set, seed int64) (*Plan, error) { return makePlan(set.All(), seed) }

// makePlan makes the questions of the levels of direct mode from scenarios and the policy of a seed.
func makePlan(all []*scenarios.Scenario, seed int64) (*Plan, error) {
	bound := policy.Bound(all, seed)
	b := &Plan{
		Policy:          policy.New(bound, seed),
		levels:          Levels(),
		concurrentCount: concurrentReviews,
		driftCount:      driftReviews,
		scenarios:       all,
	}
	reviews, err := collectReviews(bound)
	if err != nil {
		return nil, err
	}
	for i, r := range reviews {
		v := Question{
			ID:     fmt.Sprintf("scenario/%s#%d", r.scenario, i),
			Level:  Core,
			Spec:   r.spec,
			Expect: b.Policy.Decide(r.spec),
			Reason: "does-not-allow-what-is-granted",
		}
		if v.Expect != scenarios.Allow {
			v.Reason = "allows-what-is-not-granted"
		}
		b.Scenario = append(b.Scenario, v)
	}
	relations := b.relationQuestions()
	b.setQuestions(
		b.Scenario,
		relations,
		b.specialQuestions(),
		b.incompleteQuestions(),
		b.derivedQuestions(),
		b.lookalikeQuestions(),
		b.versionQuestions(relations),
		b.robustQuestions(),
	)
	return b, b.seal()
}

// withoutV1beta1 returns the plan for an authorizer that serves only v1.
func (b *Plan) withoutV1beta1() *Plan {
	out := *b
	out.v1Only = true
	return &out
}

// leavesOut reports whether a question is not asked.
func (b *Plan) leavesOut(v Question) bool { return b.v1Only && v.Form == v1beta1 }

// Suite returns the digest of everything that is asked.
func (b *Plan) Suite() string { return b.Digest }

// All returns the questions of the plan.
func (b *Plan) All() []Question { return b.all }

// setQuestions sets the reviews of the scenarios, and the probes.
func (b *Plan) setQuestions(scenarioReviews []Question, probes ...[]Question) {
	b.all, b.byID = slices.Concat(append([][]Question{scenarioReviews}, probes...)...), map[string]int{}
	b.Scenario, b.Probes = b.all[:len(scenarioReviews):len(scenarioReviews)], b.all[len(scenarioReviews):]
	for i := range b.all {
		b.byID[b.all[i].ID] = i
	}
}

// findQuestion returns a question by its ID.
func (b *Plan) findQuestion(id string) (v Question, isKnown bool) {
	i, isKnown := b.byID[id]
	if isKnown {
		v = b.all[i]
	}
	return v, isKnown
}

// seal computes the digest. It also checks that each question agrees with the policy, because otherwise every
// authorizer would be found wrong.
func (b *Plan) seal() error {
	h := sha256.New()
	for i, v := range b.all {
		if b.byID[v.ID] != i {
			return fmt.Errorf("there are two questions %s", v.ID)
		}
		if d := b.Policy.Decide(v.Spec); v.Expect != "" && d != v.Expect {
			return fmt.Errorf("question %s expects %s, and the policy says %s", v.ID, v.Expect, d)
		}
		body, err := v.body()
		if err != nil {
			return fmt.Errorf("question %s: %w", v.ID, err)
		}
		reasonOfFaults := ""
		if v.ExplainsFaults {
			reasonOfFaults = v.Reason
		}
		_, _ = fmt.Fprintf(h, "%s %s %s %s %s %d\n", v.ID, v.Level, v.Expect, v.Reason, reasonOfFaults, len(body))
		_, _ = h.Write(body)
	}
	b.Digest = hex.EncodeToString(h.Sum(nil))
	return nil
}
