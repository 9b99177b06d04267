package certification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Context is the context of a webhook's kubeconfig that reaches the endpoint for
// AuthorizationConditionsReview, unless another is named.
const Context = "authorization-conditions"

// Exchange is one question and its answer.
type Exchange struct {
	Vector string `json:"vector"`
	Step   int    `json:"step"`
	// Variant is which question of the step it was.
	Variant Variant `json:"variant,omitempty"`
	HTTP    int     `json:"http,omitempty"`
	// Fault is what went wrong on the way.
	Fault string `json:"fault,omitempty"`
	// Answer is the body, as text if it is no JSON.
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
	Book                  *Book
	Load                  Loader
}

// Run asks everything, and says what came back and how long it took. Its error is
// about the harness.
func Run(ctx context.Context, o Options) (_ []Exchange, took time.Duration, err error) {
	r := runner{Options: o}
	if r.authorize, err = o.Authorize.Poster(); err != nil {
		return nil, 0, err
	}
	defer r.authorize.Close()
	if r.conditions, err = o.Conditions.Poster(); err != nil {
		return nil, 0, err
	}
	defer r.conditions.Close()
	began := time.Now()
	if o.Load != nil {
		if err := o.Load(ctx, o.Book.Policies()); err != nil {
			return nil, 0, err
		}
	}
	for i := range o.Book.entries {
		e := &o.Book.entries[i]
		if e.level == Atomic && o.Load == nil {
			continue
		}
		if err := r.vector(ctx, e); err != nil {
			return nil, 0, err
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if r.faults >= hopeless {
			break
		}
	}
	return r.out, time.Since(began), nil
}

// hopeless is how many faults in a row end a run.
const hopeless = 5

type runner struct {
	Options
	authorize, conditions *certify.Poster
	out                   []Exchange
	faults                int // in a row
}

// vector asks one vector.
func (r *runner) vector(ctx context.Context, e *entry) (err error) {
	if e.level == Atomic {
		defer func() { err = errors.Join(err, r.Load(ctx, r.Book.Policies())) }()
	}
	chains := map[int][]vectors.ConditionSet{}
	for i, s := range e.Steps {
		switch {
		case s.SetPolicies != nil:
			if err := r.Load(ctx, r.Book.policies(e, s.SetPolicies)); err != nil {
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
		r.out = append(r.out, x)
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
	if x.Fault != "" {
		r.faults++
	} else {
		r.faults = 0
	}
	r.out = append(r.out, x)
	return answer
}
