package model

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// expression is a tree of logical operators with atoms as leaves.
type expression struct {
	// op is &&, ||, ! or ?:, or empty for an atom.
	op   string
	args []*expression
	atom *atom
}

// atom is a part of an expression, and what it is of given data.
type atom struct {
	text string
	// early is what the atom is if only the request is known; nil says that it takes the rest.
	early func(*facts) vectors.Truth
	late  func(*facts) vectors.Truth
}

// unknown is the fourth value: what only the second phase shows.
const unknown vectors.Truth = "unknown"

// String is the expression in CEL.
func (e *expression) String() string {
	switch e.op {
	case "":
		return e.atom.text
	case "!":
		return "!(" + e.args[0].String() + ")"
	case "?:":
		return "(" + e.args[0].String() + " ? " + e.args[1].String() + " : " + e.args[2].String() + ")"
	}
	parts := make([]string, 0, len(e.args))
	for _, a := range e.args {
		parts = append(parts, a.String())
	}
	return "(" + strings.Join(parts, " "+e.op+" ") + ")"
}

// value is what the expression is, with everything known or only the request. CEL's logical operators commute,
// also with an error on one side (CEL specification, "Logical Operators"); what is unknown outweighs an error.
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
		return combined(e.args, f, all, vectors.False, vectors.True)
	}
	return combined(e.args, f, all, vectors.True, vectors.False)
}

// anything is what an unknown part can be.
var anything = []vectors.Truth{vectors.True, vectors.False, vectors.Error}

// possible is what the expression can evaluate to in the second phase, as far as the request and its verb tell.
// Each part is taken for itself, so it may be less.
func (e *expression) possible(f *facts) []vectors.Truth {
	switch {
	case e.op == "" && e.atom.early != nil:
		if truth := e.atom.early(f); truth != unknown {
			return []vectors.Truth{truth}
		}
		fallthrough
	case e.op == "":
		if e.atom.told(f) {
			return []vectors.Truth{e.atom.late(f)}
		}
		return anything
	}
	all := make([][]vectors.Truth, len(e.args))
	for i, a := range e.args {
		all[i] = a.possible(f)
	}
	var out []vectors.Truth
	for _, w := range ways(all) {
		fixed := &expression{op: e.op}
		for _, truth := range w {
			fixed.args = append(fixed.args, leaf(sure("", func(*facts) vectors.Truth { return truth })))
		}
		if v := fixed.value(f, true); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// ways are all that can be chosen, one truth of each part.
func ways(parts [][]vectors.Truth) [][]vectors.Truth {
	out := [][]vectors.Truth{nil}
	for _, of := range parts {
		var next [][]vectors.Truth
		for _, w := range out {
			for _, truth := range of {
				next = append(next, append(w[:len(w):len(w)], truth))
			}
		}
		out = next
	}
	return out
}

// told says whether the verb settles the atom: before a create there is no oldObject, and a delete sends no object
// and is a DELETE.
func (a *atom) told(f *facts) bool {
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

// combined is decisive if any argument is, else unknown, error or neutral.
func combined(args []*expression, f *facts, all bool, decisive, neutral vectors.Truth) vectors.Truth {
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

// smaller are expressions with less in them, those with least first.
func (e *expression) smaller() (out []*expression) {
	if e.op == "" {
		if e.atom.text != "true" && e.atom.text != "false" {
			return []*expression{leaf(always), leaf(never)}
		}
		return nil
	}
	out = append(out, leaf(always), leaf(never))
	out = append(out, e.args...)
	for i, a := range e.args {
		for _, s := range a.smaller() {
			args := append([]*expression{}, e.args...)
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
