package enforcer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// bodyLimit is the limit of kube-apiserver (k8s.io/apiserver/pkg/server.NewConfig, MaxRequestBodyBytes).
const bodyLimit = 3 << 20

// Request is a mutating request whose fields are checked.
type Request struct {
	User      user.Info
	Info      *apirequest.RequestInfo
	Body      []byte // as it was sent, in the format MediaType
	MediaType string
	DryRun    bool

	http *http.Request
}

// Apply reports whether the request is a server-side apply.
func (r *Request) Apply() bool { return r.MediaType == string(types.ApplyYAMLPatchType) }

// Attributes returns the question to the authorizer about a verb.
func (r *Request) Attributes(verb string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: r.User, Verb: verb, ResourceRequest: true,
		APIGroup: r.Info.APIGroup, APIVersion: r.Info.APIVersion, Resource: r.Info.Resource, Subresource: r.Info.Subresource,
		Namespace: r.Info.Namespace, Name: r.Info.Name,
	}
}

// isChecked reports whether a request changes fields of the object itself: create, update, patch and apply of a
// resource or its status. All other requests are checked only by the API server.
func isChecked(info *apirequest.RequestInfo) bool {
	onObject := info.Subresource == "" || info.Subresource == "status"
	return info.IsResourceRequest && onObject && slices.Contains([]string{"create", "update", "patch"}, info.Verb)
}

var errMediaType = errors.New("the body must be JSON or YAML, or a patch of one of the four types, for its fields to be checked")

func readRequest(w http.ResponseWriter, r *http.Request, u user.Info, info *apirequest.RequestInfo) (*Request, error) {
	// The enforcer must read the same path as the API server.
	if path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") {
		return nil, errors.New("the path has parts that mean another one")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // to be passed on as it is
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, errMediaType
	}
	return &Request{User: u, Info: info, Body: body, MediaType: strings.ToLower(media), DryRun: len(r.URL.Query()["dryRun"]) > 0, http: r}, nil
}

// object returns the body if it is an object. It returns nil for JSON patches. It returns an error for a body that the
// enforcer cannot read, even if the API server may be able to read it.
func (r *Request) object() (out map[string]any, _ error) {
	switch types.PatchType(r.MediaType) {
	case "", "application/json", "application/yaml", types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
	case types.JSONPatchType:
		return nil, nil
	default:
		return nil, errMediaType
	}
	raw := r.Body
	if strings.HasSuffix(r.MediaType, "yaml") {
		var err error
		if raw, err = yaml.YAMLToJSON(r.Body); err != nil {
			return nil, err
		}
	}
	if err := utiljson.Unmarshal(raw, &out); err != nil { // whole numbers stay whole
		return nil, err
	}
	if out == nil {
		return nil, errors.New("the body is not an object")
	}
	return out, nil
}

var errPrecondition = errors.New("metadata and its resourceVersion cannot be replaced as a whole where fields are checked")

// pinVersion returns the body of a request that can change only one version of the stored object, so that the API
// server does what was checked. If the client gives a version itself, that version stays, and the API server compares
// it. Without a version, the body is only encoded again, so that the API server cannot read anything else in it than
// the enforcer has read.
func (r *Request) pinVersion(resourceVersion string) ([]byte, error) {
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
	operations = append(operations,
		map[string]json.RawMessage{"op": []byte(`"add"`), "path": []byte(`"/metadata/resourceVersion"`), "value": version},
	)
	return json.Marshal(operations)
}
