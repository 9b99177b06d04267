package enforcer

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// reordered are the lists whose items are in another order than before. To structured-merge-diff they are the same
// lists; but the order of init containers, for one, matters, so no permission of an item covers it.
func (c Change) reordered() []fieldpath.Path {
	if c.Old == nil {
		return nil
	}
	w := &orderWalk{schema: c.Type.Schema}
	w.visit(c.Type.TypeRef, c.Old, c.New, nil)
	return w.found
}

type orderWalk struct {
	schema *schema.Schema
	found  []fieldpath.Path
}

func (w *orderWalk) visit(ref schema.TypeRef, old, updated any, path fieldpath.Path) {
	atom, ok := w.schema.Resolve(ref)
	if !ok {
		return
	}
	switch o := old.(type) {
	case map[string]any:
		n, ok := updated.(map[string]any)
		if !ok || atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			field := atom.Map.ElementType
			if f, ok := atom.Map.FindField(name); ok {
				field = f.Type
			}
			w.visit(field, o[name], n[name], with(path, fieldpath.FieldNameElement(name)))
		}
	case []any:
		n, ok := updated.([]any)
		if ok && atom.List != nil && atom.List.ElementRelationship == schema.Associative {
			w.list(atom.List, o, n, path)
		}
	}
}

func (w *orderWalk) list(list *schema.List, old, updated []any, path fieldpath.Path) {
	before, after := w.index(list, old), w.index(list, updated)
	last := -1
	for _, item := range old {
		id := w.element(list, item).String()
		at, ok := after[id]
		if !ok {
			continue
		}
		if at < last {
			w.found = append(w.found, path.Copy())
			break
		}
		last = at
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if at, ok := after[id]; ok && len(list.Keys) > 0 {
			item := old[before[id]]
			w.visit(list.ElementType, item, updated[at], with(path, w.element(list, item)))
		}
	}
}

// index says where each item is.
func (w *orderWalk) index(list *schema.List, items []any) map[string]int {
	out := map[string]int{}
	for i, item := range items {
		out[w.element(list, item).String()] = i
	}
	return out
}

// element is what tells an item apart from the others of its list.
func (w *orderWalk) element(list *schema.List, item any) fieldpath.PathElement {
	object, ok := item.(map[string]any)
	if !ok || len(list.Keys) == 0 {
		return fieldpath.ValueElement(value.NewValueInterface(item))
	}
	var key value.FieldList
	for _, name := range list.Keys {
		v, ok := object[name]
		if !ok {
			v = w.defaultOf(list, name)
		}
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}
}

func (w *orderWalk) defaultOf(list *schema.List, name string) any {
	atom, ok := w.schema.Resolve(list.ElementType)
	if !ok || atom.Map == nil {
		return nil
	}
	f, _ := atom.Map.FindField(name)
	return f.Default
}

// with is a path with one more element, which shares no memory with others.
func with(path fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(path.Copy(), e)
}
