package enforcer

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi3"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas are the types of objects, as the API server publishes them.
type schemas struct {
	openapi3.Root

	mu   sync.Mutex
	kept map[schema.GroupVersion]map[string]typed.ParseableType
}

// of is the type of a kind. fresh asks the API server again: a custom resource may have got another schema.
func (t *schemas) of(kind schema.GroupVersionKind, fresh bool) (typed.ParseableType, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.kept[kind.GroupVersion()][kind.Kind]; ok && !fresh {
		return found, nil
	}
	document, err := t.GVSpec(kind.GroupVersion())
	if err != nil {
		return typed.ParseableType{}, err
	}
	kinds, err := Types(document, kind.GroupVersion())
	if err != nil {
		return typed.ParseableType{}, err
	}
	if t.kept == nil {
		t.kept = map[schema.GroupVersion]map[string]typed.ParseableType{}
	}
	t.kept[kind.GroupVersion()] = kinds
	found, ok := kinds[kind.Kind]
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
		raw, err := json.Marshal(s.Extensions["x-kubernetes-group-version-kind"])
		if err != nil || json.Unmarshal(raw, &kinds) != nil {
			continue
		}
		for _, kind := range kinds {
			if kind.GroupVersion() == gv {
				out[kind.Kind] = parser.Type(name)
			}
		}
	}
	return out, nil
}
