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

import "github.com/authzconf/authzconf/scenarios"

// Suffix is the end of the name of a vector file. The loader of scenarios leaves such files alone.
const Suffix = scenarios.VectorSuffix

// Vector is one file, or one row of a table.
type Vector struct {
	// ID is the path without the suffix; a row's is followed by "/" and its chain.
	ID string `json:"id" yaml:"-"`
	// File is the path below the folder that was loaded.
	File string `json:"-" yaml:"-"`
	// Description says what the text demands, in a sentence.
	Description string `json:"description" yaml:"description"`
	// Source is the part of the document.
	Source scenarios.Source `json:"source" yaml:"source"`
	// Level is how strongly the text demands it.
	Level Demand `json:"level" yaml:"level"`

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
