package oracle

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Attributes are what a request is to authorization, as GetAuthorizerAttributes of
// k8s.io/apiserver/pkg/endpoints/filters/authorization.go has it.
type Attributes struct {
	// Verb is the request verb, or the lower-case HTTP method of a request for a path.
	Verb string
	// APIGroup, Version, Resource, Subresource, Namespace and Name are empty for a request that is for no resource.
	APIGroup, Version, Resource, Subresource, Namespace, Name string
	Path                                                      string // the whole path of the URL
	// ResourceRequest says whether the path is that of a resource.
	ResourceRequest bool
	// Fields and Labels are the selectors of list, watch and deletecollection.
	Fields []fields.Requirement
	Labels []labels.Requirement
	// BadSelector says that a selector cannot be parsed: the server then authorizes without it, and caches nothing.
	BadSelector bool
}

// Request is what the model is asked about: the attributes, and of the rest as much as leads to further reviews.
type Request struct {
	Attributes
	Headers []scenarios.Header // impersonation headers behind those of client-go
	// Body is the object that is written. The model looks at roles, role bindings and self-reviews.
	Body map[string]any
	// Apply says that a patch is a server-side apply, which can create.
	Apply bool
	// DryRun says that nothing is stored.
	DryRun bool
	// Unread is what the server answers to a path of which it cannot tell what it is, before anything else.
	Unread string
}

// RequestOf returns a scenario's request as it arrives: its HTTP method and path are parsed, which is all the server gets.
func RequestOf(r *scenarios.Request) Request {
	out := Request{Body: r.Body, Headers: r.Headers, Apply: r.Patch == scenarios.ApplyPatch}
	if u, err := url.Parse(r.URI()); err == nil {
		out.Attributes, out.DryRun = ParseRequest(r.Method(), u), u.Query().Has("dryRun")
		if _, err := scenarios.RequestInfo(r.Method(), u); err != nil {
			out.Unread = fmt.Sprintf("Internal Server Error: %q: failed to create RequestInfo: %v", r.URI(), err)
		}
	}
	return out
}

// ParseRequest returns the attributes of a request line.
func ParseRequest(method string, address *url.URL) Attributes {
	info, err := scenarios.RequestInfo(method, address)
	if err != nil {
		return Attributes{Path: address.Path, Verb: info.Verb}
	}
	a := Attributes{Path: info.Path, Verb: info.Verb, ResourceRequest: info.IsResourceRequest}
	if !info.IsResourceRequest {
		return a
	}
	a.APIGroup, a.Version, a.Resource, a.Subresource = info.APIGroup, info.APIVersion, info.Resource, info.Subresource
	a.Namespace, a.Name = info.Namespace, info.Name
	f, err := fields.ParseSelector(info.FieldSelector)
	l, err2 := labels.Parse(info.LabelSelector)
	a.BadSelector = err != nil || err2 != nil
	if err == nil {
		a.Fields = f.Requirements()
	}
	if err2 == nil {
		a.Labels, _ = l.Requirements()
	}
	return a
}

// review returns the access review that asks for a user's permission, as WebhookAuthorizer.Authorize builds it
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
	if r := scenarios.FieldRequirements(a.Fields); len(r) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: r}
	}
	if r := scenarios.LabelRequirements(a.Labels); len(r) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: r}
	}
	return spec
}

const (
	userHeader  = "impersonate-user"
	uidHeader   = "impersonate-uid"
	groupHeader = "impersonate-group"
	extraPrefix = "impersonate-extra-"
	// maxHeaders is how much an API server reads of headers (DefaultMaxHeaderBytes of net/http).
	maxHeaders = 1 << 20
)

// wantedUser returns what the impersonation headers ask for, as the API server reads them
// (processImpersonationHeaders). Those of client-go come first (impersonatingRoundTripper): it sends no key of
// extra without a value. isSent is false if no header says anything.
func wantedUser(imp *scenarios.Impersonate, raw []scenarios.Header) (u scenarios.User, isSent bool) {
	h := receivedHeaders{lines: map[string][]string{}, extra: map[string][]string{}}
	if imp != nil {
		h.addImpersonate(imp)
	}
	for _, line := range raw {
		h.addLine(line)
	}
	u = scenarios.User{Name: h.first(userHeader), UID: h.first(uidHeader)}
	if len(h.lines[groupHeader]) > 0 {
		u.Groups = h.lines[groupHeader]
	}
	if len(h.extra) > 0 {
		u.Extra = h.extra
	}
	return u, u.Name != "" || u.UID != "" || len(u.Groups) > 0 || len(h.extra) > 0
}

// receivedHeaders are the header lines of a request by their names, and of extra the values by their keys.
type receivedHeaders struct{ lines, extra map[string][]string }

// addImpersonate adds the lines that client-go sends.
func (h receivedHeaders) addImpersonate(imp *scenarios.Impersonate) {
	h.lines[userHeader], h.lines[groupHeader] = []string{imp.User}, slices.Clone(imp.Groups)
	if imp.UID != "" {
		h.lines[uidHeader] = []string{imp.UID}
	}
	for _, k := range slices.Sorted(maps.Keys(imp.Extra)) {
		if key := lowerASCII(k); len(imp.Extra[k]) > 0 {
			h.extra[key] = append(h.extra[key], imp.Extra[k]...)
		}
	}
}

// addLine adds a line that a scenario writes itself. A key of extra that cannot be decoded is taken as it is
// (unescapeExtraKey).
func (h receivedHeaders) addLine(line scenarios.Header) {
	name := lowerASCII(line.Name)
	escaped, isExtra := strings.CutPrefix(name, extraPrefix)
	if !isExtra {
		h.lines[name] = append(h.lines[name], line.Bytes())
		return
	}
	key, err := url.PathUnescape(escaped)
	if err != nil {
		key = escaped
	}
	h.extra[key] = append(h.extra[key], line.Bytes())
}

// first returns the value of a header; of several lines the first counts.
func (h receivedHeaders) first(name string) string { return append(h.lines[name], "")[0] }

// headerBytes returns how many bytes the impersonation headers have.
func headerBytes(imp *scenarios.Impersonate, raw []scenarios.Header) (n int) {
	n += seq.Sum(raw, func(h scenarios.Header) int {
		return len(h.Name) + len(h.Value)*max(1, h.Repeat) + len(h.Hex)/2 + len(": \r\n")
	})
	if imp == nil {
		return n
	}
	n += len(imp.User) + len(imp.UID)
	n += seq.Sum(imp.Groups, func(g string) int { return len(groupHeader) + len(g) })
	for k, values := range imp.Extra {
		n += seq.Sum(values, func(v string) int { return len(extraPrefix) + len(k) + len(v) })
	}
	return n
}

// lowerASCII lowers what a header name can carry. Other letters travel percent-encoded and keep their case.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}
