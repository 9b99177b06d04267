package certification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// Exchange is one question and its answer.
type Exchange struct {
	Vector  string  `json:"vector"`
	Step    int     `json:"step"`
	Variant Variant `json:"variant,omitempty"` // the question of the step that was asked
	// Wire is the revision in which the question was asked. If it is empty, that is the seed.
	Wire   string          `json:"wire,omitempty"`
	HTTP   int             `json:"http,omitempty"`
	Fault  string          `json:"fault,omitempty"`  // the reason why no answer came
	Answer json.RawMessage `json:"answer,omitempty"` // the body, as text if it is not JSON
}

// Variant is a question that a step asks in addition to its own.
type Variant string

// The variants of a step's question.
const (
	// Original is the step itself.
	Original Variant = ""
	// Repeated repeats the question.
	Repeated Variant = "again"
	// Unaware asks as a client that does not know conditions.
	Unaware Variant = "unaware"
	// Foreign sends the conditions back under an unknown type.
	Foreign Variant = "foreign"
	// Replica asks another replica of the authorizer the same question.
	Replica Variant = "replica"
	// Probe asks for conditions in one revision of the wire, to find out which revision the webhook speaks.
	Probe Variant = "probe"
)

// foreignType is a type of conditions that no authorizer has.
const foreignType = "certify.authzconf.dev/unknown"

// Loader replaces all policies of the authorizer at once. It is nil if the policies cannot be replaced.
type Loader func(context.Context, []vectors.Policy) error

// Options are the options of a certification.
type Options struct {
	// Webhooks are the endpoints for SubjectAccessReview and AuthorizationConditionsReview, followed by the endpoints
	// of another replica with the same policies, if there is one.
	Webhooks []*certify.Webhook
	Plan     *Plan
	Load     Loader
	// Wire is the revision of the wire to certify. If it is nil, the webhook is asked which revision it speaks.
	Wire *wire.Revision

	// isSelected reports whether a vector is asked. nil selects all vectors.
	isSelected func(id string) bool
}

// Certify asks all questions and judges the answers. It returns an error if the harness fails.
func Certify(ctx context.Context, o Options) (*certify.Run[Exchange], error) {
	return certify.Perform(
		ctx,
		o.Plan.Judge,
		nil,
		func(ctx context.Context, r *certify.Runner[Exchange]) error { return askAll(ctx, r, o) },
	)
}

// askAll asks all questions that are selected.
func askAll(ctx context.Context, all *certify.Runner[Exchange], o Options) (err error) {
	r, closeAll, err := newRunner(all, o)
	if err != nil {
		return err
	}
	defer closeAll()
	all.Step(Step, func() { err = r.askVectors(ctx) })
	return err
}

// CertifyHandler certifies a handler that is not served yet: AuthorizationConditionsReview at reference.ConditionsPath,
// SubjectAccessReview at every other path.
func CertifyHandler(ctx context.Context, h http.Handler, o Options) (*certify.Run[Exchange], error) {
	s, err := webhook.Start(h, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	raw, err := reference.Kubeconfig(s)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"", reference.ConditionsContext} {
		w, err := certify.ParseWebhook(raw, name)
		if err != nil {
			return nil, err
		}
		o.Webhooks = append(o.Webhooks, w)
	}
	return Certify(ctx, o)
}

// Step is the only step of a run. It measures the whole run.
const Step = "exchanges"

type runner struct {
	Options
	*certify.Runner[Exchange]
	posters []*certify.Poster // of the webhooks, in their order
}

// These are the places of the endpoints in posters. Those of the replica follow, in the same order.
const reviewEndpoint, conditionsEndpoint, replicaOffset = 0, 1, 2

// newRunner returns a runner that is connected to the webhooks of the options. Its connections have to be closed.
func newRunner(all *certify.Runner[Exchange], o Options) (r *runner, closeAll func(), err error) {
	r = &runner{Options: o, Runner: all}
	closeAll = func() {
		for _, p := range r.posters {
			p.Close()
		}
	}
	for _, w := range o.Webhooks {
		p, err := w.NewPoster()
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		r.posters = append(r.posters, p)
	}
	return r, closeAll, nil
}

// askVectors asks all vectors, until an answer ends the run.
func (r *runner) askVectors(ctx context.Context) error {
	if r.Load != nil {
		if err := r.Load(ctx, r.Plan.Policies()); err != nil {
			return err
		}
	}
	if r.Wire == nil {
		r.Wire = r.findRevision(ctx)
	}
	for i := range r.Plan.entries {
		e := &r.Plan.entries[i]
		if r.HasEnded() {
			break
		}
		lacksPolicies := e.level == Atomic && r.Load == nil
		isLeftOut := r.isSelected != nil && !r.isSelected(e.caseID())
		isApplicable := e.inapplicable(r.Wire) == "" && !lacksPolicies
		if isLeftOut || !isApplicable {
			continue
		}
		if err := errors.Join(r.askVector(ctx, e), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// askVector asks the questions of a vector, and replaces the policies where its steps say so.
func (r *runner) askVector(ctx context.Context, e *entry) (err error) {
	if e.level == Atomic {
		defer func() { err = errors.Join(err, r.Load(ctx, r.Plan.Policies())) }()
	}
	chains := map[int][]vectors.ConditionSet{}
	for i, s := range e.Steps {
		switch {
		case s.SetPolicies != nil:
			if err := r.Load(ctx, r.Plan.policiesFor(e, s.SetPolicies)); err != nil {
				return err
			}
		case s.Authorize != nil:
			if chains[i] = r.askReview(ctx, e, i, s.Authorize.Spec); r.HasEnded() {
				return nil
			}
		case chains[s.Evaluate.Of] != nil:
			chains[i] = r.askEvaluation(ctx, e, i, chains[s.Evaluate.Of])
		}
	}
	return nil
}

// variants returns the variants of a step's question. A replica is not asked for conditions in a step whose conditions
// it evaluates later: those have to be the conditions of the other replica.
func (e *entry) variants(step int, replica bool) []Variant {
	all := []Variant{Original, Repeated, Unaware}
	if e.Steps[step].Evaluate != nil {
		all = []Variant{Original, Foreign}
	}
	isEvaluatedLater := func(s vectors.Step) bool { return s.Evaluate != nil && s.Evaluate.Of == step }
	if replica && !slices.ContainsFunc(e.Steps, isEvaluatedLater) {
		all = append(all, Replica)
	}
	return all
}

// askReview asks the questions of the first phase, and returns the conditions of the first answer.
func (r *runner) askReview(ctx context.Context, e *entry, step int, spec vectors.SubjectAccessReviewSpec) []vectors.ConditionSet {
	ask := func(variant Variant) []byte {
		request := spec
		if variant == Unaware {
			request.ConditionalAuthorization = nil
		}
		body, err := r.Wire.AskAccess(request)
		return r.post(ctx, r.Wire, reviewEndpoint, Exchange{Vector: e.id, Step: step, Variant: variant}, body, err)
	}
	answer := ask(Original)
	for _, variant := range e.variants(step, len(r.posters) > replicaOffset)[1:] {
		ask(variant)
	}
	if revisions := wire.Recognize(answer); slices.ContainsFunc(revisions, func(w *wire.Revision) bool { return w != r.Wire }) {
		r.End("an answer is in another revision of the wire than " + r.Wire.Name) // every other finding would follow from that
		return nil
	}
	return readChain(r.Wire, answer)
}

// readChain returns the conditions in an answer of a revision, if it has any that can be read.
func readChain(w *wire.Revision, answer []byte) []vectors.ConditionSet {
	if revisions := wire.Recognize(answer); len(revisions) != 1 || revisions[0] != w {
		return nil
	}
	status, err := w.ReadAccess(answer)
	if err != nil {
		return nil
	}
	return status.ConditionsChain
}

// askEvaluation asks the questions of the second phase, and returns the conditions that are left.
func (r *runner) askEvaluation(ctx context.Context, e *entry, step int, chain []vectors.ConditionSet) (left []vectors.ConditionSet) {
	for _, variant := range e.variants(step, len(r.posters) > replicaOffset) {
		x := Exchange{Vector: e.id, Step: step, Variant: variant}
		q := e.conditionsRequest(step, chain)
		q.UID = r.Plan.uid(x)
		if variant == Foreign {
			q.ConditionSets = withForeignType(chain)
		}
		body, err := r.Wire.AskConditions(q)
		answer := r.post(ctx, r.Wire, conditionsEndpoint, x, body, err)
		if variant == Original {
			left = conditionsLeft(r.Wire, answer)
		}
	}
	return left
}

// conditionsLeft returns the conditions that conditions evaluated to, where a revision has that.
func conditionsLeft(w *wire.Revision, answer []byte) []vectors.ConditionSet {
	response, err := w.ReadConditions(answer)
	if err != nil || response == nil || !w.Rules.Staged {
		return nil
	}
	return response.ConditionsChain
}

// conditionsRequest returns the request of an evaluate step, about the conditions of an answer.
func (e *entry) conditionsRequest(step int, chain []vectors.ConditionSet) vectors.AuthorizationConditionsRequest {
	return vectors.AuthorizationConditionsRequest{
		Authorized: e.FirstPhase(step).Spec.SubjectAccessReviewSpec, ConditionSets: chain, ConditionData: e.Steps[step].Evaluate.Data,
	}
}

// withForeignType returns sets whose conditions have an unknown type.
func withForeignType(chain []vectors.ConditionSet) []vectors.ConditionSet {
	out := slices.Clone(chain)
	for i := range out {
		out[i].Conditions, out[i].ConditionsChain = slices.Clone(out[i].Conditions), withForeignType(out[i].ConditionsChain)
		for k := range out[i].Conditions {
			out[i].Conditions[k].Type = foreignType
		}
	}
	return out
}

// post sends a question to an endpoint, and adds the exchange to the answers.
func (r *runner) post(ctx context.Context, w *wire.Revision, to int, x Exchange, raw []byte, err error) (answer []byte) {
	x.Wire = w.Name
	if err != nil {
		x.Fault = "harness"
		r.Answers = append(r.Answers, x)
		return nil
	}
	if x.Variant == Replica {
		to += replicaOffset
	}
	x.HTTP, answer, x.Fault = r.posters[to].Post(ctx, raw)
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
