// Package model models conditional authorization as KEP-5681 describes it. It is pure, written from the text, and
// shares no code with k8s.io/apiserver.
//
//   - Evaluate is what a set of conditions amounts to. The tests have the API server around it (the union of a
//     chain, the authorization filter, what a SubjectAccessReview shows, and evaluation during admission, in the
//     lazy reading that the KEP proposes and in the eager one) and hold it to every API-server vector.
//   - Explore generates policies, requests and objects, and holds an authorizer to the first technical requirement
//     of the KEP: two phases amount to the decision that one phase with everything known amounts to.
//
// Where the text is silent: an authorizer's malformed answer counts as its failure mode, with an error, which is
// what the text says of malformed conditions; and in the eager reading a chain of which only one outcome is
// possible is concrete, which the text says of a conditional deny followed by Deny.
//
// CEL's && and || give the same whichever side is an error: error && false is false. The KEP says that they do not
// commute, and so keeps <residual> && false as a Deny condition; in CEL that is false, and nothing is lost without it.
//
// Explore computes the one phase without CEL: the generated expressions are made of parts of which is known, from
// the data, whether they are true, false or an error. So is what the first phase must answer: with what is not
// known yet as a fourth value, an answer may be conditional only if no concrete one is certain.
package model

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/reports"
)

// Subject makes the authorizer that is held to the requirement, with policies and what a Deny policy in error counts as.
type Subject func(policies []vectors.Policy, mode vectors.FailureMode) (Loaded, error)

// Loaded is an authorizer with policies. What it is asked has gone through JSON.
type Loaded interface {
	Review(vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus
	Evaluate(*vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse
}

// Exploration says what is tried.
type Exploration struct {
	Wire *wire.Revision // the revision in which it is asked
	// Subject names who is asked, for the report.
	Subject string
	Cases   int
	Seed    int64
	// One says that there is one authorizer, which holds one set of policies at a time; its only failure mode is Deny.
	One      bool
	Progress func(done int) // called now and then, from any goroutine
}

// Explored is what came of an Exploration.
type Explored struct {
	reports.Record `json:",inline"`

	Seed int64  `json:"seed"`
	Wire string `json:"wire,omitempty"` // the revision in which it was asked; seed if none is there
	// Subject names who was asked.
	Subject string `json:"subject,omitempty"`
	Cases   int    `json:"cases"`
	// ByFailureMode counts the cases by what a Deny policy in error counted as.
	ByFailureMode map[vectors.FailureMode]int `json:"byFailureMode,omitempty"`
	// ByAnswer counts the answers of the first phase, ByDecision the final ones.
	ByAnswer   map[vectors.Decision]int `json:"byAnswer"`
	ByDecision map[vectors.Decision]int `json:"byDecision"`
	// Disagreements are in the order of their cases, at most maxDisagreements.
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	// Stopped says that there were too many to go on, or that it was interrupted.
	Stopped bool `json:"stopped,omitempty"`
}

// Disagreement is a case in which two phases are not one, made small.
type Disagreement struct {
	Case   int    `json:"case"`
	Reason string `json:"reason"`
	Vector string `json:"-"` // the smallest case as a vector file, with what is right
}

const (
	requests         = 8 // of a group of cases with the same policies
	objects          = 8 // of a request
	groupSize        = requests * objects
	maxDisagreements = 10
)

// Explore tries cases until there are too many disagreements or the context ends. The same seed gives the same cases.
func Explore(ctx context.Context, subject Subject, o Exploration) (*Explored, error) {
	r := &runner{subject: subject, options: o, result: Explored{
		Seed: o.Seed, Wire: o.Wire.Name, Subject: o.Subject,
		ByFailureMode: map[vectors.FailureMode]int{}, ByAnswer: map[vectors.Decision]int{}, ByDecision: map[vectors.Decision]int{},
	}}
	group, ctx := errgroup.WithContext(ctx)
	var next, done atomic.Int64
	workers := runtime.GOMAXPROCS(0)
	if o.One {
		workers = 1
	}
	for range workers {
		group.Go(func() error {
			for ctx.Err() == nil && !r.full() {
				n := int(next.Add(1) - 1)
				if n*groupSize >= o.Cases {
					return nil
				}
				cases := min(groupSize, o.Cases-n*groupSize)
				if err := r.group(n, cases); err != nil {
					return err
				}
				if total := int(done.Add(int64(cases))); o.Progress != nil {
					o.Progress(total)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	slices.SortFunc(r.result.Disagreements, func(a, b Disagreement) int { return a.Case - b.Case })
	r.result.Stopped = r.result.Cases < o.Cases
	r.result.Conclude(len(r.result.Disagreements) > 0, r.result.Stopped)
	return &r.result, err
}

// Pages are a vector file for each disagreement.
func (e *Explored) Pages() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range e.Disagreements {
		files[fmt.Sprintf("case-%06d%s", d.Case, vectors.Suffix)] = []byte(d.Vector)
	}
	return files, nil
}

type runner struct {
	subject Subject
	options Exploration
	mu      sync.Mutex
	result  Explored
}

func (r *runner) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.result.Disagreements) >= maxDisagreements
}

// group tries cases with the same policies: some requests, with some data each.
func (r *runner) group(n, cases int) error {
	g := newGenerator(r.options.Seed, n)
	t := &triple{policies: g.policies(), mode: pick(g, vectors.FailDeny, vectors.FailNoOpinion), facts: &facts{}}
	if r.options.One {
		t.mode = vectors.FailDeny
	}
	loaded, err := r.subject(t.words(), t.mode)
	if err != nil {
		return fmt.Errorf("case %d: the policies are not loaded: %w", n*groupSize, err)
	}
	answers, decisions := map[vectors.Decision]int{}, map[vectors.Decision]int{}
	var found []Disagreement
	var status *vectors.SubjectAccessReviewStatus
	for i := range cases {
		if i%objects == 0 {
			g.request(t.facts)
			if status, err = r.ask(loaded, *t.facts.spec()); err != nil {
				return fmt.Errorf("case %d: %w", n*groupSize+i, err)
			}
		}
		g.late(t.facts)
		answers[status.Decision()]++
		decisions[t.decide(true)]++
		if reason := r.judge(t, loaded, status); reason != "" && len(found) == 0 { // one of a group is enough
			small, reason := r.shrink(t, reason)
			found = append(found, Disagreement{Case: n*groupSize + i, Reason: reason, Vector: small.vector(reason)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Cases += cases
	r.result.ByFailureMode[t.mode] += cases
	for d, c := range answers {
		r.result.ByAnswer[d] += c
	}
	for d, c := range decisions {
		r.result.ByDecision[d] += c
	}
	r.result.Disagreements = append(r.result.Disagreements, found...)
	return nil
}

func (r *runner) judge(t *triple, loaded Loaded, status *vectors.SubjectAccessReviewStatus) string {
	if err := r.options.Wire.Rules.Validate(*status, vectors.Optimized); err != nil {
		return "the answer breaks a rule: " + err.Error()
	}
	got := status.Decision()
	if want := t.firstPhase(); !slices.Contains(want, got) {
		return fmt.Sprintf("the first phase answers %s, want %s", got, want[0])
	}
	if got == vectors.Conditional {
		response, err := r.evaluate(loaded, vectors.AuthorizationConditionsRequest{ConditionSets: status.ConditionsChain, ConditionData: *t.facts.data()})
		switch {
		case err != nil:
			return "the conditions are not evaluated: " + err.Error()
		case response == nil:
			return "the conditions are answered without a response"
		case response.Allowed && response.Denied:
			return "the conditions evaluate to allowed and denied"
		}
		got = response.Decision()
	}
	if want := t.decide(true); got != want {
		return fmt.Sprintf("two phases amount to %s, one to %s", got, want)
	}
	return ""
}

// ask asks the first phase as a webhook is asked: nothing but JSON goes across.
func (r *runner) ask(loaded Loaded, spec vectors.SubjectAccessReviewSpec) (*vectors.SubjectAccessReviewStatus, error) {
	w := r.options.Wire
	return across(spec, w.AskAccess, w.DecodeAccess, loaded.Review, w.AnswerAccess, w.ReadAccess)
}

func (r *runner) evaluate(loaded Loaded, q vectors.AuthorizationConditionsRequest) (*vectors.AuthorizationConditionsResponse, error) {
	w := r.options.Wire
	return across(q, w.AskConditions, w.DecodeConditions, loaded.Evaluate, w.AnswerConditions, w.ReadConditions)
}

func across[Q, Q2, A2, A any](q Q, write func(Q) ([]byte, error), read func([]byte) (Q2, error), do func(Q2) A2, answer func(A2) ([]byte, error), understand func([]byte) (A, error)) (out A, err error) {
	raw, err := write(q)
	if err != nil {
		return out, err
	}
	asked, err := read(raw)
	if err != nil {
		return out, err
	}
	if raw, err = answer(do(asked)); err != nil {
		return out, err
	}
	return understand(raw)
}

// Evaluate is what a set of conditions amounts to, each of which is known to be true, false or an error, and
// whether there is an error to report ("Computing a concrete decision from a ConditionSet").
func Evaluate(mode vectors.FailureMode, effects []vectors.Decision, truths []vectors.Truth) (vectors.Decision, bool) {
	has := func(e vectors.Decision, t vectors.Truth) bool {
		for i := range effects {
			if effects[i] == e && truths[i] == t {
				return true
			}
		}
		return false
	}
	for _, effect := range vectors.Effects() { // the strongest first
		switch {
		case has(effect, vectors.True):
			return effect, false
		case effect == vectors.Deny && has(effect, vectors.Error):
			return failed(mode), true
		case effect == vectors.NoOpinion && has(effect, vectors.Error):
			return vectors.NoOpinion, true
		}
	}
	return vectors.NoOpinion, false
}

// failed is the decision that an error counts as.
func failed(mode vectors.FailureMode) vectors.Decision {
	if mode == vectors.FailNoOpinion {
		return vectors.NoOpinion
	}
	return vectors.Deny
}
