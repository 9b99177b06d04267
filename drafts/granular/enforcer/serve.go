package enforcer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// ServeHTTP implements http.Handler.
func (e *Enforcer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		// The enforcer impersonates; nobody else may through it.
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			respond(w, r, apierrors.NewBadRequest("the enforcer does not pass "+name+" on"))
			return
		}
	}
	u, err := e.authenticate(r.Context(), r)
	if err != nil {
		respond(w, r, err)
		return
	}
	info, err := scenarios.RequestInfo(r.Method, r.URL)
	if err != nil {
		respond(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	if !checked(info) {
		e.pass(w, r, u, nil)
		return
	}
	request, err := readRequest(w, r, u, info)
	if err != nil {
		respond(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	d := Decision{User: u.GetName(), Verb: info.Verb, Fields: -1}
	outcome, err := e.judge(r.Context(), request, &d)
	if e.o.Record != nil {
		e.o.Record(d)
	}
	if err != nil {
		respond(w, r, err)
		return
	}
	e.pass(w, r, outcome.as, outcome.body)
}

// outcome is what becomes of a request that is not refused: as is who carries it out, with body.
type outcome struct {
	as   user.Info
	body []byte
}

func respond(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// pass carries a request out as somebody. body, unless nil, is sent in place of what the client sent.
func (e *Enforcer) pass(w http.ResponseWriter, r *http.Request, as user.Info, body []byte) {
	proxy := &httputil.ReverseProxy{
		Transport: e.as(as),
		// Watches are streams.
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(e.url)
			p.Out.Host = ""
			p.Out.Header.Del("Authorization")
			if body != nil {
				setBody(p.Out, body)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			respond(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("the API server cannot be reached: %v", err)))
		},
	}
	proxy.ServeHTTP(w, r)
}

func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	if media := r.Header.Get("Content-Type"); media == "" || strings.HasPrefix(media, "application/yaml") {
		r.Header.Set("Content-Type", "application/json")
	}
}

// as is the way to the API server as an actor.
func (e *Enforcer) as(u user.Info) http.RoundTripper {
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
	}, e.forward)
}

// send sends a client's request with another query and body, as somebody. What the API server refuses is an error.
func (e *Enforcer) send(ctx context.Context, r *Request, query string, body []byte, as user.Info) ([]byte, error) {
	out := r.http.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery, out.Host, out.RequestURI = e.url.Scheme, e.url.Host, query, "", ""
	out.Header.Del("Authorization")
	out.Header.Del("Accept-Encoding")
	out.Header.Set("Accept", "application/json")
	setBody(out, body)
	response, err := e.as(as).RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		refusal := &apierrors.StatusError{}
		if err = json.Unmarshal(raw, &refusal.ErrStatus); err == nil {
			err = refusal
		}
	}
	return raw, err
}

// forbidden is the error of an API server for somebody without a permission.
func forbidden(r *Request, verb, reason string) *apierrors.StatusError {
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason)
}

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

// Apply says whether the request is a server-side apply.
func (r *Request) Apply() bool { return r.MediaType == string(types.ApplyYAMLPatchType) }

// Attributes are what the authorizer is asked about, with a verb.
func (r *Request) Attributes(verb string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: r.User, Verb: verb, ResourceRequest: true,
		APIGroup: r.Info.APIGroup, APIVersion: r.Info.APIVersion, Resource: r.Info.Resource, Subresource: r.Info.Subresource,
		Namespace: r.Info.Namespace, Name: r.Info.Name,
	}
}

// checked says whether a request is one that changes fields of the object itself: create, update, patch and apply
// of a resource or its status. Everything else is the API server's business alone.
func checked(info *apirequest.RequestInfo) bool {
	return info.IsResourceRequest && (info.Subresource == "" || info.Subresource == "status") &&
		slices.Contains([]string{"create", "update", "patch"}, info.Verb)
}

// secondary are the groups whose resources the API server guards by further checks on the actor's own permissions:
// escalation and binding of roles (pkg/registry/rbac/escalation_check.go), approval and signing of certificates
// (plugin/pkg/admission/certificates), what admission policies may read (pkg/registry/admissionregistration). A request
// that is carried out with other rights than the actor's would pass them, so granular permissions are no use there.
var secondary = sets.New("rbac.authorization.k8s.io", "certificates.k8s.io", "admissionregistration.k8s.io",
	"authentication.k8s.io", "authorization.k8s.io", "resource.k8s.io")

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

// object is the body where it is an object: all but JSON patches. It fails for what
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
