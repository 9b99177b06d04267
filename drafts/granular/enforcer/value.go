package enforcer

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// isAt returns a function that reports whether an object has a value at a path. Numbers are equal whatever their types
// are.
func isAt(object map[string]any, path fieldpath.Path) func(any) bool {
	return func(want any) bool {
		got := find(value.NewValueInterface(object), path)
		return got != nil && value.Equals(got, value.NewValueInterface(want))
	}
}

// find returns the value at a path. It is nil if there is none.
func find(v value.Value, path fieldpath.Path) value.Value {
	for _, e := range path {
		if v = child(v, e); v == nil {
			return nil
		}
	}
	return v
}

// child returns a field of a map, or an item of a list that has keys. It is nil if there is none.
func child(v value.Value, e fieldpath.PathElement) value.Value {
	switch {
	case e.FieldName != nil && v.IsMap():
		return fieldOf(v, *e.FieldName)
	case e.Key != nil && v.IsList():
		list := v.AsList()
		for i := range list.Length() {
			if item := list.At(i); hasKey(item, *e.Key) {
				return item
			}
		}
	}
	return nil
}

// fieldOf returns a field of a map. It is nil if there is none.
func fieldOf(v value.Value, name string) value.Value {
	if found, ok := v.AsMap().Get(name); ok {
		return found
	}
	return nil
}

// hasKey reports whether an item of a list is the one that a key identifies.
func hasKey(item value.Value, key value.FieldList) bool {
	if !item.IsMap() {
		return false
	}
	for _, f := range key {
		if v := fieldOf(item, f.Name); v == nil || !value.Equals(v, f.Value) {
			return false
		}
	}
	return true
}
