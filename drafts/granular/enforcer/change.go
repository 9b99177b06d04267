package enforcer

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Change is what a request would do to an object.
type Change struct {
	Type typed.ParseableType // the type of the object, in the version of the request
	// Old is the stored object. It is nil if there is none. New is the object after the change, with defaults.
	Old, New map[string]any
	// Sent is the body of the request if that is a whole or a partial object, else nil. It is used only if there is no
	// stored object.
	Sent map[string]any
}

// serverOwned are the fields that only the API server sets, or that name the object.
var serverOwned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata", "managedFields"), fieldpath.MakePathOrDie("metadata", "resourceVersion"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "deletionGracePeriodSeconds"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
)

var generateName = fieldpath.MakePathOrDie("metadata", "generateName")

// Paths returns the leaves of all fields that change. On creation, it leaves out fields that are absent from the
// request and that the server has set, because the actor has not chosen them.
func (c Change) Paths() ([]fieldpath.Path, error) {
	old := c.Old
	if old == nil {
		old = map[string]any{}
	}
	before, err := c.Type.FromUnstructured(old, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	after, err := c.Type.FromUnstructured(c.New, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	diff, err := before.Compare(after)
	if err != nil {
		return nil, err
	}
	changed := diff.Removed.Union(diff.Modified).Union(diff.Added).Leaves().RecursiveDifference(serverOwned)
	var out []fieldpath.Path
	changed.Iterate(func(p fieldpath.Path) {
		if len(p) > 0 && c.isChosen(p) {
			out = append(out, p.Copy())
		}
	})
	return append(out, c.findReordered()...), nil
}

// isChosen reports whether the actor has chosen the change of a path. On creation, the server adds fields that the actor
// has not chosen.
func (c Change) isChosen(p fieldpath.Path) bool {
	if c.Old != nil {
		return true
	}
	return isSent(c.Sent, p) && !p.Equals(generateName)
}

// isSent reports whether a path is in the body of a request, down to the first list or empty map in it. Fields that the
// server adds to an item or to an empty map count as sent.
func isSent(body any, p fieldpath.Path) bool {
	for _, e := range p {
		object, ok := body.(map[string]any)
		if !ok || e.FieldName == nil || len(object) == 0 {
			return true
		}
		if body, ok = object[*e.FieldName]; !ok {
			return false
		}
	}
	return true
}
