package enforcer

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// findReordered returns the lists whose items have changed their order. structured-merge-diff treats them as unchanged.
// But order matters, for example of init containers, so no permission of an item covers a change of the order.
func (c Change) findReordered() []fieldpath.Path {
	if c.Old == nil {
		return nil
	}
	w := &orderWalk{schema: c.Type.Schema}
	w.visit(c.Type.TypeRef, c.Old, c.New, nil)
	return w.paths
}

type orderWalk struct {
	schema *smdschema.Schema
	paths  []fieldpath.Path
}

func (w *orderWalk) visit(ref smdschema.TypeRef, old, updated any, path fieldpath.Path) {
	atom, ok := w.schema.Resolve(ref)
	if !ok {
		return
	}
	switch o := old.(type) {
	case map[string]any:
		n, ok := updated.(map[string]any)
		if !ok || atom.Map == nil || atom.Map.ElementRelationship == smdschema.Atomic {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			field := atom.Map.ElementType
			if f, ok := atom.Map.FindField(name); ok {
				field = f.Type
			}
			w.visit(field, o[name], n[name], extend(path, fieldpath.FieldNameElement(name)))
		}
	case []any:
		if n, ok := updated.([]any); ok && atom.List != nil && atom.List.ElementRelationship == smdschema.Associative {
			w.list(atom.List, o, n, path)
		}
	}
}

func (w *orderWalk) list(list *smdschema.List, old, updated []any, path fieldpath.Path) {
	before, after := w.index(list, old), w.index(list, updated)
	var stay []int
	for _, item := range old {
		if at, ok := after[w.element(list, item).String()]; ok {
			stay = append(stay, at)
		}
	}
	if !slices.IsSorted(stay) {
		w.paths = append(w.paths, path.Copy())
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if at, ok := after[id]; ok && len(list.Keys) > 0 {
			item := old[before[id]]
			w.visit(list.ElementType, item, updated[at], extend(path, w.element(list, item)))
		}
	}
}

func (w *orderWalk) index(list *smdschema.List, items []any) map[string]int {
	out := map[string]int{}
	for i, item := range items {
		out[w.element(list, item).String()] = i
	}
	return out
}

// element returns the path element that identifies an item in its list.
func (w *orderWalk) element(list *smdschema.List, item any) fieldpath.PathElement {
	object, ok := item.(map[string]any)
	if !ok || len(list.Keys) == 0 {
		return fieldpath.ValueElement(value.NewValueInterface(item))
	}
	var key value.FieldList
	for _, name := range list.Keys { // the server has filled in the defaults of the keys
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(object[name])})
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}
}

// extend returns a path with one more element, which shares no memory with others.
func extend(path fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(path.Copy(), e)
}
