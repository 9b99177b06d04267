package oracle

import (
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/authzconf/authzconf/scenarios"
)

// Attributes are what a request is to authorization, as RequestInfoFactory of
// k8s.io/apiserver/pkg/endpoints/request/requestinfo.go and GetAuthorizerAttributes of
// pkg/endpoints/filters/authorization.go have it.
type Attributes struct {
	// Verb is the request verb, or the lower-case HTTP method of a request for a path.
	Verb string
	// APIGroup, Version, Resource, Subresource, Namespace and Name are empty for a request that is for no
	// resource.
	APIGroup, Version, Resource, Subresource, Namespace, Name string
	// Path is the whole path of the URL.
	Path string
	// ResourceRequest says whether the path is that of a resource.
	ResourceRequest bool
	// Fields and Labels are the selectors of list, watch and deletecollection.
	Fields []fields.Requirement
	Labels []labels.Requirement
	// BadSelector says that a selector cannot be parsed: the server then authorizes without it, and caches
	// nothing.
	BadSelector bool
}

// Request is what the model is asked about: the attributes, and of the rest as much as leads to further reviews.
type Request struct {
	Attributes
	// Headers are impersonation headers behind those of client-go.
	Headers []scenarios.Header
	// Body is the object that is written. The model looks at roles, role bindings and self-reviews.
	Body map[string]any
	// Apply says that a patch is a server-side apply, which can create.
	Apply bool
	// DryRun says that nothing is stored.
	DryRun bool
}

// methods are the HTTP methods of the request verbs.
var methods = map[string]string{
	"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT",
	"patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
}

// RequestOf is a scenario's request as it arrives: its HTTP method and path are parsed again, because that is all
// the server gets.
func RequestOf(r *scenarios.Request) Request {
	query := url.Values{}
	for k, v := range r.Query {
		query.Set(k, v)
	}
	if r.FieldSelector != "" {
		query.Set("fieldSelector", r.FieldSelector)
	}
	if r.LabelSelector != "" {
		query.Set("labelSelector", r.LabelSelector)
	}
	if r.Verb == "watch" && r.Path == "" {
		query.Set("watch", "true")
	}
	method, path := strings.ToUpper(r.Verb), r.Path
	if path == "" {
		method, path = methods[r.Verb], resourcePath(r)
	}
	out := Request{Attributes: ParseRequest(method, path, query), Body: r.Body, Headers: r.Headers, Apply: r.Patch == scenarios.ApplyPatch}
	out.DryRun = len(query["dryRun"]) > 0
	return out
}

func resourcePath(r *scenarios.Request) string {
	version := r.Version
	if version == "" {
		version = "v1"
	}
	parts := []string{"/apis", r.APIGroup, version}
	if r.APIGroup == "" {
		parts = []string{"/api", version}
	}
	if r.Namespace != "" {
		parts = append(parts, "namespaces", r.Namespace)
	}
	for _, part := range []string{r.Resource, r.Name, r.Subresource} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// ParseRequest is NewRequestInfo of k8s.io/apiserver/pkg/endpoints/request/requestinfo.go. The path is decoded.
func ParseRequest(method, path string, query url.Values) Attributes {
	a := Attributes{Path: path, Verb: strings.ToLower(method)}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 || parts[0] != "api" && parts[0] != "apis" {
		return a
	}
	if parts[0] == "apis" {
		if len(parts) < 4 {
			return a
		}
		a.APIGroup, parts = parts[1], parts[1:]
	}
	a.ResourceRequest, a.Version, parts = true, parts[1], parts[2:]
	a.Verb = map[string]string{
		"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
	}[method]
	byPrefix := parts[0] == "watch" || parts[0] == "proxy"
	if byPrefix && len(parts) > 1 { // an old form: /api/v1/watch/pods
		a.Verb, parts = parts[0], parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Name = parts[1]
	}
	if len(parts) > 2 && a.Verb != "proxy" {
		a.Subresource = parts[2]
	}
	a.collection(query)
	if !byPrefix && slices.Contains([]string{"list", "watch", "deletecollection"}, a.Verb) {
		a.selectors(query.Get("fieldSelector"), query.Get("labelSelector"))
	}
	return a
}

// collection turns requests without a name into list, watch and deletecollection. A field selector that asks for
// one name gives the name, unless the options cannot be decoded.
func (a *Attributes) collection(query url.Values) {
	if a.Name != "" || a.Verb != "get" && a.Verb != "delete" {
		return
	}
	if a.Verb == "delete" {
		a.Verb = "deletecollection"
		return
	}
	a.Verb = "list"
	if w, given := query["watch"]; given && strings.ToLower(w[0]) != "false" && w[0] != "0" {
		a.Verb = "watch"
	}
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if _, bad := labels.Parse(query.Get("labelSelector")); err != nil || bad != nil {
		return
	}
	if name, ok := selector.RequiresExactMatch("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
		a.Name = name
	}
}

func (a *Attributes) selectors(field, label string) {
	if f, err := fields.ParseSelector(field); err != nil {
		a.BadSelector = true
	} else {
		a.Fields = f.Requirements()
	}
	if l, err := labels.Parse(label); err != nil {
		a.BadSelector = true
	} else {
		a.Labels, _ = l.Requirements()
	}
}

// review is the access review that asks for a user's permission, as WebhookAuthorizer.Authorize builds it
// (k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go).
func (a Attributes) review(u scenarios.User) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Name, UID: u.UID, Groups: slices.Clone(u.Groups)}
	if len(u.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range u.Extra {
			spec.Extra[k] = slices.Clone(v)
		}
	}
	if !a.ResourceRequest {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.APIGroup, Version: a.Version,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
	}
	if r := fieldRequirements(a.Fields); len(r) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: r}
	}
	if r := labelRequirements(a.Labels); len(r) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: r}
	}
	return spec
}

func fieldRequirements(in []fields.Requirement) (out []metav1.FieldSelectorRequirement) {
	for _, r := range in {
		op := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			op = metav1.FieldSelectorOpNotIn
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	return out
}

// labelRequirements leaves out comparisons of numbers, as the server does.
func labelRequirements(in []labels.Requirement) (out []metav1.LabelSelectorRequirement) {
	ops := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
		selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	for _, r := range in {
		if op, known := ops[r.Operator()]; known {
			out = append(out, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: r.ValuesUnsorted()})
		}
	}
	return out
}
