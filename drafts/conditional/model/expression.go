package model

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
)

// expression is a tree of logical operators with atoms as leaves.
type expression struct {
	op   string // &&, ||, ! or ?:, or empty for an atom
	args []*expression
	atom *atom
}

// atom is the smallest part of an expression, with functions that return its truth.
type atom struct {
	text string
	// early returns the truth of the atom if only the request is known. It is nil if that is not enough.
	early func(*facts) vectors.Truth
	late  func(*facts) vectors.Truth
}

// unknown is the fourth truth of an expression: only the second phase can decide it.
const unknown vectors.Truth = "unknown"

func (e *expression) String() string {
	switch e.op {
	case "":
		return e.atom.text
	case "!":
		return "!(" + e.args[0].String() + ")"
	case "?:":
		return "(" + e.args[0].String() + " ? " + e.args[1].String() + " : " + e.args[2].String() + ")"
	}
	return "(" + strings.Join(seq.Map(e.args, (*expression).String), " "+e.op+" ") + ")"
}

// value returns the truth of the expression, with everything known or with only the request known. CEL's logical
// operators commute, also with an error on one side (CEL specification, "Logical Operators"). An unknown part takes
// precedence over an error.
func (e *expression) value(f *facts, all bool) vectors.Truth {
	switch e.op {
	case "":
		if all {
			return e.atom.late(f)
		}
		if e.atom.early == nil {
			return unknown
		}
		return e.atom.early(f)
	case "!":
		return not(e.args[0].value(f, all))
	case "?:":
		switch c := e.args[0].value(f, all); c {
		case vectors.True:
			return e.args[1].value(f, all)
		case vectors.False:
			return e.args[2].value(f, all)
		default:
			return c
		}
	case "&&":
		return combine(e.args, f, all, vectors.False, vectors.True)
	}
	return combine(e.args, f, all, vectors.True, vectors.False)
}

// anything lists the truths that an unknown part can have.
var anything = []vectors.Truth{vectors.True, vectors.False, vectors.Error}

// possible returns the truths that the expression can have in the second phase, as far as the request and its verb
// decide that. Each part is considered separately, so some of these truths may be impossible.
func (e *expression) possible(f *facts) (out []vectors.Truth) {
	if e.op == "" {
		if truth := e.value(f, false); truth != unknown {
			return []vectors.Truth{truth}
		}
		if e.atom.isSettled(f) {
			return []vectors.Truth{e.atom.late(f)}
		}
		return anything
	}
	all := seq.Map(e.args, func(a *expression) []vectors.Truth { return a.possible(f) })
	for _, w := range ways(all) {
		fixed := &expression{op: e.op, args: seq.Map(w, func(truth vectors.Truth) *expression {
			return leaf(sure("", func(*facts) vectors.Truth { return truth }))
		})}
		out = seq.AppendMissing(out, fixed.value(f, true))
	}
	return out
}

// ways returns all combinations of one truth of each part.
func ways(parts [][]vectors.Truth) [][]vectors.Truth {
	out := [][]vectors.Truth{nil}
	for _, part := range parts {
		var next [][]vectors.Truth
		for _, w := range out {
			next = append(next, seq.Map(part, func(truth vectors.Truth) []vectors.Truth { return append(w[:len(w):len(w)], truth) })...)
		}
		out = next
	}
	return out
}

// isSettled reports whether the verb decides the atom: a create has no oldObject, and a delete has no object and the
// operation DELETE.
func (a *atom) isSettled(f *facts) bool {
	old := strings.Contains(a.text, "oldObject")
	object := strings.Contains(strings.ReplaceAll(a.text, "oldObject", ""), "object")
	switch f.verb {
	case "create":
		return old
	case "delete":
		return object || strings.Contains(a.text, "operation")
	}
	return false
}

// combine returns decisive if any argument is, else unknown, error or neutral.
func combine(args []*expression, f *facts, all bool, decisive, neutral vectors.Truth) vectors.Truth {
	out := neutral
	for _, a := range args {
		switch t := a.value(f, all); {
		case t == decisive:
			return decisive
		case t == unknown, t == vectors.Error && out != unknown:
			out = t
		}
	}
	return out
}

func not(t vectors.Truth) vectors.Truth {
	switch t {
	case vectors.True:
		return vectors.False
	case vectors.False:
		return vectors.True
	}
	return t
}

// smaller returns expressions with fewer parts, the smallest first.
func (e *expression) smaller() (out []*expression) {
	if e.atom == always || e.atom == never {
		return nil
	}
	out = append(out, leaf(always), leaf(never))
	out = append(out, e.args...)
	for i, a := range e.args {
		for _, s := range a.smaller() {
			args := slices.Clone(e.args)
			args[i] = s
			out = append(out, &expression{op: e.op, args: args})
		}
	}
	if len(e.args) > 2 && e.op != "?:" {
		out = append(out, &expression{op: e.op, args: e.args[1:]}, &expression{op: e.op, args: e.args[:len(e.args)-1]})
	}
	return out
}

func leaf(a *atom) *expression { return &expression{atom: a} }
