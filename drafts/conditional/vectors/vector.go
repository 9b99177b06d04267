// Package vectors has the test vectors of KEP-5681, Conditional Authorization: the Go types of the *.vector.yaml files
// below scenarios/, and a strict loader. It also has the KEP's wire types: the additions to a SubjectAccessReview, and
// AuthorizationConditionsReview. No release of Kubernetes has these types. Names and JSON are those of the KEP's draft,
// and comments mark what the KEP leaves open.
//
// There are two kinds of vectors. An API-server vector judges how decisions are combined: it gives the answers of
// authorizers and the truth of each condition, and says what the API server must make of them. A webhook vector judges an
// authorizer: it gives policies, sends a SubjectAccessReview and then an AuthorizationConditionsReview, and says what the
// answers must be. A table has many API-server vectors in one file.
//
// The package is pure: files are read from an fs.FS.
package vectors

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Suffix is the end of the names of vector files. The loader of scenarios skips such files.
const Suffix = scenarios.VectorSuffix

// Vector is a test case of KEP-5681: what is asked, and every right answer. An API-server vector is about how an API
// server handles them.
//
// It is one file, or one row of a table.
type Vector struct {
	// ID is the path without the suffix. The ID of a row is that path followed by "/" and the chain.
	ID   string `json:"id" yaml:"-"`
	File string `json:"-" yaml:"-"` // the path below the folder that was loaded
	// Description says in a sentence what the text demands.
	Description string           `json:"description" yaml:"description"`
	Source      scenarios.Source `json:"source" yaml:"source"` // the part of the document
	Level       Demand           `json:"level" yaml:"level"`   // how strongly the text demands it

	// One of these three fields is set. After loading, no vector has a Table.
	APIServer *APIServer `json:"apiServer,omitempty" yaml:"apiServer,omitempty"`
	Webhook   *Webhook   `json:"webhook,omitempty" yaml:"webhook,omitempty"`
	Table     *Table     `json:"-" yaml:"table,omitempty"`
}

// Demand is how strongly a document demands something.
type Demand string

// The demands. A demand other than Must is advice: a subject that does not follow it is told so and does not fail.
const (
	Must   Demand = "must"
	Should Demand = "should"
)

// Decision is a concrete decision, or a kind of conditional decision.
type Decision string

// The decisions. A conditional allow has an Allow condition, so it can become Allow. A conditional deny has none
// (KEP-5681, Glossary). A chain is a conditional deny if it is still conditional and cannot become allowed. Conditional
// is used for webhooks, whose whole answer is one chain.
const (
	Allow            Decision = "Allow"
	Deny             Decision = "Deny"
	NoOpinion        Decision = "NoOpinion"
	Conditional      Decision = "Conditional"
	ConditionalAllow Decision = "ConditionalAllow"
	ConditionalDeny  Decision = "ConditionalDeny"
)

// Truth is the result of the evaluation of a condition.
type Truth string

// The truths.
const (
	True  Truth = "true"
	False Truth = "false"
	Error Truth = "error"
)

// Load reads every vector file below a folder, in the order of the paths, and expands tables. The error has one line
// for each wrong file, with file, line and column.
func Load(files fs.FS) ([]*Vector, error) { return scenarios.LoadAll(files, Suffix, Parse) }

// Builtin returns the vectors that come with authzconf.
func Builtin() ([]*Vector, error) { return Load(scenarios.FS) }

// Parse reads one vector file. The ID is made from the name of the file, which is also used in errors.
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

// complete fills in the defaults of fields that may be left out.
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
			all = append(all, c.expand(objects)...)
		}
		a.Conditions = all
	}
}

// expand returns the complete conditions that a condition with Length or Repeat stands for, for a number of objects.
func (c EvaluatedCondition) expand(objects int) (all []EvaluatedCondition) {
	if c.Length > 0 {
		c.Condition.Condition = strings.Repeat("x", c.Length)
	}
	if len(c.PerObject) == 0 {
		c.PerObject = slices.Repeat([]Truth{c.Is}, objects)
	}
	c.Is = c.PerObject[0]
	if c.Repeat == 0 {
		return []EvaluatedCondition{c}
	}
	for n := range c.Repeat {
		one := c
		one.ID = fmt.Sprintf("%s-%d", c.ID, n)
		all = append(all, one)
	}
	return all
}
