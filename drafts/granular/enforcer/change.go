package enforcer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// Change is what a request would do to an object.
type Change struct {
	Type typed.ParseableType // that of the object, in the version of the request
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
	schema *smdschema.Schema
	found  []fieldpath.Path
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
			w.visit(field, o[name], n[name], with(path, fieldpath.FieldNameElement(name)))
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
		w.found = append(w.found, path.Copy())
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if at, ok := after[id]; ok && len(list.Keys) > 0 {
			item := old[before[id]]
			w.visit(list.ElementType, item, updated[at], with(path, w.element(list, item)))
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

// element is what tells an item apart from the others of its list.
func (w *orderWalk) element(list *smdschema.List, item any) fieldpath.PathElement {
	object, ok := item.(map[string]any)
	if !ok || len(list.Keys) == 0 {
		return fieldpath.ValueElement(value.NewValueInterface(item))
	}
	var key value.FieldList
	for _, name := range list.Keys { // the server has filled in their defaults
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(object[name])})
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}
}

// with is a path with one more element, which shares no memory with others.
func with(path fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(path.Copy(), e)
}

// schemas are the types of objects, as the API server publishes them.
type schemas struct {
	openapi.Client

	mu   sync.Mutex
	kept map[schema.GroupVersion]published
}

// published are the types of a group and version, by kind, and where they are from: that is elsewhere once they change.
type published struct {
	url   string
	kinds map[string]typed.ParseableType
}

// of is the type of a kind as it is now: a custom resource may have got another schema since it was last asked for.
func (t *schemas) of(kind schema.GroupVersionKind) (typed.ParseableType, error) {
	all, err := t.Paths()
	if err != nil {
		return typed.ParseableType{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	gv := kind.GroupVersion()
	now, path := t.kept[gv], "apis/"+gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	if at, ok := all[path]; ok && at.ServerRelativeURL() != now.url {
		var document spec3.OpenAPI
		raw, err := at.Schema(runtime.ContentTypeJSON)
		if err == nil {
			err = json.Unmarshal(raw, &document)
		}
		if err == nil {
			now.kinds, err = Types(&document, gv)
		}
		if err != nil {
			return typed.ParseableType{}, err
		}
		now.url = at.ServerRelativeURL()
		t.kept[gv] = now
	}
	found, ok := now.kinds[kind.Kind]
	if !ok {
		return typed.ParseableType{}, fmt.Errorf("the API server publishes no schema of %s", kind)
	}
	return found, nil
}

// Types turns the schemas of an OpenAPI v3 document into the types of one group and version, by kind.
func Types(document *spec3.OpenAPI, gv schema.GroupVersion) (map[string]typed.ParseableType, error) {
	out := map[string]typed.ParseableType{}
	if document.Components == nil {
		return out, nil
	}
	all, err := schemaconv.ToSchemaFromOpenAPI(document.Components.Schemas, false)
	if err != nil {
		return nil, err
	}
	parser := typed.Parser{Schema: smdschema.Schema{Types: all.Types}}
	for name, s := range document.Components.Schemas {
		var kinds []schema.GroupVersionKind
		_ = s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds) // most have none
		for _, kind := range kinds {
			if kind.GroupVersion() == gv {
				out[kind.Kind] = parser.Type(name)
			}
		}
	}
	return out, nil
}
