package enforcer

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

func TestChainOf(t *testing.T) {
	root := widgetTree(t)
	p := fieldpath.MakePathOrDie
	for _, c := range []struct {
		name string
		path fieldpath.Path
		want []string
	}{
		{"field", p("spec", "replicas"), []string{"granular:specification@1 > granular:scale@2"}},
		{"field below", p("spec", "selector", "a"), []string{"granular:specification@1"}},
		{"label", p("metadata", "labels", "a.io/x"), []string{"granular:objectMeta@1 > granular:labels@2 > granular:label(a.io)@3"}},
		{"item", p("spec", "parts", fieldpath.KeyByFields("name", "a"), "weight"), []string{"granular:specification@1 > granular:part(a)@3"}},
		{"field of an item", p("spec", "parts", fieldpath.KeyByFields("name", "a"), "image"), []string{"granular:specification@1 > granular:part(a)@3 > granular:imageOf(a)@4"}},
		// The parameter is missing or is not a text, so only the permission of the list is enough.
		{"position", p("spec", "parts", 0, "image"), []string{"granular:specification@1"}},
		{"another key", p("spec", "parts", fieldpath.KeyByFields("id", "a"), "image"), []string{"granular:specification@1"}},
		{"number", p("spec", "parts", fieldpath.KeyByFields("name", 1), "image"), []string{"granular:specification@1"}},
		{"undescribed", p("data", "a"), []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verbs([]permissions.Chain{ChainOf(root, c.path, nil)}); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAtomicMap checks that a field inside a map that the schema has as atomic keeps its permission, and that other
// fields of the map need that of the map. The model agrees.
func TestAtomicMap(t *testing.T) {
	set, err := permissions.Parse("atomic.yaml", []byte(`kind: FieldPermissions
resources:
  - group: g
    versions: [v1]
    resource: things
    fields: [{path: spec, verb: specification}, {path: spec.selector.a, verb: selection, excluded: true}]
`))
	if err != nil {
		t.Fatal(err)
	}
	root := set.Tree("g", "v1", "things")
	object := func(selector any) map[string]any {
		return map[string]any{"spec": map[string]any{"selector": selector}}
	}
	const ofMap, ofField = "granular:specification@1", "granular:specification@1 > granular:selection@3!"
	for name, c := range map[string]struct {
		old, updated map[string]any
		want         map[string]string // the permissions of each path
	}{
		"the described field":                    {object(map[string]any{"a": "1"}), object(map[string]any{"a": "2"}), map[string]string{"spec.selector.a": ofField}},
		"another field":                          {object(map[string]any{"b": "1"}), object(map[string]any{"b": "2"}), map[string]string{"spec.selector.b": ofMap}},
		"both":                                   {object(map[string]any{"b": "1"}), object(map[string]any{"a": "2"}), map[string]string{"spec.selector.a": ofField, "spec.selector.b": ofMap}},
		"null for nothing, beside another field": {object(map[string]any{"b": "1"}), object(map[string]any{"a": nil, "b": "2"}), map[string]string{"spec.selector.a": ofField, "spec.selector.b": ofMap}},
		"the map, which had it":                  {object(map[string]any{"a": "1"}), map[string]any{"spec": map[string]any{}}, map[string]string{"spec.selector.a": ofField}},
		"the map, which was empty":               {object(map[string]any{}), map[string]any{"spec": map[string]any{}}, map[string]string{"spec.selector": ofMap}},
		"creation with the field":                {nil, object(map[string]any{"a": "1"}), map[string]string{"spec.selector.a": ofField}},
		"creation without the field":             {nil, object(map[string]any{"b": "1"}), map[string]string{"spec.selector.b": ofMap}},
	} {
		t.Run(name, func(t *testing.T) {
			change := Change{Type: thingType(t), Old: c.old, New: c.updated, Sent: c.updated}
			fields, err := ChangedFields(root, change)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, f := range fields {
				got[f.Path] = strings.Join(verbs([]permissions.Chain{f.Chain}), " ")
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			wanted := model.Create(root, c.updated, c.updated)
			if c.old != nil {
				wanted = model.Update(root, c.old, c.updated)
			}
			if needed := verbs(wanted); !slices.Equal(needed, slices.Sorted(maps.Values(c.want))) {
				t.Errorf("the model wants %q", needed)
			}
		})
	}
}

// valuesTree is a tree with excluded values of every kind.
func valuesTree(t testing.TB) *permissions.Node {
	t.Helper()
	set, err := permissions.Parse("values.yaml", []byte(`kind: FieldPermissions
resources:
  - group: g
    versions: [v1]
    resource: things
    fields:
      - {path: metadata.labels, verb: labels}
      - {path: metadata.labels.*, verb: label, parameter: {source: mapKey}, excludedItems: [a.io/x, plain], excludedValues: ["2"]}
      - {path: spec.nodeName, verb: nodeAssignment, excludedValues: [n2]}
      - {path: spec.replicas, verb: scale, excludedValues: [1.0, 2.5]}
      - {path: spec.triggerSelfDestructOnSecurityBreach, verb: selfDestruction, excludedValues: [true]}
      - {path: spec.parts.*, verb: part, parameter: {source: itemKey, key: name}}
      - {path: spec.parts.*.image, verb: imageOf, parameter: {source: itemKey, key: name}, excludedValues: ["2"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return set.Tree("g", "v1", "things")
}

// TestExcludedValues checks by which values after a change its permissions are excluded.
func TestExcludedValues(t *testing.T) {
	root, p := valuesTree(t), fieldpath.MakePathOrDie
	imageOf := p("spec", "parts", fieldpath.KeyByFields("name", "a"), "image")
	for _, c := range []struct {
		name     string
		path     fieldpath.Path
		after    string
		excluded bool
	}{
		{"boolean", p("spec", "triggerSelfDestructOnSecurityBreach"), `{"spec":{"triggerSelfDestructOnSecurityBreach":true}}`, true},
		{"another boolean", p("spec", "triggerSelfDestructOnSecurityBreach"), `{"spec":{"triggerSelfDestructOnSecurityBreach":false}}`, false},
		{"text that looks like the boolean", p("spec", "triggerSelfDestructOnSecurityBreach"), `{"spec":{"triggerSelfDestructOnSecurityBreach":"true"}}`, false},
		{"removed", p("spec", "triggerSelfDestructOnSecurityBreach"), `{"spec":{}}`, false},
		{"removed with what it was in", p("spec", "triggerSelfDestructOnSecurityBreach"), `{}`, false},
		{"null", p("spec", "triggerSelfDestructOnSecurityBreach"), `{"spec":{"triggerSelfDestructOnSecurityBreach":null}}`, false},
		{"string", p("spec", "nodeName"), `{"spec":{"nodeName":"n2"}}`, true},
		{"string in another case", p("spec", "nodeName"), `{"spec":{"nodeName":"N2"}}`, false},
		{"whole number", p("spec", "replicas"), `{"spec":{"replicas":1}}`, true},
		{"whole number with a fraction", p("spec", "replicas"), `{"spec":{"replicas":1.0}}`, true},
		{"fraction", p("spec", "replicas"), `{"spec":{"replicas":2.5}}`, true},
		{"another number", p("spec", "replicas"), `{"spec":{"replicas":2}}`, false},
		{"text that looks like the number", p("spec", "replicas"), `{"spec":{"replicas":"1"}}`, false},
		{"map where a number should be", p("spec", "replicas", "a"), `{"spec":{"replicas":{"a":1}}}`, false},
		{"key", p("metadata", "labels", "a.io/x"), `{"metadata":{"labels":{"a.io/x":"2"}}}`, true},
		{"another value of the key", p("metadata", "labels", "a.io/x"), `{"metadata":{"labels":{"a.io/x":"1"}}}`, false},
		{"another key", p("metadata", "labels", "a.io/y"), `{"metadata":{"labels":{"a.io/y":"2"}}}`, false},
		{"field of an item", imageOf, `{"spec":{"parts":[{"name":"b","image":"1"},{"name":"a","image":"2"}]}}`, true},
		{"another value in the item", imageOf, `{"spec":{"parts":[{"name":"b","image":"2"},{"name":"a","image":"1"}]}}`, false},
		{"item removed", imageOf, `{"spec":{"parts":[{"name":"b","image":"2"}]}}`, false},
		{"items that are none", imageOf, `{"spec":{"parts":["a"]}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, unmarshal := range []func([]byte, any) error{json.Unmarshal, utiljson.Unmarshal} { // whole numbers become float64 and int64
				var after map[string]any
				if err := unmarshal([]byte(c.after), &after); err != nil {
					t.Fatal(err)
				}
				if got := ChainOf(root, c.path, after).Excluded(); got != c.excluded {
					t.Errorf("excluded %t", got)
				}
			}
		})
	}
}

func TestPinned(t *testing.T) {
	for _, c := range []struct{ name, media, body, want string }{
		{"merge patch", "application/merge-patch+json", `{"data":{"a":null}}`, `{"data":{"a":null},"metadata":{"resourceVersion":"7"}}`},
		{"own version", "application/merge-patch+json", `{"metadata":{"resourceVersion":"3"}}`, `{"metadata":{"resourceVersion":"3"}}`},
		{"version removed", "application/merge-patch+json", `{"metadata":{"resourceVersion":null}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{"apply", "application/apply-patch+yaml", "kind: X\nspec: {count: 9007199254740993}\n", `{"kind":"X","metadata":{"resourceVersion":"7"},"spec":{"count":9007199254740993}}`},
		{"JSON patch", "application/json-patch+json", `[{"op":"remove","path":"/a"}]`, `[{"op":"remove","path":"/a"},{"op":"add","path":"/metadata/resourceVersion","value":"7"}]`},
		{"metadata is no object", "application/json", `{"metadata":1}`, ""},
		{"no object", "application/json", `1`, ""},
		{"a key twice", "application/json", `{"a":1,"a":2}`, `{"a":2,"metadata":{"resourceVersion":"7"}}`},
		{"no JSON patch", "application/json-patch+json", `{}`, ""},
		{"a path that is none", "application/json-patch+json", `[{"op":"remove","path":1}]`, ""},
		{"an unknown type", "application/cbor", `{}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := (&Request{MediaType: c.media, Body: []byte(c.body)}).pinVersion("7")
			if c.want == "" {
				if err == nil {
					t.Errorf("got %s", got)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestPathsMeanOneThing(t *testing.T) {
	for path, ok := range map[string]bool{
		"/api/v1/namespaces/n/configmaps/x": true, "/api/v1/namespaces/n/configmaps/": true,
		"/api/v1/namespaces/n//configmaps/x": false, "/api/v1/namespaces/n/configmaps/..": false,
		"/api/v1/namespaces/n/configmaps/./x": false, "/api/v1/namespaces/n/secrets/../configmaps/x": false,
	} {
		r := httptest.NewRequest(http.MethodPut, "https://enforcer/", strings.NewReader("{}"))
		r.URL.Path = path
		if _, err := readRequest(httptest.NewRecorder(), r, nil, nil); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzPinned(f *testing.F) {
	f.Add("application/merge-patch+json", []byte(`{"metadata":{"resourceVersion":null}}`))
	f.Add("application/json-patch+json", []byte(`[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]`))
	f.Add("application/apply-patch+yaml", []byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, media string, body []byte) {
		pinned, err := (&Request{MediaType: media, Body: body}).pinVersion("7")
		if err != nil {
			return
		}
		// A pinned body can be parsed, and a second pin does not change it.
		again, err := (&Request{MediaType: media, Body: pinned}).pinVersion("7")
		if media == "application/json-patch+json" {
			if err == nil {
				t.Error("the pin itself was not seen")
			}
			return
		}
		if err != nil || string(again) != string(pinned) {
			t.Errorf("%s became %s, %v", pinned, again, err)
		}
	})
}
