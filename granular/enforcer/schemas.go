package enforcer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas are the types of objects, as the API server publishes them.
type schemas struct {
	get func(ctx context.Context, path string) (int, []byte, error)

	mu   sync.Mutex
	kept map[schema.GroupVersion]map[string]typed.ParseableType
}

// of is the type of a kind. fresh asks the API server again: a custom resource may have got another schema.
func (t *schemas) of(ctx context.Context, kind schema.GroupVersionKind, fresh bool) (typed.ParseableType, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.kept[kind.GroupVersion()][kind.Kind]; ok && !fresh {
		return found, nil
	}
	kinds, err := t.fetch(ctx, kind.GroupVersion())
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

func (t *schemas) fetch(ctx context.Context, gv schema.GroupVersion) (map[string]typed.ParseableType, error) {
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	code, body, err := t.get(ctx, path)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("the API server answers %d for %s", code, path)
	}
	kinds, err := Types(body, gv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return kinds, nil
}

// Types turns the schemas of an OpenAPI v3 document into the types of one group and version, by kind.
func Types(raw []byte, gv schema.GroupVersion) (map[string]typed.ParseableType, error) {
	var document spec3.OpenAPI
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
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
