package enforcer

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

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
			if got := verbs([]permissions.Chain{ChainOf(root, c.path)}); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
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
