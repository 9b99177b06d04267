// Package conditionstest holds an authorizer to KEP-5681, Conditional Authorization, in its author's own tests. An
// authorizer of Go implements authorizer.Authorizer of k8s.io/apiserver; Run asks it in the process. RunHandler and
// RunURL ask a webhook, in whichever revision of the KEP's wire it speaks.
//
// Policies are given to the authorizer as CEL (vectors.Policy), by Options.Load. Then three things are asked:
//
//   - the webhook vectors of the KEP: what the first phase answers, what a set of conditions evaluates to, and that
//     both come from one state of the policies;
//   - with Run, its position in a chain: the library's own union, with others before it and behind it;
//   - two phases against one: generated policies, requests and objects, of which a case that fails is made small.
//
// Each failure names the section of the KEP and the vector.
package conditionstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/authzconf/authzconf/certify/certifytest"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/verdicts"
)

// T is what of *testing.T is needed.
type T = certifytest.T

// Options say what an authorizer is asked.
type Options struct {
	// Load replaces the policies of the authorizer.
	Load func([]vectors.Policy) error
	// Seed makes names and generated cases. Left out, it is 1: failures repeat.
	Seed int64
	// Cases is how many generated cases Run tries. Left out, they are 2,000; a negative number is none.
	Cases int
}

// complete has a test done with the options and the webhook vectors; its error ends the test.
func (o Options) complete(t T, test func(Options, []*vectors.Vector) error) {
	t.Helper()
	all, err := vectors.Builtin()
	if o.Load == nil {
		err = errors.New("Options.Load is needed: it gives the authorizer the policies that are asked about")
	}
	if err == nil {
		o.Seed, o.Cases = cmp.Or(o.Seed, 1), cmp.Or(o.Cases, 2000)
		err = test(o, slices.DeleteFunc(all, func(v *vectors.Vector) bool { return v.Webhook == nil }))
	}
	if err != nil {
		t.Fatalf("conditionstest: %v", err)
	}
}

// Run asks an authorizer of Go.
func Run(t T, a authorizer.Authorizer, o Options) {
	t.Helper()
	o.complete(t, func(o Options, all []*vectors.Vector) error {
		asked := len(all)
		all = slices.DeleteFunc(all, func(v *vectors.Vector) bool { return !inProcess(v) })
		t.Logf("conditionstest: %d of %d vectors are not applicable: authorizer.ConditionsData has neither namespaceObject nor impersonatedRequest", asked-len(all), asked)
		subject := &subject{ctx: t.Context(), authorizer: a}
		return errors.Join(hold(t, all, reference.Handler(wire.Seed, subject), o), chained(t, all, a, o), explore(t, subject, o))
	})
}

// RunHandler asks a webhook: AuthorizationConditionsReview at /conditions, SubjectAccessReview everywhere else.
func RunHandler(t T, h http.Handler, o Options) {
	t.Helper()
	o.complete(t, func(o Options, all []*vectors.Vector) error { return hold(t, all, h, o) })
}

// RunURL asks a webhook that is served already, at two URLs. Its certificates are not checked, only what it answers.
func RunURL(t T, access, conditions string, o Options) {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, address := range map[string]string{"/": access, reference.ConditionsPath: conditions} {
		h, err := certifytest.At(address)
		if err != nil {
			t.Fatalf("conditionstest: %v", err)
			return
		}
		mux.Handle(pattern, h)
	}
	RunHandler(t, mux, o)
}

// hold asks a webhook the vectors, and fails for each that is answered wrongly.
func hold(t T, all []*vectors.Vector, h http.Handler, o Options) error {
	t.Helper()
	plan, err := certification.NewPlan(all, o.Seed)
	if err != nil {
		return err
	}
	load := func(_ context.Context, all []vectors.Policy) error { return o.Load(all) }
	run, err := certification.CertifyHandler(t.Context(), h, certification.Options{Plan: plan, Load: load})
	if err != nil {
		return err
	}
	played, err := certification.Play(all, o.Seed, run.Answers)
	if err != nil {
		return err
	}
	for _, r := range played.Results {
		say := t.Logf // advice
		if r.Verdict != verdicts.Passed {
			say = t.Errorf
		}
		for _, why := range r.Why {
			say("%s: %s\n  %s", place(r.Vector), r.Description, why)
		}
	}
	t.Logf("conditionstest: wire %s, seed %d: %d vectors, %d exchanges, %d failures", run.Wire, o.Seed, len(all), len(run.Answers), len(played.Results)-played.Totals[verdicts.Passed])
	return nil
}

func place(v *vectors.Vector) string {
	return v.Source.Document + ", " + v.Source.Section + ": " + v.ID
}

// explore compares two phases with one.
func explore(t T, s *subject, o Options) error {
	t.Helper()
	if o.Cases < 0 {
		return nil
	}
	load := func(all []vectors.Policy, _ vectors.FailureMode) (model.Loaded, error) { return s, o.Load(all) }
	// The authorizer has one set of policies at a time, and the library knows no failure mode but Deny.
	found, err := model.Explore(t.Context(), load, model.Exploration{Wire: wire.Seed, Cases: o.Cases, Seed: o.Seed, One: true})
	if err != nil {
		return err
	}
	for _, d := range found.Disagreements {
		t.Errorf("KEP-5681, Technical Requirements: generated case %d of seed %d: %s\n%s", d.Case, o.Seed, d.Reason, d.Vector)
	}
	t.Logf("conditionstest: two phases against one: seed %d, %d cases, %d disagreements", o.Seed, found.Cases, len(found.Disagreements))
	return nil
}

// inProcess says whether a vector can be asked of an authorizer of Go.
func inProcess(v *vectors.Vector) bool {
	raw, err := json.Marshal(v.Webhook)
	return err == nil && !strings.Contains(string(raw), "namespaceObject") && !strings.Contains(string(raw), "impersonatedRequest")
}

// subject has an authorizer of Go answer reviews. Its conditions are values of Go: they are kept under what a review
// shows of them, and evaluated when that comes back.
type subject struct {
	ctx        context.Context
	authorizer authorizer.Authorizer
	given      sync.Map // of authorizer.ConditionsAwareDecision
}

func (s *subject) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	attributes := attributesOf(spec.SubjectAccessReviewSpec)
	if spec.Mode() == vectors.None {
		return concrete(s.authorizer.Authorize(s.ctx, attributes))
	}
	d := s.authorizer.ConditionsAwareAuthorize(s.ctx, attributes)
	if d.IsUnconditional() {
		return concrete(parts(d))
	}
	chain := sets("authorizer", d)
	s.given.Store(key(chain), d)
	return vectors.SubjectAccessReviewStatus{ConditionsChain: chain}
}

func (s *subject) Evaluate(q *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	d, ok := s.given.Load(key(q.ConditionSets))
	if !ok {
		return concrete(authorizer.DecisionDeny, "", errors.New("the authorizer did not give these conditions"))
	}
	return concrete(s.authorizer.EvaluateConditions(s.ctx, d.(authorizer.ConditionsAwareDecision), late{data: &q.ConditionData}))
}

func key(chain []vectors.ConditionSet) string {
	raw, _ := json.Marshal(chain) // of strings and booleans: it cannot fail
	return string(raw)
}

// parts are those of an unconditional decision.
func parts(d authorizer.ConditionsAwareDecision) (authorizer.Decision, string, error) {
	if d.IsAllow() {
		return authorizer.DecisionAllow, d.Reason(), d.Error()
	}
	return d.FailureDecision(), d.Reason(), d.Error()
}

func concrete(d authorizer.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	out := vectors.SubjectAccessReviewStatus{Allowed: d == authorizer.DecisionAllow, Denied: d == authorizer.DecisionDeny, Reason: reason}
	if err != nil {
		out.EvaluationError = err.Error()
	}
	return out
}

// ownType stands for no type, and the ID of a condition for no text, which conditions of Go can do without.
const ownType = "conditionstest.authzconf.dev/own"

// sets is what a review shows of a decision: a union as its leaves.
func sets(name string, d authorizer.ConditionsAwareDecision) (out []vectors.ConditionSet) {
	switch {
	case d.IsAllow(), d.IsDeny():
		return []vectors.ConditionSet{{AuthorizerName: name, Allowed: d.IsAllow(), Denied: d.IsDeny()}}
	case d.IsUnion():
		for inner, one := range d.UnionedDecisions() {
			out = append(out, sets(inner, one)...)
		}
	case d.IsConditionsMap():
		set := vectors.ConditionSet{AuthorizerName: name, FailureMode: vectors.FailDeny}
		add := func(effect vectors.Decision, all iter.Seq[authorizer.Condition]) {
			for c := range all {
				set.Conditions = append(set.Conditions, vectors.Condition{
					ID: c.GetID(), Effect: effect, Type: cmp.Or(c.GetType(), ownType), Condition: cmp.Or(c.GetCondition(), c.GetID()), Description: c.GetDescription(),
				})
			}
		}
		m := d.ConditionsMap()
		add(vectors.Deny, m.DenyConditions())
		add(vectors.NoOpinion, m.NoOpinionConditions())
		add(vectors.Allow, m.AllowConditions())
		out = []vectors.ConditionSet{set}
	}
	return out
}

func attributesOf(s authorizationv1.SubjectAccessReviewSpec) authorizer.AttributesRecord {
	u := &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: map[string][]string{}}
	for k, v := range s.Extra {
		u.Extra[k] = v
	}
	if n := s.NonResourceAttributes; n != nil {
		return authorizer.AttributesRecord{User: u, Verb: n.Verb, Path: n.Path}
	}
	r := s.ResourceAttributes
	return authorizer.AttributesRecord{
		User: u, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource,
		Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
}

// late is what the second phase tells. What a vector says nothing of, it does not have.
type late struct {
	authorizer.ConditionsData
	data *vectors.ConditionData
}

// GetOperation implements authorizer.ConditionsData, as do the others.
func (l late) GetOperation() authorizer.AdmissionOperation {
	return authorizer.AdmissionOperation(l.data.Operation)
}

func (l late) GetOperationOptions() runtime.Object { return object(l.data.Options) }

func (l late) GetObject() runtime.Object { return object(l.data.Object) }

func (l late) GetOldObject() runtime.Object { return object(l.data.OldObject) }

func object(o vectors.Object) runtime.Object {
	if o == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: o}
}

// chained asks the library's union with the authorizer in it: what is before it has no opinion, at once or when its
// condition is false, and what is behind it decides what it does not.
func chained(t T, all []*vectors.Vector, a authorizer.Authorizer, o Options) error {
	t.Helper()
	plan, err := certification.NewPlan(all, o.Seed)
	if err == nil {
		err = o.Load(plan.Policies())
	}
	if err != nil {
		return err
	}
	asked := 0
	for _, v := range all {
		w := plan.Bound(v.ID)
		for i, s := range w.Steps {
			if s.SetPolicies != nil {
				break // what comes then is about other policies
			}
			if s.Evaluate == nil || len(s.Evaluate.Want.OneOf) != 1 || w.Steps[s.Evaluate.Of].Authorize.Spec.Mode() == vectors.None {
				continue
			}
			for _, c := range chains {
				asked++
				if err := c.ask(t.Context(), a, w.Steps[s.Evaluate.Of].Authorize.Spec, s.Evaluate); err != nil {
					t.Errorf("%s: step %d, in a chain %s: %v", place(v), i, c.name, err)
				}
			}
		}
	}
	t.Logf("conditionstest: position in the chain: %d requests", asked)
	return nil
}

type chain struct {
	name           string
	before, behind authorizer.Authorizer
	then           vectors.Decision // what the chain decides where the authorizer does not
}

var chains = []chain{
	{"behind nobody, before one that allows", nil, always(authorizer.DecisionAllow), vectors.Allow},
	{"behind one without an opinion, before one that denies", always(authorizer.DecisionNoOpinion), always(authorizer.DecisionDeny), vectors.Deny},
	{"behind a condition that is false, before nobody", undecided{}, nil, vectors.NoOpinion},
}

func (c *chain) ask(ctx context.Context, a authorizer.Authorizer, spec vectors.SubjectAccessReviewSpec, step *vectors.EvaluateStep) error {
	named := []union.NamedAuthorizer{{AuthorizerName: "before", Authorizer: c.before}, {AuthorizerName: "authorizer", Authorizer: a}, {AuthorizerName: "behind", Authorizer: c.behind}}
	all, err := union.New(slices.DeleteFunc(named, func(one union.NamedAuthorizer) bool { return one.Authorizer == nil })...)
	if err != nil {
		return err
	}
	want := step.Want.OneOf[0]
	if want == vectors.NoOpinion {
		want = c.then
	}
	d := all.ConditionsAwareAuthorize(ctx, attributesOf(spec.SubjectAccessReviewSpec))
	got, _, _ := parts(d)
	if !d.IsUnconditional() {
		got, _, _ = all.EvaluateConditions(ctx, d, late{data: &step.Data})
	}
	if got.String() != string(want) {
		return fmt.Errorf("the chain decides %s, want %s", got, want)
	}
	return nil
}

func always(d authorizer.Decision) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return d, "", nil
	})
}

// undecided denies on a condition that is false, which evaluates itself.
type undecided struct{ authorizer.AuthorizerFunc }

func (undecided) ConditionsAwareAuthorize(context.Context, authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionConditionsMap([]authorizer.Condition{authorizer.GenericCondition{
		ID: "never", EvaluateFunc: func(context.Context, authorizer.ConditionsData) authorizer.ConditionEvaluationResult {
			return authorizer.ConditionEvaluationResultBoolean(false)
		},
	}}, nil, nil)
}

func (undecided) EvaluateConditions(ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return d.ConditionsMap().Evaluate(ctx, data, nil)
}
