package enforcer

import (
	"encoding/json"
	"errors"
	"strings"
)

var errPrecondition = errors.New("metadata and its resourceVersion cannot be replaced as a whole where fields are checked")

// pinned is the body of a request that has an effect on one version of the stored object only: what was checked is
// what is done. The version that a client asks for itself stays, for the API server to compare. Without a version
// the body is only written anew, so that the API server reads nothing else in it than was read here.
func (r *Request) pinned(resourceVersion string) ([]byte, error) {
	object, err := r.object()
	if err != nil {
		return nil, err
	}
	switch {
	case object == nil:
		return pinnedJSONPatch(r.Body, resourceVersion)
	case resourceVersion == "":
		return json.Marshal(object)
	}
	if object["metadata"] == nil {
		if _, null := object["metadata"]; null {
			return nil, errPrecondition
		}
		object["metadata"] = map[string]any{}
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return nil, errPrecondition
	}
	if v, _ := metadata["resourceVersion"].(string); v == "" {
		metadata["resourceVersion"] = resourceVersion
	}
	return json.Marshal(object)
}

func pinnedJSONPatch(body []byte, resourceVersion string) ([]byte, error) {
	var operations []map[string]json.RawMessage
	if err := json.Unmarshal(body, &operations); err != nil {
		return nil, err
	}
	for _, o := range operations {
		var path string
		if err := json.Unmarshal(o["path"], &path); err != nil {
			return nil, err
		}
		if path == "" || path == "/metadata" || strings.HasPrefix(path, "/metadata/resourceVersion") {
			return nil, errPrecondition
		}
	}
	version, err := json.Marshal(resourceVersion)
	if err != nil {
		return nil, err
	}
	operations = append(operations, map[string]json.RawMessage{"op": []byte(`"add"`), "path": []byte(`"/metadata/resourceVersion"`), "value": version})
	return json.Marshal(operations)
}
