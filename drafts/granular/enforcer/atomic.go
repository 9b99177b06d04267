package enforcer

import (
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// splitAtomic returns the fields that change inside a changed map, as far as something is described in it.
// structured-merge-diff reports a map that the schema has as atomic as a whole. An excluded field inside it would be
// unguarded then.
func (c Change) splitAtomic(root *permissions.Node, path fieldpath.Path) (out []fieldpath.Path) {
	if node := nodeAt(root, path); node == nil || len(node.Children) == 0 {
		return []fieldpath.Path{path}
	}
	old, oldIsMap := mapAt(c.Old, path)
	updated, newIsMap := mapAt(c.New, path)
	areMaps := oldIsMap && newIsMap
	if !areMaps || len(old)+len(updated) == 0 {
		return []fieldpath.Path{path}
	}
	union := maps.Clone(old)
	maps.Copy(union, updated)
	for _, name := range slices.Sorted(maps.Keys(union)) {
		before, wasThere := old[name]
		after, isThere := updated[name]
		if wasThere == isThere && reflect.DeepEqual(before, after) {
			continue
		}
		inner := extend(path, fieldpath.FieldNameElement(name))
		if c.isChosen(inner) {
			out = append(out, c.splitAtomic(root, inner)...)
		}
	}
	if len(out) == 0 { // nothing that was chosen differs: the change is one of the whole
		return []fieldpath.Path{path}
	}
	return out
}

// nodeAt returns the node of a path. It is nil if nothing is described there or below.
func nodeAt(root *permissions.Node, path fieldpath.Path) *permissions.Node {
	parameter, node := "", root
	for _, e := range path {
		if node = step(node, e, &parameter); node == nil {
			return nil
		}
	}
	return node
}

// mapAt returns the map at a path. It is empty if nothing is there, and isMap is false if something else is.
func mapAt(object map[string]any, path fieldpath.Path) (fields map[string]any, isMap bool) {
	found := find(value.NewValueInterface(object), path)
	if found == nil {
		return map[string]any{}, true
	}
	fields, isMap = found.Unstructured().(map[string]any)
	return fields, isMap
}
