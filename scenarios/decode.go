package scenarios

import (
	"cmp"
	"encoding"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// The decoder fills Go values from a YAML tree. The library's own strict decoder stops at the first error, and turns
// numbers into strings without a word. Authors of scenarios are better served by all errors at once, each with its
// place, so the tree is walked here.

// fieldCache has the results of fieldsOf, because decoding runs in parallel and there are few types.
var fieldCache sync.Map

type structFields struct {
	index map[string][]int
	names []string // in the order of the declaration, for messages
}

// fieldsOf returns the fields of a struct by the names that they have in YAML.
func fieldsOf(t reflect.Type) *structFields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*structFields)
	}
	f := &structFields{index: map[string][]int{}}
	f.add(t, nil)
	fieldCache.Store(t, f)
	return f
}

// add adds the fields of a struct. at is its place in the struct that is decoded.
func (f *structFields) add(t reflect.Type, at []int) {
	for i := range t.NumField() {
		field, index := t.Field(i), append(slices.Clone(at), i)
		tag := cmp.Or(field.Tag.Get("yaml"), field.Tag.Get("json")) // the types of Kubernetes only have json
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

// decode fills v from n. label is the name of the value in messages.
func (s *source) decode(n *yaml.Node, v reflect.Value, label string) {
	switch {
	case isIndirect(n):
		s.breakAt(n, "%s uses an anchor, an alias or a tag (expected the value written out)", label)
		return
	case n.ShortTag() == nullTag && v.Kind() != reflect.Interface:
		s.breakAt(n, "%s has no value (expected %s, or the field left out)", label, expectation(v.Type()))
		return
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

// failType records that a node is not of the type that is expected there.
func (s *source) failType(n *yaml.Node, t reflect.Type, label string) {
	hint := ""
	if t.Kind() == reflect.String && slices.Contains(plainTags, n.ShortTag()) {
		hint = "; quote it"
	}
	s.breakAt(n, "%s is %s (expected %s%s)", label, describe(n), expectation(t), hint)
}

func (s *source) decodeText(n *yaml.Node, v reflect.Value, label string) {
	text, ok := stringOf(n)
	if !ok {
		s.failType(n, v.Type(), label)
		return
	}
	if err := v.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		s.breakAt(n, "%s is %q (expected %s)", label, text, expectation(v.Type()))
	}
}

// eachPair calls fn for each pair of a mapping whose key is a string that did not occur before. It records the other
// pairs as errors.
func (s *source) eachPair(n *yaml.Node, t reflect.Type, label string, fn func(key string, kv pair)) {
	kvs, ok := pairs(n)
	if !ok {
		s.failType(n, t, label)
		return
	}
	seen := make(map[string]position, len(kvs))
	for _, kv := range kvs {
		key, ok := stringOf(kv.key)
		if !ok {
			s.fail(posOf(kv.key), "%s has a key that is not a string (expected a plain or quoted string)", label)
			continue
		}
		if first, dup := seen[key]; dup {
			s.fail(posOf(kv.key), "duplicate key %q (expected it once; it is on line %d already)", key, first.line)
			continue
		}
		seen[key] = posOf(kv.key)
		fn(key, kv)
	}
}

func (s *source) decodeStruct(n *yaml.Node, v reflect.Value, label string) {
	fields := fieldsOf(v.Type())
	s.eachPair(n, v.Type(), label, func(key string, kv pair) {
		index, known := fields.index[key]
		if !known {
			s.fail(posOf(kv.key), "unknown field %q in %s (expected one of %s)", key, label, strings.Join(fields.names, ", "))
			return
		}
		s.decode(kv.value, v.FieldByIndex(index), key)
	})
}

func (s *source) decodeMap(n *yaml.Node, v reflect.Value, label string) {
	v.Set(reflect.MakeMap(v.Type()))
	s.eachPair(n, v.Type(), label, func(key string, kv pair) {
		item := reflect.New(v.Type().Elem()).Elem()
		s.decode(kv.value, item, key)
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
	})
}

func (s *source) decodeSlice(n *yaml.Node, v reflect.Value, label string) {
	if n.Kind != yaml.SequenceNode {
		s.failType(n, v.Type(), label)
		return
	}
	// The slice is never nil, because an empty list states that there must be nothing.
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		s.decode(item, v.Index(i), label)
	}
	if s.ranges && v.Type() == reflect.TypeFor[[]string]() {
		s.expandRanges(n, v, label)
	}
}

func (s *source) decodeScalar(n *yaml.Node, v reflect.Value, label string) {
	tag, fits := n.ShortTag(), false
	switch v.Kind() {
	case reflect.String:
		text, isString := stringOf(n)
		isTaken := s.lenient && slices.Contains(plainTags, tag)
		fits = isString || isTaken
		if fits {
			v.SetString(text)
		}
	case reflect.Int, reflect.Int64:
		fits = tag == intTag && n.Decode(v.Addr().Interface()) == nil
	case reflect.Float64:
		isNumber := tag == intTag || tag == floatTag
		fits = isNumber && n.Decode(v.Addr().Interface()) == nil
	case reflect.Bool:
		fits = tag == boolTag && n.Decode(v.Addr().Interface()) == nil
	}
	if !fits {
		s.failType(n, v.Type(), label)
	}
}

// decodeAny returns a value with the types of decoded JSON. Integers are int64, because runtime.DeepCopyJSON accepts
// these.
func (s *source) decodeAny(n *yaml.Node, label string) any {
	if text, ok := stringOf(n); ok {
		return text
	}
	var i int64
	var f float64
	switch tag := n.ShortTag(); {
	case isIndirect(n):
	case n.Kind == yaml.MappingNode:
		out := map[string]any{}
		s.eachPair(n, reflect.TypeFor[map[string]any](), label, func(key string, kv pair) {
			out[key] = s.decodeAny(kv.value, key)
		})
		return out
	case n.Kind == yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			out[i] = s.decodeAny(item, label)
		}
		return out
	case tag == nullTag:
		return nil
	case tag == boolTag:
		return strings.EqualFold(n.Value, "true")
	case tag == intTag && n.Decode(&i) == nil:
		return i
	case tag == floatTag && n.Decode(&f) == nil && isFinite(f):
		return f
	}
	s.breakAt(n, "%s is %s (expected a value that JSON can hold, written out)", label, describe(n))
	return nil
}

func isFinite(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }

// These are the tags of values that are written without quotes. Values with these tags are text only where the format
// says so.
const nullTag, boolTag, intTag, floatTag = "!!null", "!!bool", "!!int", "!!float"

var plainTags = []string{boolTag, intTag, floatTag}

// isIndirect reports whether a value has a YAML anchor, is an alias of one, or states its own type.
func isIndirect(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0
}

// stringOf returns the text of a plain, quoted or block string. ok is false if it is something else. Text that looks
// like a date is a string, too.
func stringOf(n *yaml.Node) (text string, ok bool) {
	isText := slices.Contains([]string{"!!str", "!!timestamp"}, n.ShortTag())
	return n.Value, isText && n.Kind == yaml.ScalarNode && !isIndirect(n)
}

// describe returns in words what a node is.
func describe(n *yaml.Node) string {
	switch {
	case isIndirect(n):
		return "an anchor, an alias or a tag"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	words := map[string]string{boolTag: "a boolean", intTag: "a number", floatTag: "a number", nullTag: "empty"}
	return cmp.Or(words[n.ShortTag()], "a string")
}

// expectation returns in words how a value of a type is written.
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
