package model

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// facts are one request and the data of its second phase.
type facts struct {
	user, verb, name, team string
	hasTeam                bool // an extra of the user
	groups                 []string

	operation string
	object    *thing
	old       *thing
}

// thing is an object. Nil pointers are fields that are not there.
type thing struct {
	name       string
	class      *string
	replicas   any // an int64, a string, or nil: not there
	labels     map[string]string
	finalizers []string
	noSpec     bool
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
func of(t func(*facts) *thing, read func(*facts, *thing) (bool, bool)) func(*facts) vectors.Truth {
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

func object(f *facts) *thing { return f.object }
func old(f *facts) *thing    { return f.old }

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
		open(`object.spec.class == "dev"`, of(object, func(_ *facts, o *thing) (bool, bool) {
			return o.class != nil && *o.class == "dev", !o.noSpec && o.class != nil
		})),
		open(`oldObject.spec.class == object.spec.class`, func(f *facts) vectors.Truth {
			for _, o := range []*thing{f.old, f.object} {
				if o == nil || o.noSpec || o.class == nil {
					return vectors.Error
				}
			}
			return truth(*f.old.class == *f.object.class)
		}),
		open(`has(object.spec.class)`, of(object, func(_ *facts, o *thing) (bool, bool) { return o.class != nil, !o.noSpec })),
		open(`object.spec.replicas > 3`, of(object, func(_ *facts, o *thing) (bool, bool) {
			n, ok := o.replicas.(int64) // a text has no order with a number
			return n > 3, ok && !o.noSpec
		})),
		open(`object.metadata.labels["env"] == "dev"`, of(object, func(_ *facts, o *thing) (bool, bool) {
			v, ok := o.labels["env"]
			return v == "dev", ok
		})),
		open(`"env" in object.metadata.labels`, of(object, func(_ *facts, o *thing) (bool, bool) {
			_, ok := o.labels["env"]
			return ok, o.labels != nil
		})),
		open(`oldObject.metadata.name == "gold"`, of(old, func(_ *facts, o *thing) (bool, bool) { return o.name == "gold", true })),
		// With what is known in places that cel-go's pruning does not look into.
		open(`object.metadata.name == request.userInfo.username`, of(object, func(f *facts, o *thing) (bool, bool) { return o.name == f.user, true })),
		open(`object.metadata.finalizers.all(f, f != request.userInfo.username)`, of(object, func(f *facts, o *thing) (bool, bool) {
			return !slices.Contains(o.finalizers, f.user), o.finalizers != nil
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
				switch {
				case len(f.groups) == 0:
					return vectors.False
				case f.object == nil || f.object.noSpec || f.object.class == nil:
					return vectors.Error
				}
				return truth(slices.Contains(f.groups, *f.object.class))
			},
		},
		open(`[object.metadata.name, request.name].exists(n, n == "gold")`, of(object, func(f *facts, o *thing) (bool, bool) {
			return o.name == "gold" || f.name == "gold", true
		})),
		open(`object.metadata.labels[request.userInfo.username] == "owner"`, of(object, func(f *facts, o *thing) (bool, bool) {
			v, ok := o.labels[f.user]
			return v == "owner", ok
		})),
	}
)
