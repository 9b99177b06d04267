package enforcer

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/authzconf/authzconf/granular/permissions"
)

// Change is what a request would do to an object.
type Change struct {
	// Type is that of the object, in the version of the request.
	Type typed.ParseableType
	// Old is the stored object, nil if there is none; New is what it becomes, with defaults.
	Old, New map[string]any
	// Sent is the body of the request where it is a whole or a partial object, else
	// nil. It matters only where there is no stored object.
	Sent map[string]any
}

// server is what the API server alone decides of, or what names the object.
var server = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata", "managedFields"), fieldpath.MakePathOrDie("metadata", "resourceVersion"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "deletionGracePeriodSeconds"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
)

var generateName = fieldpath.MakePathOrDie("metadata", "generateName")

// Paths are the fields that change, the leaves of each. A field that is absent from the request and was given a
// value by the server on creation is not among them: the actor has not chosen it.
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
	changed := diff.Removed.Union(diff.Modified).Union(diff.Added).Leaves().RecursiveDifference(server)
	var out []fieldpath.Path
	changed.Iterate(func(p fieldpath.Path) {
		if len(p) > 0 && (c.Old != nil || sent(c.Sent, p) && !p.Equals(generateName)) {
			out = append(out, p.Copy())
		}
	})
	return append(out, c.reordered()...), nil
}

// sent says whether a path is in the body of a request, down to its first list or empty map: what the server adds
// to an item, or puts into what was sent empty, counts as sent.
func sent(body any, p fieldpath.Path) bool {
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

// ChainOf is the permissions of a field.
func ChainOf(root *permissions.Node, path fieldpath.Path) (out permissions.Chain) {
	parameter, node := "", root
	for _, e := range path {
		if node = step(node, e, &parameter); node == nil {
			break
		}
		if node.Field != nil {
			out = append(out, node.Field.Permission(parameter))
		}
	}
	return out
}

// step goes to the node of a path's element, nil if nothing is described there. A
// parameter that the element does not emit leaves no permission for the item.
func step(node *permissions.Node, e fieldpath.PathElement, parameter *string) *permissions.Node {
	items := node.Items()
	switch {
	case e.FieldName != nil && items == nil:
		return node.Child(*e.FieldName)
	case items == nil || items.Field == nil || items.Field.Parameter == nil:
		return nil
	}
	p := items.Field.Parameter
	switch {
	case e.FieldName != nil && p.Source == permissions.MapKey:
		*parameter = *e.FieldName
		return items
	case e.Value != nil && p.Source == permissions.ItemValue && (*e.Value).IsString():
		*parameter = (*e.Value).AsString()
		return items
	case e.Key != nil && p.Source == permissions.ItemKey:
		i := slices.IndexFunc(*e.Key, func(f value.Field) bool { return f.Name == p.Key })
		if i < 0 || !(*e.Key)[i].Value.IsString() {
			return nil
		}
		*parameter = (*e.Key)[i].Value.AsString()
		return items
	}
	return nil
}
