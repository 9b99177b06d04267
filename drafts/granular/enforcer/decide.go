package enforcer

import (
	"cmp"
	"slices"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// Ask asks the authorizer whether the actor has one verb.
type Ask func(verb string) (allowed bool, err error)

// MissingPermission is the reason for a denial: a field that no permission covers.
type MissingPermission struct {
	Field string `json:"field"` // its path
	// Verb is the last permission that was asked for the field. It is empty if the field has no permission.
	Verb string `json:"verb,omitempty"`
}

// ChangedField is a field that a request changes.
type ChangedField struct {
	Path  string
	Chain permissions.Chain
}

type question struct {
	verb   string
	depth  int
	fields []int
}

// Decide asks for permissions from the most general to the most specific. It asks for each once, and only while a field
// needs it, until every field is covered, or a field can no longer be covered (KEP-3617, steps 5 and 8).
func Decide(fields []ChangedField, ask Ask) (*MissingPermission, error) {
	questions, open := plan(fields)
	for i, f := range fields {
		if open[i] == 0 {
			return &MissingPermission{Field: f.Path}, nil
		}
	}
	isCovered := make([]bool, len(fields))
	for _, q := range questions {
		if !slices.ContainsFunc(q.fields, func(i int) bool { return !isCovered[i] }) {
			continue
		}
		allowed, err := ask(q.verb)
		if err != nil {
			return nil, err
		}
		for _, i := range q.fields {
			open[i]--
			isCovered[i] = isCovered[i] || allowed
			if !isCovered[i] && open[i] == 0 {
				return &MissingPermission{Field: fields[i].Path, Verb: q.verb}, nil
			}
		}
	}
	return nil, nil
}

// plan returns the questions in order, and the number of questions for each field.
func plan(fields []ChangedField) (questions []*question, open []int) {
	byVerb := map[string]*question{}
	open = make([]int, len(fields))
	for i, f := range fields {
		for _, p := range f.Chain {
			q := byVerb[p.Verb]
			if q == nil {
				q = &question{verb: p.Verb, depth: p.Depth}
				byVerb[p.Verb] = q
				questions = append(questions, q)
			}
			q.depth = min(q.depth, p.Depth)
			if n := len(q.fields); n == 0 || q.fields[n-1] != i {
				q.fields = append(q.fields, i)
				open[i]++
			}
		}
	}
	slices.SortFunc(questions, func(a, b *question) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.verb, b.verb))
	})
	return questions, open
}
