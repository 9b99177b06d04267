// Package reference is a reference authorizer for KEP-5681 (Conditional Authorization). Its policies are CEL
// expressions over the request, as the KEP writes them, and over objects that are unknown when authorization is
// decided: what is left of an expression then is returned as a condition, and evaluated when the objects are there.
//
// The decision record about it is docs/adr/*-conditional-reference.md.
package reference

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// TypeCEL is the KEP's condition type that an API server would evaluate itself.
	TypeCEL = "k8s.io/authorization-cel"
	// DefaultName is the authorizer's name unless another is given.
	DefaultName = "authzconf-conditional"
)

// Authorizer answers reviews. Its policies may be replaced at any time.
type Authorizer struct {
	// Name is the authorizerName of its sets, Type that of its conditions.
	Name, Type string
	Wire       *wire.Revision // the revision of the KEP's wire whose rules its answers keep

	snapshot atomic.Pointer[Snapshot]
}

// New is an authorizer with these policies.
func New(s *Snapshot) *Authorizer {
	a := &Authorizer{Name: DefaultName, Type: TypeCEL, Wire: wire.Seed}
	a.Use(s)
	return a
}

// Use replaces the policies, all at once. Conditions given before stay: they carry all that evaluation needs.
func (a *Authorizer) Use(s *Snapshot) { a.snapshot.Store(s) }

// Snapshot are the policies of the moment.
func (a *Authorizer) Snapshot() *Snapshot { return a.snapshot.Load() }

// Review is the first phase, in the form that the client asked for.
func (a *Authorizer) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	return a.Status(a.Snapshot().Decide(spec.SubjectAccessReviewSpec), spec)
}

// Status writes a decision down.
func (a *Authorizer) Status(d FirstPhase, spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	asked := spec.Mode()
	if len(d.Conditions) == 0 || asked == vectors.None || !exact(spec.SubjectAccessReviewSpec) {
		return concrete(d.Fold(), cmp.Or(d.Reason, "it depends on conditions"), d.Err)
	}
	set := vectors.ConditionSet{AuthorizerName: a.Name, FailureMode: cmp.Or(a.Snapshot().FailureMode, vectors.FailDeny)}
	for _, c := range d.Conditions {
		c.Type = a.Type
		if asked == vectors.Optimized {
			c.Description = ""
		}
		set.Conditions = append(set.Conditions, c)
	}
	status := concrete(vectors.NoOpinion, "", d.Err)
	status.ConditionsChain = []vectors.ConditionSet{set}
	if err := a.Wire.Rules.Validate(status, asked); err != nil {
		return concrete(d.Fold(), "it depends on conditions that cannot be written down", err)
	}
	return status
}

// concrete is the answer of either phase without conditions.
func concrete(e vectors.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	s := vectors.SubjectAccessReviewStatus{Allowed: e == vectors.Allow, Denied: e == vectors.Deny, Reason: reason}
	if err != nil {
		s.EvaluationError = err.Error()
	}
	return s
}

// Evaluate is the second phase. It looks at what it is handed and at no policy.
func (a *Authorizer) Evaluate(req *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	data := req.ConditionData.Variables()
	var ignored error
	for i, set := range req.ConditionSets {
		invalid := a.Wire.Rules.ValidateSet(set)
		switch {
		case invalid != nil:
			return concrete(vectors.Deny, "a set is not valid", fmt.Errorf("conditionSets[%d]: %w", i, invalid))
		case set.AuthorizerName != a.Name, set.ConditionsChain != nil: // it never sends sets of sets
			return concrete(vectors.Deny, "a set of another authorizer", fmt.Errorf("conditionSets[%d]: authorizerName %q: it is %q", i, set.AuthorizerName, a.Name))
		case set.Allowed:
			return concrete(vectors.Allow, "allowed without conditions", ignored)
		case set.Denied:
			return concrete(vectors.Deny, "denied without conditions", ignored)
		}
		effect, reason, err := EvaluateSet(set, a.truth(data))
		ignored = errors.Join(ignored, err)
		if effect != vectors.NoOpinion || i+1 == len(req.ConditionSets) {
			return concrete(effect, reason, ignored)
		}
	}
	return concrete(vectors.NoOpinion, "there are no conditions", ignored)
}

// truth evaluates conditions of the authorizer's own type.
func (a *Authorizer) truth(data map[string]any) Evaluator {
	return func(c vectors.Condition) (bool, error) {
		if c.Type != a.Type {
			return false, fmt.Errorf("type %q: this authorizer evaluates %q", c.Type, a.Type)
		}
		return Holds(c.Condition, data)
	}
}

// sample is any request: expressions are checked by it.
var sample = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{}}

// knownData is what the verb alone tells of the unknown variables: nothing is there before a create, and nothing
// is sent with a delete. Whether a create is a CREATE or a CONNECT is left open.
func knownData(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	if s.ResourceAttributes == nil {
		return nil
	}
	switch s.ResourceAttributes.Verb {
	case "create":
		return map[string]any{"oldObject": nil}
	case "delete", "deletecollection":
		return map[string]any{"object": nil, "operation": "DELETE"}
	}
	return nil
}

// exact says whether a review is about one resource of one version, as conditions need (section on version skew).
func exact(s authorizationv1.SubjectAccessReviewSpec) bool {
	r := s.ResourceAttributes
	return r != nil && r.Version != "" && r.Version != "*" && r.Group != "*" && r.Resource != "*" && r.Verb != "*"
}

const (
	// maxExpression is what a policy's expression may have, in bytes. How long its residual may be the wire says.
	maxExpression = 16 << 10
	maxPolicies   = 1024 // a bound for a file
)

// Snapshot is a set of policies that does not change. One decision is made of one snapshot.
type Snapshot struct {
	// FailureMode is what a Deny policy in error counts as. Left out: Deny.
	FailureMode vectors.FailureMode

	policies []vectors.Policy
	programs []cel.Program // of the policies
}

// Load reads a file of policies.
func Load(name string, data []byte) (*Snapshot, error) {
	var file struct {
		Policies []vectors.Policy `yaml:"policies"`
	}
	doc, err := scenarios.Decode(name, data, "a list of policies", &file)
	if err != nil {
		return nil, err
	}
	s, at, err := newSnapshot(file.Policies)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc.At(at), err)
	}
	return s, nil
}

// NewSnapshot checks policies.
func NewSnapshot(policies []vectors.Policy) (*Snapshot, error) {
	s, at, err := newSnapshot(policies)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return s, nil
}

// newSnapshot also says where the error is.
func newSnapshot(policies []vectors.Policy) (_ *Snapshot, at string, err error) {
	if len(policies) > maxPolicies {
		return nil, "$.policies", fmt.Errorf("%d policies, at most %d", len(policies), maxPolicies)
	}
	var programs []cel.Program
	seen := map[string]bool{}
	for i, p := range policies {
		at := fmt.Sprintf("$.policies[%d].", i)
		if err := vectors.ValidateID(p.ID); err != nil {
			return nil, at + "id", err
		}
		if seen[p.ID] {
			return nil, at + "id", fmt.Errorf("the ID %q is there already", p.ID)
		}
		seen[p.ID] = true
		if !slices.Contains(vectors.Effects(), p.Effect) {
			return nil, at + "effect", fmt.Errorf("effect %q: expected Allow, Deny or NoOpinion", p.Effect)
		}
		if len(p.Expression) > maxExpression {
			return nil, at + "expression", fmt.Errorf("%d bytes, at most %d", len(p.Expression), maxExpression)
		}
		program, err := policyProgram(p.Expression)
		if err != nil {
			return nil, at + "expression", err
		}
		programs = append(programs, program)
	}
	return &Snapshot{policies: slices.Clone(policies), programs: programs}, "", nil
}

// Policies are a copy of the policies.
func (s *Snapshot) Policies() []vectors.Policy { return slices.Clone(s.policies) }

// Subject is the reference authorizer, in a revision of the wire, as a subject of model.Explore.
func Subject(w *wire.Revision) model.Subject {
	return func(policies []vectors.Policy, mode vectors.FailureMode) (model.Loaded, error) {
		s, err := NewSnapshot(policies)
		if err != nil {
			return nil, err
		}
		s.FailureMode = mode
		a := New(s)
		a.Wire = w
		return a, nil
	}
}

// Where a server answers. The path may be any: a kubeconfig names it.
const (
	// ConditionsPath is for AuthorizationConditionsReview.
	ConditionsPath = "/conditions"
	// ConditionsContext is the context of the kubeconfig that reaches ConditionsPath, named as in the KEP's
	// AuthorizationConfiguration (conditionsEndpointKubeConfigContext).
	ConditionsContext = "authorization-conditions"
)

// Handler serves what answers both reviews, in a revision of the wire: AuthorizationConditionsReview at
// ConditionsPath, SubjectAccessReview everywhere else.
func Handler(w *wire.Revision, r model.Loaded) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ConditionsPath, webhook.Posted(func(body []byte) ([]byte, error) {
		req, err := w.DecodeConditions(body)
		if err != nil {
			return nil, err
		}
		return w.AnswerConditions(r.Evaluate(req))
	}))
	mux.Handle("/", webhook.Posted(func(body []byte) ([]byte, error) {
		spec, err := w.DecodeAccess(body)
		if err != nil {
			return nil, err
		}
		return w.AnswerAccess(r.Review(spec))
	}))
	return mux
}

// Kubeconfig is that of a server, with the context of the conditions' endpoint. It holds a client key.
func Kubeconfig(s *webhook.Server) ([]byte, error) {
	raw, err := s.Kubeconfig()
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("conditional: %w", err)
	}
	current := c.Contexts[c.CurrentContext]
	cluster := c.Clusters[current.Cluster].DeepCopy()
	cluster.Server = s.URL + ConditionsPath
	c.Clusters[ConditionsContext] = cluster
	c.Contexts[ConditionsContext] = &clientcmdapi.Context{Cluster: ConditionsContext, AuthInfo: current.AuthInfo}
	return clientcmd.Write(*c)
}
