package model

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
)

// expression is a tree of logical operators with atoms as leaves.
type expression struct {
	op   string // &&, ||, ! or ?:, or empty for an atom
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
func (e *expression) possible(f *facts) (out []vectors.Truth) {
	if e.op == "" {
		if truth := e.value(f, false); truth != unknown {
			return []vectors.Truth{truth}
		}
		if e.atom.told(f) {
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

// ways are all that can be chosen, one truth of each part.
func ways(parts [][]vectors.Truth) [][]vectors.Truth {
	out := [][]vectors.Truth{nil}
	for _, of := range parts {
		var next [][]vectors.Truth
		for _, w := range out {
			next = append(next, seq.Map(of, func(truth vectors.Truth) []vectors.Truth { return append(w[:len(w):len(w)], truth) })...)
		}
		out = next
	}
	return out
}

// told says whether the verb settles the atom: a create has no oldObject, and a delete sends no object and is a DELETE.
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

// facts are one request and the data of its second phase.
type facts struct {
	user, verb, name, team string
	hasTeam                bool // an extra of the user
	groups                 []string

	operation   string
	object, old vectors.Object
}

// text is a string of an object; there says whether it has one.
func text(o vectors.Object, path ...string) (s string, there bool) {
	s, there, err := unstructured.NestedString(o, path...)
	return s, there && err == nil
}

// holds says whether an object has anything at a path.
func holds(o vectors.Object, path ...string) bool {
	_, there, err := unstructured.NestedFieldNoCopy(o, path...)
	return there && err == nil
}

func truth(b bool) vectors.Truth {
	if b {
		return vectors.True
	}
	return vectors.False
}

// sure are atoms of what is known early.
func sure(text string, f func(*facts) vectors.Truth) *atom {
	return &atom{text: text, early: f, late: f}
}

// open are atoms that take the second phase.
func open(text string, f func(*facts) vectors.Truth) *atom { return &atom{text: text, late: f} }

// of reads a field of an object that may not be there, which is an error.
func of(t func(*facts) vectors.Object, read func(*facts, vectors.Object) (bool, bool)) func(*facts) vectors.Truth {
	return func(f *facts) vectors.Truth {
		o := t(f)
		if o == nil {
			return vectors.Error // null has no fields
		}
		value, there := read(f, o)
		if !there {
			return vectors.Error
		}
		return truth(value)
	}
}

func named(o vectors.Object, name string) bool {
	is, _ := text(o, "metadata", "name")
	return is == name
}

func object(f *facts) vectors.Object { return f.object }
func old(f *facts) vectors.Object    { return f.old }

var (
	always = sure("true", func(*facts) vectors.Truth { return vectors.True })
	never  = sure("false", func(*facts) vectors.Truth { return vectors.False })
)

// The atoms. What each is of given data is said here once more, not asked of CEL.
var (
	sureAtoms = []*atom{
		always, never,
		sure(`1 / 0 == 1`, func(*facts) vectors.Truth { return vectors.Error }),
		sure(`request.verb == "create"`, func(f *facts) vectors.Truth { return truth(f.verb == "create") }),
		sure(`request.userInfo.username == "alice"`, func(f *facts) vectors.Truth { return truth(f.user == "alice") }),
		sure(`request.userInfo.username in ["alice", "bob"]`, func(f *facts) vectors.Truth { return truth(f.user == "alice" || f.user == "bob") }),
		sure(`"dev" in request.userInfo.groups`, func(f *facts) vectors.Truth { return truth(slices.Contains(f.groups, "dev")) }),
		sure(`request.userInfo.groups.exists(g, g.startsWith("d"))`, func(f *facts) vectors.Truth {
			return truth(slices.ContainsFunc(f.groups, func(g string) bool { return strings.HasPrefix(g, "d") }))
		}),
		sure(`has(request.name)`, func(*facts) vectors.Truth { return vectors.True }),
		sure(`request.userInfo.extra["team"][0] == "blue"`, func(f *facts) vectors.Truth {
			if !f.hasTeam {
				return vectors.Error
			}
			return truth(f.team == "blue")
		}),
		sure(`"team" in request.userInfo.extra`, func(f *facts) vectors.Truth { return truth(f.hasTeam) }),
	}
	openAtoms = []*atom{
		open(`operation == "CREATE"`, func(f *facts) vectors.Truth { return truth(f.operation == "CREATE") }),
		open(`oldObject == null`, func(f *facts) vectors.Truth { return truth(f.old == nil) }),
		open(`object.spec.class == "dev"`, of(object, func(_ *facts, o vectors.Object) (bool, bool) {
			class, there := text(o, "spec", "class")
			return class == "dev", there
		})),
		open(`oldObject.spec.class == object.spec.class`, func(f *facts) vectors.Truth {
			was, before := text(f.old, "spec", "class")
			is, now := text(f.object, "spec", "class")
			if !before || !now {
				return vectors.Error
			}
			return truth(was == is)
		}),
		open(`has(object.spec.class)`, of(object, func(_ *facts, o vectors.Object) (bool, bool) { return holds(o, "spec", "class"), holds(o, "spec") })),
		open(`object.spec.replicas > 3`, of(object, func(_ *facts, o vectors.Object) (bool, bool) {
			n, there, err := unstructured.NestedInt64(o, "spec", "replicas") // a text has no order with a number
			return n > 3, there && err == nil
		})),
		open(`object.metadata.labels["env"] == "dev"`, of(object, func(_ *facts, o vectors.Object) (bool, bool) {
			env, there := text(o, "metadata", "labels", "env")
			return env == "dev", there
		})),
		open(`"env" in object.metadata.labels`, of(object, func(_ *facts, o vectors.Object) (bool, bool) {
			return holds(o, "metadata", "labels", "env"), holds(o, "metadata", "labels")
		})),
		open(`oldObject.metadata.name == "gold"`, of(old, func(_ *facts, o vectors.Object) (bool, bool) { return named(o, "gold"), true })),
		// With what is known in places that cel-go's pruning does not look into.
		open(`object.metadata.name == request.userInfo.username`, of(object, func(f *facts, o vectors.Object) (bool, bool) { return named(o, f.user), true })),
		open(`object.metadata.finalizers.all(f, f != request.userInfo.username)`, of(object, func(f *facts, o vectors.Object) (bool, bool) {
			all, there, _ := unstructured.NestedStringSlice(o, "metadata", "finalizers")
			return !slices.Contains(all, f.user), there
		})),
		{
			text: `request.userInfo.groups.exists(g, g == object.spec.class)`,
			early: func(f *facts) vectors.Truth {
				if len(f.groups) == 0 {
					return vectors.False // nobody asks the object
				}
				return unknown
			},
			late: func(f *facts) vectors.Truth {
				class, there := text(f.object, "spec", "class")
				if len(f.groups) > 0 && !there {
					return vectors.Error
				}
				return truth(slices.Contains(f.groups, class))
			},
		},
		open(`[object.metadata.name, request.name].exists(n, n == "gold")`, of(object, func(f *facts, o vectors.Object) (bool, bool) {
			return named(o, "gold") || f.name == "gold", true
		})),
		open(`object.metadata.labels[request.userInfo.username] == "owner"`, of(object, func(f *facts, o vectors.Object) (bool, bool) {
			v, there := text(o, "metadata", "labels", f.user)
			return v == "owner", there
		})),
	}
)
