// Package model predicts which permissions a change of an object needs, and what an authorizer may be asked. It shares
// no library with the enforcer. The enforcer and its scenarios are judged by it. It does no I/O.
package model

import (
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/internal/seq"
)

// serverOwned are the fields of metadata that need no permission, because only the API server sets them, or because
// they name the object.
var serverOwned = []string{
	"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink",
	"deletionTimestamp", "deletionGracePeriodSeconds", "name", "namespace",
}

// Update returns the permissions of the differences between a stored object and the updated object. There is one chain
// for each described place. The chains are in no order, and no chain is there twice.
func Update(root *permissions.Node, old, updated map[string]any) []permissions.Chain {
	return distinct(walk(root, nil, "", clean(old), clean(updated)))
}

// Create returns the same for an object that was not there. What the request does not have, the server has filled in.
func Create(root *permissions.Node, sent, created map[string]any) []permissions.Chain {
	all, _ := keep(sent, clean(created, "generateName"))
	kept, _ := all.(map[string]any)
	return distinct(walk(root, nil, "", map[string]any{}, kept))
}

// clean returns an object without the fields that only the server sets, and without some more fields of metadata.
func clean(object map[string]any, more ...string) map[string]any {
	out := maps.Clone(object)
	delete(out, "apiVersion")
	delete(out, "kind")
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, name := range append(more, serverOwned...) {
			delete(metadata, name)
		}
		if out["metadata"] = metadata; len(metadata) == 0 {
			delete(out, "metadata")
		}
	}
	return out
}

// keep returns the part of created that was sent, down to the first list or empty map.
func keep(sent, created any) (any, bool) {
	s, ok := sent.(map[string]any)
	c, ok2 := created.(map[string]any)
	if !ok || !ok2 || len(s) == 0 {
		return created, true
	}
	out := map[string]any{}
	for name, value := range c {
		if v, ok := s[name]; ok {
			if kept, isKept := keep(v, value); isKept {
				out[name] = kept
			}
		}
	}
	return out, len(out) > 0 || len(c) == 0
}

type absent struct{}

func at(object map[string]any, name string) any {
	if v, ok := object[name]; ok {
		return v
	}
	return absent{}
}

// walk compares two values at a node. parent has the permissions of the places around it.
func walk(node *permissions.Node, parent permissions.Chain, parameter string, old, updated any) []permissions.Chain {
	if reflect.DeepEqual(old, updated) {
		return nil
	}
	if node == nil {
		return []permissions.Chain{parent}
	}
	chain := slices.Clone(parent)
	if node.Field != nil {
		chain = append(chain, node.Field.Permission(parameter, func(value any) bool { return isSame(value, updated) }))
	}
	if len(node.Children) == 0 {
		return []permissions.Chain{chain}
	}
	o, oldIsMap := fields(old)
	if u, newIsMap := fields(updated); oldIsMap && newIsMap {
		return walkMap(node, chain, parameter, o, u)
	}
	if items := node.Items(); items != nil && items.Field.Parameter.Source != permissions.MapKey {
		if o, u := indexByKey(items, old), indexByKey(items, updated); o != nil && u != nil {
			return walkLists(items, chain, o, u)
		}
	}
	return []permissions.Chain{chain}
}

// isSame reports whether two scalars are the same. Numbers are, if they are equal.
func isSame(a, b any) bool {
	x, y := number(a), number(b)
	if x == nil || y == nil {
		return a == b
	}
	return x.Cmp(y) == 0
}

// number returns a number. It is nil for everything else.
func number(v any) *big.Rat {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v)
	case float64:
		return new(big.Rat).SetFloat64(v)
	}
	return nil
}

func fields(v any) (map[string]any, bool) {
	if _, none := v.(absent); none {
		return map[string]any{}, true
	}
	m, ok := v.(map[string]any)
	return m, ok
}

func walkMap(node *permissions.Node, chain permissions.Chain, parameter string, old, updated map[string]any) (out []permissions.Chain) {
	if len(old) == 0 && len(updated) == 0 {
		return []permissions.Chain{chain} // an empty map is added or removed
	}
	items := node.Items()
	for _, name := range slices.Sorted(maps.Keys(mergeMaps(old, updated))) {
		child, p := node.Child(name), parameter
		if items != nil {
			child = nil
			if items.Field.Parameter.Source == permissions.MapKey {
				child, p = items, name
			}
		}
		out = append(out, walk(child, chain, p, at(old, name), at(updated, name))...)
	}
	return out
}

// mergeMaps returns a map with the entries of both. Those of b win.
func mergeMaps[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// list is a list whose items are identified by one of their fields, or by themselves.
type list struct {
	items map[string]any
	keys  []string
}

// indexByKey returns the items of a list by their keys. It is nil if v is not a list.
func indexByKey(items *permissions.Node, v any) *list {
	out := &list{items: map[string]any{}}
	if _, none := v.(absent); none {
		return out
	}
	values, ok := v.([]any)
	if !ok {
		return nil
	}
	for _, item := range values {
		key, ok := item.(string)
		if p := items.Field.Parameter; p.Source == permissions.ItemKey {
			object, _ := item.(map[string]any)
			key, ok = object[p.Key].(string)
		}
		if !ok {
			return nil
		}
		out.items[key] = item
		out.keys = append(out.keys, key)
	}
	return out
}

// staying returns the keys that are also in another list.
func (l *list) staying(in *list) []string {
	return slices.DeleteFunc(slices.Clone(l.keys), func(k string) bool { return !slices.Contains(in.keys, k) })
}

func walkLists(items *permissions.Node, chain permissions.Chain, old, updated *list) (out []permissions.Chain) {
	for _, key := range slices.Sorted(maps.Keys(mergeMaps(old.items, updated.items))) {
		out = append(out, walk(items, chain, key, at(old.items, key), at(updated.items, key))...)
	}
	reordered := !slices.Equal(old.staying(updated), updated.staying(old))
	empty := len(old.keys) == 0 && len(updated.keys) == 0 // an empty list is added or removed
	if reordered || empty {
		out = append(out, chain)
	}
	return out
}

func distinct(chains []permissions.Chain) []permissions.Chain {
	return seq.UniqueBy(chains, func(c permissions.Chain) string { return fmt.Sprintf("%#v", c) })
}
