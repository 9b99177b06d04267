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

// bodyLimit is that of kube-apiserver (k8s.io/apiserver/pkg/server.NewConfig, MaxRequestBodyBytes).
const bodyLimit = 3 << 20

// Request is a mutating request whose fields are checked.
type Request struct {
	User      user.Info
	Info      *apirequest.RequestInfo
	Body      []byte // as it was sent; MediaType is what it is in
	MediaType string
	DryRun    bool

	http *http.Request
}

// Apply reports whether the request is a server-side apply.
func (r *Request) Apply() bool { return r.MediaType == string(types.ApplyYAMLPatchType) }

// Attributes returns what the authorizer is asked about, with a verb.
func (r *Request) Attributes(verb string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: r.User, Verb: verb, ResourceRequest: true,
		APIGroup: r.Info.APIGroup, APIVersion: r.Info.APIVersion, Resource: r.Info.Resource, Subresource: r.Info.Subresource,
		Namespace: r.Info.Namespace, Name: r.Info.Name,
	}
}

// isChecked reports whether a request is one that changes fields of the object itself: create, update, patch and apply of
// a resource or its status. Everything else is the API server's business alone.
func isChecked(info *apirequest.RequestInfo) bool {
	onObject := info.Subresource == "" || info.Subresource == "status"
	return info.IsResourceRequest && onObject && slices.Contains([]string{"create", "update", "patch"}, info.Verb)
}

var errMediaType = errors.New("the body must be JSON or YAML, or a patch of one of the four types, for its fields to be checked")

func readRequest(w http.ResponseWriter, r *http.Request, u user.Info, info *apirequest.RequestInfo) (*Request, error) {
	// What is read of the path must be what the API server reads.
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

// object returns the body where it is an object: all but JSON patches. It fails for what
// the enforcer cannot read, which the API server may well be able to.
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
	if err := utiljson.Unmarshal(raw, &out); err != nil { // keeps whole numbers whole
		return nil, err
	}
	if out == nil {
		return nil, errors.New("the body is not an object")
	}
	return out, nil
}

var errPrecondition = errors.New("metadata and its resourceVersion cannot be replaced as a whole where fields are checked")

// pinVersion returns the body of a request that has an effect on one version of the stored object only: what was checked is
// what is done. The version that a client asks for itself stays, for the API server to compare. Without a version
// the body is only written anew, so that the API server reads nothing else in it than was read here.
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
	operations = append(operations, map[string]json.RawMessage{"op": []byte(`"add"`), "path": []byte(`"/metadata/resourceVersion"`), "value": version})
	return json.Marshal(operations)
}
