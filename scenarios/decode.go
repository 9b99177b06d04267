package scenarios

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// The decoder fills Go values from a YAML tree. The library's own strict decoder stops at the first error and
// turns numbers into strings without a word; a scenario's author is better served by every error at once, each
// with its place, so the tree is walked here.

// fieldCache holds fieldsOf results: decoding is parallel and types are few.
var fieldCache sync.Map

// structFields are the YAML fields of a struct type.
type structFields struct {
	index map[string][]int
	names []string // in the order of the declaration, for messages
}

// fieldsOf lists the YAML fields of a struct type by their tags.
func fieldsOf(t reflect.Type) *structFields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*structFields)
	}
	f := &structFields{index: map[string][]int{}}
	f.add(t, nil)
	fieldCache.Store(t, f)
	return f
}

// add takes in the fields of a struct, at is where it is in the one that is decoded.
func (f *structFields) add(t reflect.Type, at []int) {
	for i := range t.NumField() {
		field, index := t.Field(i), append(slices.Clone(at), i)
		tag := cmp.Or(field.Tag.Get("yaml"), field.Tag.Get("json")) // the types of Kubernetes have json alone
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case options == "inline":
			f.add(field.Type, index)
			continue
		case name == "" || name == "-":
			continue
		}
		f.index[name] = index
		f.names = append(f.names, name)
	}
}

var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	duration        = reflect.TypeFor[time.Duration]()
)

// decode fills v from n. Label names the value in messages.
func (s *source) decode(n ast.Node, v reflect.Value, label string) {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		s.breakAt(n, "%s uses an anchor, an alias or a tag (expected the value written out)", label)
		return
	case *ast.NullNode, nil:
		if v.Kind() != reflect.Interface {
			s.breakAt(n, "%s has no value (expected %s, or the field left out)", label, expectation(v.Type()))
			return
		}
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		s.decode(n, v.Elem(), label)
		return
	}
	if v.Type() == duration {
		s.decodeText(n, v.Addr().Convert(reflect.TypeFor[*Duration]()), label)
		return
	}
	if v.CanAddr() && v.Addr().Type().Implements(textUnmarshaler) {
		s.decodeText(n, v.Addr(), label)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		s.decodeStruct(n, v, label)
	case reflect.Map:
		s.decodeMap(n, v, label)
	case reflect.Slice:
		s.decodeSlice(n, v, label)
	case reflect.Interface:
		if x := s.decodeAny(n, label); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		s.decodeScalar(n, v, label)
	}
}

// wrongType records that a node is of another type than v.
func (s *source) wrongType(n ast.Node, t reflect.Type, label string) {
	hint := ""
	if t.Kind() == reflect.String && isScalar(n) {
		hint = "; quote it"
	}
	s.breakAt(n, "%s is %s (expected %s%s)", label, describe(n), expectation(t), hint)
}

func (s *source) decodeText(n ast.Node, v reflect.Value, label string) {
	text, ok := stringOf(n)
	if !ok {
		s.wrongType(n, v.Type(), label)
		return
	}
	if err := v.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		s.breakAt(n, "%s is %q (expected %s)", label, text, expectation(v.Type()))
	}
}

// eachPair calls fn for each pair of a mapping whose key is a string that did not occur before, and records the
// others.
func (s *source) eachPair(n ast.Node, t reflect.Type, label string, fn func(key string, kv *ast.MappingValueNode)) {
	kvs, ok := pairs(n)
	if !ok {
		s.wrongType(n, t, label)
		return
	}
	seen := make(map[string]position, len(kvs))
	for _, kv := range kvs {
		key, ok := keyName(kv.Key)
		if !ok {
			s.fail(posOf(kv.Key), "%s has a key that is not a string (expected a plain or quoted string)", label)
			continue
		}
		if first, dup := seen[key]; dup {
			s.fail(posOf(kv.Key), "duplicate key %q (expected it once; it is on line %d already)", key, first.line)
			continue
		}
		seen[key] = posOf(kv.Key)
		fn(key, kv)
	}
}

func (s *source) decodeStruct(n ast.Node, v reflect.Value, label string) {
	fields := fieldsOf(v.Type())
	s.eachPair(n, v.Type(), label, func(key string, kv *ast.MappingValueNode) {
		index, known := fields.index[key]
		if !known {
			s.fail(posOf(kv.Key), "unknown field %q in %s (expected one of %s)", key, label, strings.Join(fields.names, ", "))
			return
		}
		s.decode(kv.Value, v.FieldByIndex(index), key)
	})
}

func (s *source) decodeMap(n ast.Node, v reflect.Value, label string) {
	v.Set(reflect.MakeMap(v.Type()))
	s.eachPair(n, v.Type(), label, func(key string, kv *ast.MappingValueNode) {
		item := reflect.New(v.Type().Elem()).Elem()
		s.decode(kv.Value, item, key)
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
	})
}

func (s *source) decodeSlice(n ast.Node, v reflect.Value, label string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		s.wrongType(n, v.Type(), label)
		return
	}
	// Never nil: an empty list states that there must be none.
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		s.decode(item, v.Index(i), label)
	}
}

func (s *source) decodeScalar(n ast.Node, v reflect.Value, label string) {
	switch v.Kind() {
	case reflect.String:
		text, ok := stringOf(n)
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			text, ok = n.GetToken().Value, s.lenient
		}
		if ok {
			v.SetString(text)
			return
		}
	case reflect.Int, reflect.Int64:
		if i, ok := intOf(n); ok {
			v.SetInt(i)
			return
		}
	case reflect.Float64:
		if scalar, ok := n.(ast.ScalarNode); ok { // the library takes 1e9 for a text
			if f, err := strconv.ParseFloat(fmt.Sprint(scalar.GetValue()), 64); err == nil {
				v.SetFloat(f)
				return
			}
		}
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
			return
		}
	}
	s.wrongType(n, v.Type(), label)
}

// decodeAny gives the types of decoded JSON, integers as int64, which is what runtime.DeepCopyJSON and
// unstructured objects take.
func (s *source) decodeAny(n ast.Node, label string) any {
	switch t := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		out := map[string]any{}
		s.eachPair(n, reflect.TypeFor[map[string]any](), label, func(key string, kv *ast.MappingValueNode) {
			out[key] = s.decodeAny(kv.Value, key)
		})
		return out
	case *ast.SequenceNode:
		out := make([]any, len(t.Values))
		for i, item := range t.Values {
			out[i] = s.decodeAny(item, label)
		}
		return out
	case *ast.NullNode, nil:
		return nil
	case *ast.BoolNode:
		return t.Value
	case *ast.FloatNode:
		return t.Value
	}
	if text, ok := stringOf(n); ok {
		return text
	}
	if i, ok := intOf(n); ok {
		return i
	}
	s.breakAt(n, "%s is %s (expected a value that JSON can hold, written out)", label, describe(n))
	return nil
}

// stringOf is the text of a plain, quoted or block string.
func stringOf(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		if t.Value != nil {
			return t.Value.Value, true
		}
		return "", true
	}
	return "", false
}

// intOf is the value of an integer that fits an int64.
func intOf(n ast.Node) (int64, bool) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch x := i.Value.(type) {
	case int64:
		return x, true
	case uint64:
		return int64(x), x <= math.MaxInt64
	}
	return 0, false
}

func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	}
	return false
}

// describe names the type of a node in words.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "an anchor, an alias or a tag"
	}
	return "empty"
}

// expectation names the type of a Go value in words.
func expectation(t reflect.Type) string {
	if t == duration || t == reflect.TypeFor[Duration]() {
		return "a duration such as 10500ms"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return expectation(t.Elem())
	case reflect.Struct:
		return "a mapping with " + strings.Join(slices.Clone(fieldsOf(t).names), ", ")
	case reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "a value"
}
