package enforcer

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// ChainOf returns the permissions of a field that changes. after is the object after the change.
func ChainOf(root *permissions.Node, path fieldpath.Path, after map[string]any) (out permissions.Chain) {
	parameter, node := "", root
	for i, e := range path {
		if node = step(node, e, &parameter); node == nil {
			break
		}
		if node.Field != nil {
			out = append(out, node.Field.Permission(parameter, isAt(after, path[:i+1])))
		}
	}
	return out
}

// step returns the node of an element of a path. It is nil if nothing is described there. An item whose element lacks
// the parameter has no permission of its own.
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
