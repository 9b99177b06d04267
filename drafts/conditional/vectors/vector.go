// Package vectors holds the test vectors of KEP-5681, Conditional Authorization: the Go types of the *.vector.yaml
// files below scenarios/, and a strict loader. It also has the KEP's wire types: what a SubjectAccessReview gains,
// and AuthorizationConditionsReview. No release of Kubernetes has them; names and JSON are those of the KEP's
// draft, and what the KEP leaves open is marked.
//
// There are two kinds of vectors. An API-server vector judges the algebra of decisions: what authorizers answer is
// given, also what each condition evaluates to, and the vector says what an API server makes of it. A webhook
// vector judges an authorizer: given policies, a SubjectAccessReview and then an AuthorizationConditionsReview are
// sent, and the vector says what the answers are. A table is many API-server vectors in one file.
//
// The package is pure: what is read comes from an fs.FS.
package vectors

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/authzconf/authzconf/scenarios"
)

// Suffix is the end of the name of a vector file. The loader of scenarios leaves such files alone.
const Suffix = scenarios.VectorSuffix

// Vector is one file, or one row of a table.
type Vector struct {
	// ID is the path without the suffix; a row's is followed by "/" and its chain.
	ID   string `json:"id" yaml:"-"`
	File string `json:"-" yaml:"-"` // the path below the folder that was loaded
	// Description says what the text demands, in a sentence.
	Description string           `json:"description" yaml:"description"`
	Source      scenarios.Source `json:"source" yaml:"source"` // the part of the document
	Level       Demand           `json:"level" yaml:"level"`   // how strongly the text demands it

	// One of the three is there; after loading no Table is.
	APIServer *APIServer `json:"apiServer,omitempty" yaml:"apiServer,omitempty"`
	Webhook   *Webhook   `json:"webhook,omitempty" yaml:"webhook,omitempty"`
	Table     *Table     `json:"-" yaml:"table,omitempty"`
}

// Demand is how strongly a document demands something.
type Demand string

// The demands. What is not Must is advice: a subject that does otherwise is told so and does not fail.
const (
	Must   Demand = "must"
	Should Demand = "should"
)

// Decision is a concrete decision, or what kind of conditional one.
type Decision string

// The decisions. A conditional allow has an Allow condition, so it can become Allow; a conditional deny has none
// (KEP-5681, Glossary). Of a chain, a conditional deny is whatever is still conditional and cannot become allowed.
// Conditional is used of webhooks, where one chain is the whole answer.
const (
	Allow            Decision = "Allow"
	Deny             Decision = "Deny"
	NoOpinion        Decision = "NoOpinion"
	Conditional      Decision = "Conditional"
	ConditionalAllow Decision = "ConditionalAllow"
	ConditionalDeny  Decision = "ConditionalDeny"
)

// Truth is what a condition evaluates to.
type Truth string

// The truths.
const (
	True  Truth = "true"
	False Truth = "false"
	Error Truth = "error"
)

// Load reads every vector file below a folder, in the order of their paths, with tables written out. The error has
// one line for each file that is wrong, with file, line and column.
func Load(files fs.FS) ([]*Vector, error) { return scenarios.LoadAll(files, Suffix, Parse) }

// Builtin are the vectors that come with authzconf.
func Builtin() ([]*Vector, error) { return Load(scenarios.FS) }

// Parse reads one vector file. Its name gives the ID and stands in errors.
func Parse(name string, raw []byte) ([]*Vector, error) {
	v := &Vector{}
	f, err := scenarios.Decode(name, raw, "a test vector", v)
	if err != nil {
		return nil, err
	}
	v.ID, v.File = strings.TrimSuffix(name, Suffix), name
	c := &checker{file: f}
	c.vector(v)
	if c.err != nil {
		return nil, c.err
	}
	if v.Table == nil {
		complete(v)
		return []*Vector{v}, nil
	}
	rows := v.Table.expand(v)
	for i, row := range rows {
		c.apiServer(row.APIServer, fmt.Sprintf("$.table.rows[%d]", i))
		complete(row)
	}
	return rows, c.err
}

// expand makes an API-server vector of each row.
func (t *Table) expand(v *Vector) []*Vector {
	out := make([]*Vector, 0, len(t.Rows))
	for _, row := range t.Rows {
		m := &APIServer{Server: t.Server, Request: t.Request, Want: row.Want, Eager: row.Eager}
		m.Chain, m.Compound = t.chain(row.Chain), t.chain(row.Compound)
		words := strings.Fields(row.Chain)
		if row.Compound != "" {
			words = append(append(words, "then"), strings.Fields(row.Compound)...)
		}
		out = append(out, &Vector{
			ID: v.ID + "/" + strings.Join(words, "."), File: v.File,
			Description: v.Description + ": " + strings.Join(words, ", "),
			Source:      v.Source, Level: v.Level, APIServer: m,
		})
	}
	return out
}

func (t *Table) chain(words string) (out []Authorizer) {
	for word := range strings.FieldsSeq(words) {
		a := t.Authorizers[word]
		a.Conditions = slices.Clone(a.Conditions)
		out = append(out, a)
	}
	return out
}

// complete fills in what may be left out, so that nobody else has to know.
func complete(v *Vector) {
	if v.Webhook != nil {
		v.Webhook.FailureMode = cmp.Or(v.Webhook.FailureMode, FailDeny)
		return
	}
	m := v.APIServer
	m.Server.Version, m.Server.Gate, m.Server.Plugin = cmp.Or(m.Server.Version, "new"), cmp.Or(m.Server.Gate, "on"), cmp.Or(m.Server.Plugin, "on")
	if m.Request.Verb == "" && m.Request.Resource == "" {
		m.Request.Verb, m.Request.APIVersion, m.Request.Resource = "create", "v1", "configmaps"
	}
	m.Request.Served, m.Request.Mode = cmp.Or(m.Request.Served, "self"), cmp.Or(m.Request.Mode, string(Optimized))
	m.Objects = max(m.Objects, 1)
	completeChain(m.Chain, m.Objects)
	completeChain(m.Compound, m.Objects)
}

func completeChain(chain []Authorizer, objects int) {
	for i := range chain {
		a := &chain[i]
		a.Name, a.FailureMode = cmp.Or(a.Name, fmt.Sprintf("a%d", i)), cmp.Or(a.FailureMode, FailDeny)
		var all []EvaluatedCondition
		for _, c := range a.Conditions {
			if c.Length > 0 {
				c.Condition.Condition = strings.Repeat("x", c.Length)
			}
			if len(c.PerObject) == 0 {
				c.PerObject = slices.Repeat([]Truth{c.Is}, objects)
			}
			c.Is = c.PerObject[0]
			for n := range max(c.Repeat, 1) {
				one := c
				if c.Repeat > 0 {
					one.ID = fmt.Sprintf("%s-%d", c.ID, n)
				}
				all = append(all, one)
			}
		}
		a.Conditions = all
	}
}

// Mode is ConditionsMode: whether a client wants conditions, and in which form.
type Mode string

// The modes (section "Core interface changes").
const (
	// None: the client does not support conditions and never gets any.
	None Mode = ""
	// HumanReadable: condition and description for people.
	HumanReadable Mode = "HumanReadable"
	// Optimized: an encoding for programs, without description.
	Optimized Mode = "Optimized"
)

// Effects are those of conditions and policies, the strongest first: the decision that a set becomes if one is true.
func Effects() []Decision { return []Decision{Deny, NoOpinion, Allow} }

// SubjectAccessReviewSpec is what is asked.
type SubjectAccessReviewSpec struct {
	authorizationv1.SubjectAccessReviewSpec `json:",inline"`
	// ConditionalAuthorization is nil if the client does not support conditions.
	ConditionalAuthorization *ConditionalAuthorizationConfiguration `json:"conditionalAuthorization,omitempty"`
}

// ConditionalAuthorizationConfiguration is what the client says about conditions.
type ConditionalAuthorizationConfiguration struct {
	Mode Mode `json:"mode,omitempty"`
}

// Mode is the one that the client asks for.
func (s SubjectAccessReviewSpec) Mode() Mode {
	if s.ConditionalAuthorization == nil {
		return None
	}
	return s.ConditionalAuthorization.Mode
}

// SubjectAccessReviewStatus is the answer.
type SubjectAccessReviewStatus struct {
	Allowed         bool   `json:"allowed"`
	Denied          bool   `json:"denied,omitempty"`
	Reason          string `json:"reason,omitempty"`
	EvaluationError string `json:"evaluationError,omitempty"`
	// ConditionsChain has a set for each authorizer, in their order. If it is not nil, Allowed and Denied are false.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// AuthorizationConditionsResponse is the decision on the conditions, and says it as a status does. In some revisions
// of the wire conditions can evaluate to conditions.
type AuthorizationConditionsResponse = SubjectAccessReviewStatus

// Decision is what the answer says. A conditionsChain without sets, which breaks a rule, is not Conditional.
func (s *SubjectAccessReviewStatus) Decision() Decision {
	switch {
	case len(s.ConditionsChain) > 0:
		return Conditional
	case s.Denied:
		return Deny
	case s.Allowed:
		return Allow
	}
	return NoOpinion
}

// ConditionSet is SubjectAccessReviewConditionSet: what one authorizer says.
type ConditionSet struct {
	// Allowed, Denied, Conditions and ConditionsChain exclude each other.
	Allowed        bool        `json:"allowed,omitempty"`
	Denied         bool        `json:"denied,omitempty"`
	FailureMode    FailureMode `json:"failureMode,omitempty"` // what becomes of an error in a Deny condition
	AuthorizerName string      `json:"authorizerName"`        // unique within the server
	// Conditions have no order.
	Conditions []Condition `json:"conditions,omitempty"`
	// ConditionsChain are the sets of authorizers behind a composite one, in order; not every revision has it.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// Leaves are the sets of a chain without sets of sets, in the order of their evaluation.
func Leaves(chain []ConditionSet) (out []ConditionSet) {
	for _, s := range chain {
		if s.ConditionsChain == nil {
			out = append(out, s)
		}
		out = append(out, Leaves(s.ConditionsChain)...)
	}
	return out
}

// FailureMode says what an error in a Deny condition becomes. The KEP names type and outcomes, not the values.
type FailureMode string

// The two failure modes.
const (
	FailDeny      FailureMode = "Deny"
	FailNoOpinion FailureMode = "NoOpinion"
)

// Condition is SubjectAccessReviewCondition.
type Condition struct {
	ID          string   `json:"id"` // unique within the authorizer's set
	Effect      Decision `json:"effect"`
	Type        string   `json:"type"`
	Condition   string   `json:"condition"`
	Description string   `json:"description,omitempty"`
}

// AuthorizationConditionsRequest has the sets as the authorizer gave them, and what was unknown then.
type AuthorizationConditionsRequest struct {
	ConditionSets []ConditionSet `json:"conditionSets,omitempty"`
	ConditionData `json:",inline"`
}

// ConditionData is what is known in admission and not before. The KEP has these as the methods of the interface
// ConditionData ("Core interface changes") and does not list their JSON: the names are those of AdmissionReview.
type ConditionData struct {
	Operation string `json:"operation,omitempty"` // CREATE, UPDATE, DELETE or CONNECT
	Options   Object `json:"options,omitzero"`    // the operation's, for example CreateOptions
	// Object is there for CREATE, UPDATE and CONNECT, OldObject for UPDATE and DELETE.
	Object    Object `json:"object,omitzero"`
	OldObject Object `json:"oldObject,omitzero"`
	// NamespaceObject is an open question of the KEP, and needed by its DRA example.
	NamespaceObject Object `json:"namespaceObject,omitzero"`
	// ImpersonatedRequest is what is unknown when impersonation is authorized.
	ImpersonatedRequest *ImpersonatedRequest `json:"impersonatedRequest,omitempty"`
}

// ImpersonatedRequest is the request that somebody wants to make as another user (section "Constrained
// Impersonation through Conditional Authorization"). The KEP's expressions have its verb, apiGroup and resource,
// named as in request; so are the others here, with the user as userInfo.
type ImpersonatedRequest struct {
	Verb        string                     `json:"verb"`
	APIGroup    string                     `json:"apiGroup"`
	APIVersion  string                     `json:"apiVersion"`
	Resource    string                     `json:"resource"`
	Subresource string                     `json:"subresource"`
	Namespace   string                     `json:"namespace"`
	Name        string                     `json:"name"`
	UserInfo    *authenticationv1.UserInfo `json:"userInfo,omitempty"` // the whole user that is impersonated
}

// Object is a JSON object, nil if there is none. Whole numbers in it are read as int64, as an API server reads them.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	return utiljson.Unmarshal(raw, (*map[string]any)(o))
}

// RequestVariable is the name of the variable of what the first phase knows.
const RequestVariable = "request"

// LateVariables are the names of the variables of the second phase.
func LateVariables() []string {
	return []string{"operation", "options", "object", "oldObject", "namespaceObject", "impersonatedRequest"}
}

// RequestFields is the value of RequestVariable: every field that Policy lists.
func RequestFields(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	r, path := authorizationv1.ResourceAttributes{}, ""
	if s.ResourceAttributes != nil {
		r = *s.ResourceAttributes
	} else if s.NonResourceAttributes != nil {
		r.Verb, path = s.NonResourceAttributes.Verb, s.NonResourceAttributes.Path
	}
	out := fields(ImpersonatedRequest{r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name, nil})
	out["path"], out["userInfo"] = path, userFields(s.User, s.UID, s.Groups, s.Extra)
	return out
}

// Variables are the values of LateVariables. What is absent is null.
func (d ConditionData) Variables() map[string]any {
	out := map[string]any{"operation": d.Operation, "impersonatedRequest": nil}
	for name, o := range map[string]Object{"object": d.Object, "oldObject": d.OldObject, "options": d.Options, "namespaceObject": d.NamespaceObject} {
		out[name] = nil
		if o != nil {
			out[name] = map[string]any(o)
		}
	}
	if r := d.ImpersonatedRequest; r != nil {
		of := fields(*r)
		if u := r.UserInfo; u != nil {
			of["userInfo"] = userFields(u.Username, u.UID, u.Groups, u.Extra)
		}
		out["impersonatedRequest"] = of
	}
	return out
}

func fields(r ImpersonatedRequest) map[string]any {
	return map[string]any{
		"verb": r.Verb, "apiGroup": r.APIGroup, "apiVersion": r.APIVersion, "resource": r.Resource, "subresource": r.Subresource,
		"namespace": r.Namespace, "name": r.Name,
	}
}

func userFields[V ~[]string](name, uid string, groups []string, extra map[string]V) map[string]any {
	all := make(map[string]any, len(extra))
	for k, v := range extra {
		all[k] = []string(v)
	}
	return map[string]any{"username": name, "uid": uid, "groups": slices.Clone(groups), "extra": all}
}
