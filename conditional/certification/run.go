package certification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Exchange is one question and its answer.
type Exchange struct {
	Vector string `json:"vector"`
	Step   int    `json:"step"`
	// Variant is which question of the step it was.
	Variant Variant `json:"variant,omitempty"`
	HTTP    int     `json:"http,omitempty"`
	// Fault is what went wrong on the way.
	Fault string `json:"fault,omitempty"`
	// Answer is the body, as text if it is not JSON.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// Variant is a question that a step asks beside its own.
type Variant string

// The variants.
const (
	// Asked is the step itself.
	Asked Variant = ""
	// Again repeats it.
	Again Variant = "again"
	// Unaware asks as a client that knows no conditions.
	Unaware Variant = "unaware"
	// Foreign sends the conditions back under a type that nobody knows.
	Foreign Variant = "foreign"
)

// foreignType is of no authorizer.
const foreignType = "certify.authzconf.dev/unknown"

// Loader hands policies over, all at once; nil if nobody can.
type Loader func(context.Context, []vectors.Policy) error

// Options say what is certified.
type Options struct {
	// Authorize and Conditions are how the two endpoints are reached.
	Authorize, Conditions *certify.Webhook
	Plan                  *Plan
	Load                  Loader
}

// Certify asks everything and judges what came back. Its error is about the harness.
func Certify(ctx context.Context, o Options) (*certify.Run[Exchange], error) {
	r := runner{Options: o}
	var err error
	if r.authorize, err = o.Authorize.Poster(); err != nil {
		return nil, err
	}
	defer r.authorize.Close()
	if r.conditions, err = o.Conditions.Poster(); err != nil {
		return nil, err
	}
	defer r.conditions.Close()
	return certify.Perform(ctx, o.Plan, nil, func(ctx context.Context, all *certify.Runner[Exchange]) (err error) {
		r.Runner = all
		all.Step(Step, func() { err = r.everything(ctx) })
		return err
	})
}

// Step is the one step of a run, which measures it whole.
const Step = "exchanges"

type runner struct {
	Options
	*certify.Runner[Exchange]
	authorize, conditions *certify.Poster
}

// everything asks all vectors, as long as it makes sense.
func (r *runner) everything(ctx context.Context) error {
	if r.Load != nil {
		if err := r.Load(ctx, r.Plan.Policies()); err != nil {
			return err
		}
	}
	for i := range r.Plan.entries {
		e := &r.Plan.entries[i]
		if e.level == Atomic && r.Load == nil {
			continue
		}
		if err := errors.Join(r.vector(ctx, e), ctx.Err()); err != nil {
			return err
		}
		if r.Ended() {
			break
		}
	}
	return nil
}

// vector asks one vector.
func (r *runner) vector(ctx context.Context, e *entry) (err error) {
	if e.level == Atomic {
		defer func() { err = errors.Join(err, r.Load(ctx, r.Plan.Policies())) }()
	}
	chains := map[int][]vectors.ConditionSet{}
	for i, s := range e.Steps {
		switch {
		case s.SetPolicies != nil:
			if err := r.Load(ctx, r.Plan.policies(e, s.SetPolicies)); err != nil {
				return err
			}
		case s.Authorize != nil:
			chains[i] = r.review(ctx, e, i, s.Authorize.Spec)
		case chains[s.Evaluate.Of] != nil:
			r.evaluate(ctx, e, i, s.Evaluate.Data, chains[s.Evaluate.Of])
		}
	}
	return nil
}

// review asks the first phase, and returns the conditions.
func (r *runner) review(ctx context.Context, e *entry, step int, spec vectors.SubjectAccessReviewSpec) []vectors.ConditionSet {
	ask := func(variant Variant) []byte {
		sent := spec
		if variant == Unaware {
			sent.ConditionalAuthorization = nil
		}
		return r.post(ctx, r.authorize, Exchange{Vector: e.id, Step: step, Variant: variant}, map[string]any{
			"apiVersion": vectors.AccessVersion, "kind": vectors.AccessKind, "metadata": map[string]any{}, "spec": sent,
		})
	}
	answer := ask(Asked)
	ask(Again)
	ask(Unaware)
	var in vectors.SubjectAccessReview
	if json.Unmarshal(answer, &in) != nil || len(in.Status.ConditionsChain) == 0 {
		return nil
	}
	return in.Status.ConditionsChain
}

// evaluate asks the second.
func (r *runner) evaluate(ctx context.Context, e *entry, step int, data vectors.ConditionData, chain []vectors.ConditionSet) {
	foreign := make([]vectors.ConditionSet, len(chain))
	for i, set := range chain {
		foreign[i] = set
		foreign[i].Conditions = nil
		for _, c := range set.Conditions {
			c.Type = foreignType
			foreign[i].Conditions = append(foreign[i].Conditions, c)
		}
	}
	for _, v := range []struct {
		variant Variant
		sets    []vectors.ConditionSet
	}{{Asked, chain}, {Foreign, foreign}} {
		r.post(ctx, r.conditions, Exchange{Vector: e.id, Step: step, Variant: v.variant}, map[string]any{
			"apiVersion": vectors.ConditionsVersion, "kind": vectors.ConditionsKind, "request": vectors.AuthorizationConditionsRequest{ConditionSets: v.sets, ConditionData: data},
		})
	}
}

// post asks and writes down.
func (r *runner) post(ctx context.Context, to *certify.Poster, x Exchange, body any) []byte {
	raw, err := json.Marshal(body)
	if err != nil {
		x.Fault = "harness"
		r.Answers = append(r.Answers, x)
		return nil
	}
	var answer []byte
	x.HTTP, answer, x.Fault = to.Post(ctx, raw)
	switch {
	case json.Valid(answer):
		x.Answer = answer
	case len(answer) > 0:
		x.Answer, _ = json.Marshal(fmt.Sprintf("%.200q", answer))
	}
	r.Continue(x.Fault)
	r.Answers = append(r.Answers, x)
	return answer
}
