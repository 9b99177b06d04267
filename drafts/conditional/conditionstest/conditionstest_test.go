package conditionstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/authzconf/authzconf/drafts/conditional/conditionstest"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product/producttest"
)

// inGo is the reference authorizer as one of Go.
type inGo struct{ *reference.Authorizer }

func newReference() (*inGo, func([]vectors.Policy) error) {
	a := &inGo{reference.New(wire.Newest(), new(reference.Snapshot))}
	return a, func(all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			a.Use(s)
		}
		return err
	}
}

func (g *inGo) decide(a authorizer.Attributes) reference.FirstPhase {
	s := authorizationv1.SubjectAccessReviewSpec{
		User:   a.GetUser().GetName(),
		UID:    a.GetUser().GetUID(),
		Groups: a.GetUser().GetGroups(),
		Extra:  map[string]authorizationv1.ExtraValue{},
	}
	for k, v := range a.GetUser().GetExtra() {
		s.Extra[k] = v
	}
	if a.IsResourceRequest() {
		s.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:        a.GetVerb(),
			Namespace:   a.GetNamespace(),
			Group:       a.GetAPIGroup(),
			Version:     a.GetAPIVersion(),
			Resource:    a.GetResource(),
			Subresource: a.GetSubresource(),
			Name:        a.GetName(),
		}
	} else {
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.GetVerb(), Path: a.GetPath()}
	}
	st := g.Status(
		g.Snapshot().Decide(s),
		vectors.SubjectAccessReviewSpec{
			SubjectAccessReviewSpec:  s,
			ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.HumanReadable},
		},
	)
	out := reference.FirstPhase{Concrete: st.Decision(), Reason: st.Reason}
	if st.EvaluationError != "" {
		out.Err = fmt.Errorf("%s", st.EvaluationError)
	}
	for _, set := range st.ConditionsChain {
		out.Conditions = set.Conditions
	}
	return out
}

var decisions = map[vectors.Decision]authorizer.Decision{
	vectors.Allow: authorizer.DecisionAllow, vectors.Deny: authorizer.DecisionDeny, vectors.NoOpinion: authorizer.DecisionNoOpinion,
}

func (g *inGo) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	d := g.decide(a)
	return decisions[d.Fold()], d.Reason, d.Err
}

func (g *inGo) ConditionsAwareAuthorize(_ context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	d := g.decide(a)
	if len(d.Conditions) == 0 {
		return authorizer.ConditionsAwareDecisionFromParts(decisions[d.Concrete], d.Reason, d.Err)
	}
	by := map[vectors.Decision][]authorizer.Condition{}
	for _, c := range d.Conditions {
		by[c.Effect] = append(by[c.Effect],
			authorizer.GenericCondition{ID: c.ID, Type: wire.Newest().CEL, Condition: c.Condition, Description: c.Description},
		)
	}
	return authorizer.ConditionsAwareDecisionConditionsMap(by[vectors.Deny], by[vectors.NoOpinion], by[vectors.Allow])
}

func (g *inGo) EvaluateConditions(
	ctx context.Context,
	d authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	known := vectors.ConditionData{Operation: string(data.GetOperation())}
	for _, one := range []struct {
		from runtime.Object
		to   *vectors.Object
	}{{data.GetObject(), &known.Object}, {data.GetOldObject(), &known.OldObject}, {data.GetOperationOptions(), &known.Options}} {
		if one.from != nil {
			raw, err := json.Marshal(one.from)
			if err != nil {
				return d.FailureDecision(), "", err
			}
			if err := json.Unmarshal(raw, one.to); err != nil {
				return d.FailureDecision(), "", err
			}
		}
	}
	return d.ConditionsMap().
		Evaluate(ctx, data, func(_ context.Context, c authorizer.Condition, _ authorizer.ConditionsData) (bool, error) {
			return reference.Holds(c.GetCondition(), known.Variables())
		})
}

func TestRun(t *testing.T) {
	a, load := newReference()
	conditionstest.Run(t, a, conditionstest.Options{Load: load, Cases: 500})
}

// TestUnion checks that the union of the library can be checked as an authorizer, too.
func TestUnion(t *testing.T) {
	a, load := newReference()
	all, err := union.New(union.NamedAuthorizer{AuthorizerName: "one", Authorizer: a})
	if err != nil {
		t.Fatal(err)
	}
	conditionstest.Run(t, all, conditionstest.Options{Load: load, Cases: 500})
}

// curious is an authorizer that looks at everything that admission knows, and counts the dry runs.
type curious struct {
	*inGo
	t       *testing.T
	dryRuns int
}

func (c *curious) EvaluateConditions(
	ctx context.Context,
	d authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	if data.GetUserInfo().GetName() == "" {
		c.t.Error("nobody asks")
	}
	if data.GetResource().Resource == "" {
		c.t.Error("it is about no resource")
	}
	if data.IsDryRun() {
		c.dryRuns++
	}
	_, _, _, _ = data.GetName(), data.GetNamespace(), data.GetSubresource(), data.GetKind()
	return c.inGo.EvaluateConditions(ctx, d, data)
}

// TestCurious checks that an authorizer can read the whole request in the second phase.
func TestCurious(t *testing.T) {
	a, load := newReference()
	c := &curious{inGo: a, t: t}
	conditionstest.Run(t, c, conditionstest.Options{Load: load, Cases: -1})
	if c.dryRuns == 0 {
		t.Error("no vector of a dry run came as one")
	}
}

// TestURL checks that a webhook is asked in the revision that it speaks.
func TestURL(t *testing.T) {
	for _, w := range wire.Revisions() {
		t.Run(w.Name, func(t *testing.T) {
			a := reference.New(w, new(reference.Snapshot))
			s := httptest.NewServer(reference.Handler(w, a))
			defer s.Close()
			conditionstest.RunURL(t, s.URL, s.URL+reference.ConditionsPath, conditionstest.Options{Load: func(all []vectors.Policy) error {
				snapshot, err := reference.NewSnapshot(all)
				if err == nil {
					a.Use(snapshot)
				}
				return err
			}})
		})
	}
}

func nothing([]vectors.Policy) error { return nil }

// TestFails checks that an authorizer fails, and that the vector is named, if it allows everything or cannot be asked.
func TestFails(t *testing.T) {
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	n := &producttest.FailureLog{Ctx: t.Context()}
	conditionstest.Run(n, allow, conditionstest.Options{Load: nothing, Cases: 64})
	text := strings.Join(n.Failed, "\n")
	for _, want := range []string{
		"KEP-5681, Why propagate the conditions with the request?: kep-5681/atomicity/again: ", "in a chain behind one without an opinion", "Technical Requirements: generated case ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %d failures", want, len(n.Failed))
		}
	}
	t.Logf("%d failures, the first:\n%s", len(n.Failed), n.Failed[0])

	n = &producttest.FailureLog{Ctx: t.Context()}
	conditionstest.Run(n, allow, conditionstest.Options{})
	conditionstest.RunURL(n, "localhost", "localhost", conditionstest.Options{Load: nothing})
	if len(n.Failed) != 2 || !strings.Contains(n.Failed[0], "Options.Load is needed") ||
		!strings.Contains(n.Failed[1], "is not the URL of a webhook") {
		t.Errorf("%q", n.Failed)
	}
}

func Example() {
	// In a test of yours, t is its *testing.T and a is your authorizer.
	t := &producttest.FailureLog{Ctx: context.Background()}
	a := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})

	conditionstest.Run(t, a, conditionstest.Options{
		Cases: 64,
		Load:  func(_ []vectors.Policy) error { return nil }, // a takes them over
	})
	fmt.Println(len(t.Failed) > 0)
	// Output: true
}
