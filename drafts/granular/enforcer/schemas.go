package enforcer

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas are the types of objects, as the API server publishes them.
type schemas struct {
	openapi.Client

	mu   sync.Mutex
	kept map[schema.GroupVersion]published
}

// published are the types of a group and version, by kind, and the URL from which they were read. The URL changes when
// the schemas change.
type published struct {
	url   string
	kinds map[string]typed.ParseableType
}

// typeOf returns the current type of a kind. The schema of a custom resource may have changed since the last request.
func (t *schemas) typeOf(kind schema.GroupVersionKind) (typed.ParseableType, error) {
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

// Types converts the schemas of an OpenAPI v3 document to the types of one group and version, by kind.
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
