package model

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// facts are a request and the data of its second phase.
type facts struct {
	user, verb, name, team string
	hasTeam                bool // an extra of the user
	groups                 []string

	operation   string
	object, old vectors.Object
}

// text returns a string in an object, and whether the object has that string.
func text(o vectors.Object, path ...string) (s string, isThere bool) {
	s, isThere, err := unstructured.NestedString(o, path...)
	return s, isThere && err == nil
}

// hasField reports whether an object has anything at a path.
func hasField(o vectors.Object, path ...string) bool {
	_, isThere, err := unstructured.NestedFieldNoCopy(o, path...)
	return isThere && err == nil
}

func truth(b bool) vectors.Truth {
	if b {
		return vectors.True
	}
	return vectors.False
}

// sure returns an atom whose truth follows from the request alone.
func sure(text string, f func(*facts) vectors.Truth) *atom {
	return &atom{text: text, early: f, late: f}
}

// open returns an atom that takes the second phase.
func open(text string, f func(*facts) vectors.Truth) *atom { return &atom{text: text, late: f} }

// field reads a field of an object that may not be there, which is an error.
func field(t func(*facts) vectors.Object, read func(*facts, vectors.Object) (bool, bool)) func(*facts) vectors.Truth {
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

func hasName(o vectors.Object, name string) bool {
	is, _ := text(o, "metadata", "name")
	return is == name
}

func object(f *facts) vectors.Object { return f.object }
func old(f *facts) vectors.Object    { return f.old }

var (
	always = sure("true", func(*facts) vectors.Truth { return vectors.True })
	never  = sure("false", func(*facts) vectors.Truth { return vectors.False })
)

// The atoms. Their truth is computed in Go, independently of CEL.
var (
	sureAtoms = []*atom{
		always,
		never,
		sure(`1 / 0 == 1`, func(*facts) vectors.Truth { return vectors.Error }),
		sure(`request.verb == "create"`, func(f *facts) vectors.Truth { return truth(f.verb == "create") }),
		sure(`request.userInfo.username == "alice"`, func(f *facts) vectors.Truth { return truth(f.user == "alice") }),
		sure(
			`request.userInfo.username in ["alice", "bob"]`,
			func(f *facts) vectors.Truth { return truth(f.user == "alice" || f.user == "bob") },
		),
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
		open(`object.spec.class == "dev"`, field(object, func(_ *facts, o vectors.Object) (bool, bool) {
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
		open(`has(object.spec.class)`, field(object, func(_ *facts, o vectors.Object) (bool, bool) {
			return hasField(o, "spec", "class"), hasField(o, "spec")
		})),
		open(`object.spec.replicas > 3`, field(object, func(_ *facts, o vectors.Object) (bool, bool) {
			n, isThere, err := unstructured.NestedInt64(o, "spec", "replicas") // a text cannot be compared with a number
			return n > 3, isThere && err == nil
		})),
		open(`object.metadata.labels["env"] == "dev"`, field(object, func(_ *facts, o vectors.Object) (bool, bool) {
			env, there := text(o, "metadata", "labels", "env")
			return env == "dev", there
		})),
		open(`"env" in object.metadata.labels`, field(object, func(_ *facts, o vectors.Object) (bool, bool) {
			return hasField(o, "metadata", "labels", "env"), hasField(o, "metadata", "labels")
		})),
		open(
			`oldObject.metadata.name == "gold"`,
			field(old, func(_ *facts, o vectors.Object) (bool, bool) { return hasName(o, "gold"), true }),
		),
		// These atoms have known values in places that the pruning of cel-go does not reach.
		open(
			`object.metadata.name == request.userInfo.username`,
			field(object, func(f *facts, o vectors.Object) (bool, bool) { return hasName(o, f.user), true }),
		),
		open(
			`object.metadata.finalizers.all(f, f != request.userInfo.username)`,
			field(object, func(f *facts, o vectors.Object) (bool, bool) {
				all, isThere, _ := unstructured.NestedStringSlice(o, "metadata", "finalizers")
				return !slices.Contains(all, f.user), isThere
			}),
		),
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
		open(`[object.metadata.name, request.name].exists(n, n == "gold")`, field(object, func(f *facts, o vectors.Object) (bool, bool) {
			return hasName(o, "gold") || f.name == "gold", true
		})),
		open(`object.metadata.labels[request.userInfo.username] == "owner"`, field(object, func(f *facts, o vectors.Object) (bool, bool) {
			v, there := text(o, "metadata", "labels", f.user)
			return v == "owner", there
		})),
	}
)
