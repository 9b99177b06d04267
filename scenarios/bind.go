package scenarios

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
)

// Suffix returns the end of unique names. It has six characters, begins with a letter, and is derived from a seed and
// from what it is for.
func Suffix(seed int64, parts ...string) string {
	h := sha256.New()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(seed))
	h.Write(b[:])
	for _, p := range parts {
		addDigest(h, []byte(p))
	}
	// These are 64 bits over 1.6e9 suffixes, so that the bias is far below what matters here.
	n := binary.BigEndian.Uint64(h.Sum(nil))
	const letters, all = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 6)
	out[0] = letters[n%26]
	n /= 26
	for i := 1; i < len(out); i++ {
		out[i] = all[n%36]
		n /= 36
	}
	return string(out)
}

// Bind returns a copy of the scenario in which every unique name has "-" and the suffix appended, and what each
// name became. Scenarios bound with different suffixes share no requestor, namespace or object, so they can run
// side by side, and no cache of the API server carries anything from one to the other.
//
// Names are found where the format says that something is a name (requestors, grants, namespaces, metadata.name of
// manifests, impersonated users, subjects of bindings) and are replaced in every string of requestors, manifests,
// objects, grants and steps, see Rename. Left as they are: the identity of the scenario (ID, description, source,
// requires, documented, twin), map keys, aliases and grant IDs, step names, and the fields that hold no names
// (verbs, API groups, versions, resources, kinds).
//
// An RBAC object whose name is also a verb, as in the examples of KEP-5284, is renamed only where the name stands
// for the object: in metadata.name and in roleRef.
func (s *Scenario) Bind(suffix string) (*Scenario, map[string]string) { return s.BindOn(suffix, nil) }

// BindOn does the same as Bind for a cluster with the given nodes. The first of the scenario's Nodes becomes the first
// of them, and so on. Placeholders without a node stay as they are.
func (s *Scenario) BindOn(suffix string, nodes []string) (*Scenario, map[string]string) {
	names := map[string]string{}
	for i, placeholder := range s.Nodes[:min(len(s.Nodes), len(nodes))] {
		names[placeholder] = nodes[i]
	}
	roles := sets.New[string]()
	for _, n := range s.findNames() {
		names[n.name] = n.name + "-" + suffix
		if n.kind == roleName {
			roles.Insert(n.name)
		}
	}
	inText := names
	if len(roles) > 0 {
		inText = make(map[string]string, len(names))
		clash := findAmbiguous(roles, s.words())
		for from, to := range names {
			if _, skip := clash[from]; !skip {
				inText[from] = to
			}
		}
	}
	out := copyRenamed(&binder{text: newRenamer(inText), exact: names}, *s)
	out.Suffix = suffix
	return &out, names
}

// binder copies a scenario and replaces names in every string, except in strings of named types (an outcome is not a
// name) and in fields tagged `bind:"keep"`. It keeps nil and empty apart.
type binder struct {
	text  *renamer
	exact map[string]string // the replacements of whole values, for names of RBAC objects
}

// copyRenamed returns a copy of a value in which the binder has replaced names.
func copyRenamed[T any](b *binder, from T) (out T) {
	b.copy(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&from).Elem(), false)
	return out
}

// Clone returns a copy of the scenario that shares nothing with it.
func (s *Scenario) Clone() *Scenario { return new(copyRenamed(&binder{text: newRenamer(nil)}, *s)) }

// copy sets to, which is zero, to a copy of from. keep is true if from must not be changed, because its field is
// tagged.
func (b *binder) copy(to, from reflect.Value, keep bool) {
	switch from.Kind() {
	case reflect.String:
		to.Set(from)
		if !keep && from.Type() == reflect.TypeFor[string]() {
			to.SetString(b.text.rename(from.String()))
		}
	case reflect.Struct:
		b.copyFields(to, from, keep)
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			b.copy(to.Elem(), from.Elem(), keep)
		}
	case reflect.Slice:
		b.copyItems(to, from, keep)
	case reflect.Map:
		b.copyMap(to, from, keep)
	default:
		to.Set(from)
	}
}

func (b *binder) copyFields(to, from reflect.Value, keep bool) {
	for i, isKept := range keptFields(from.Type()) {
		if field := from.Field(i); !field.IsZero() { // to is zero, too
			b.copy(to.Field(i), field, keep || isKept)
		}
	}
}

func (b *binder) copyItems(to, from reflect.Value, keep bool) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
	for i := range from.Len() {
		b.copy(to.Index(i), from.Index(i), keep)
	}
}

func (b *binder) copyMap(to, from reflect.Value, keep bool) {
	if from.IsNil() {
		return
	}
	if object, ok := from.Interface().(map[string]any); ok {
		to.Set(reflect.ValueOf(b.renameInManifest(object)))
		return
	}
	to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
	for _, k := range from.MapKeys() {
		v := reflect.New(from.Type().Elem()).Elem()
		b.copy(v, from.MapIndex(k), keep)
		to.SetMapIndex(k, v)
	}
}

// keptCache has the results of keptFields.
var keptCache sync.Map

// keptFields returns, for each field of a type, whether it is tagged `bind:"keep"`.
func keptFields(t reflect.Type) []bool {
	if kept, ok := keptCache.Load(t); ok {
		return kept.([]bool)
	}
	isKept := make([]bool, t.NumField())
	for i := range isKept {
		isKept[i] = t.Field(i).Tag.Get("bind") == "keep"
	}
	keptCache.Store(t, isKept)
	return isKept
}

// nameless are the fields of Kubernetes objects that contain no names. Only their strings and lists of strings are
// kept: the "resources" of a pod are a mapping.
var nameless = map[string]bool{
	"apiVersion": true, "kind": true, "apiGroup": true, "apiGroups": true, "verb": true, "verbs": true,
	"resource": true, "resources": true, "subresource": true, "version": true, tokenField: true,
}

// tokenField is the field in the body of a TokenReview that contains the alias of a requestor. The alias may also be
// the name of an account.
const tokenField = "token"

// renameInManifest returns a copy of a Kubernetes object with names replaced where they can occur.
func (b *binder) renameInManifest(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := rewriteTexts("", m, func(field, text string) string {
		if nameless[field] {
			return text
		}
		return b.text.rename(text)
	}).(map[string]any)
	if isRBAC(m) {
		for _, field := range []string{"metadata", "roleRef"} {
			part, ok := out[field].(map[string]any)
			if to, known := b.exact[Text(m, field, "name")]; ok && known {
				part["name"] = to
			}
		}
	}
	return out
}

// rewriteTexts returns a copy of a value in which every text is replaced by the result of fn. fn gets the field that
// contains the text or its list.
func rewriteTexts(field string, value any, fn func(field, text string) string) any {
	switch v := value.(type) {
	case string:
		return fn(field, v)
	case []any:
		return seq.Map(v, func(x any) any { return rewriteTexts(field, x, fn) })
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = rewriteTexts(k, x, fn)
		}
		return out
	}
	return value
}
