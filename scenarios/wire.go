package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http" //nolint:depguard // a request is read as the API server reads it, and none is sent
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/authzconf/authzconf/internal/seq"
)

// PatchType is a kind of patch.
type PatchType string

// These are the kinds of patches, by their names in kubectl patch.
const (
	MergePatch     PatchType = "merge"
	StrategicPatch PatchType = "strategic"
	JSONPatch      PatchType = "json"
	// ApplyPatch is server-side apply.
	ApplyPatch PatchType = "apply"
)

var contentTypes = map[PatchType]string{
	MergePatch:     "application/merge-patch+json",
	StrategicPatch: "application/strategic-merge-patch+json",
	JSONPatch:      "application/json-patch+json",
	ApplyPatch:     "application/apply-patch+yaml",
}

// Upgrade is a protocol to which a connection is upgraded.
type Upgrade string

const (
	// WebSocket is requested with GET.
	WebSocket Upgrade = "websocket"
	// SPDY is what clients used before. It is requested with POST.
	SPDY Upgrade = "spdy"
	// Tunnel is SPDY within a WebSocket, which port-forward uses since it uses WebSockets. It is requested with GET.
	Tunnel Upgrade = "tunnel"
)

// Headers returns the headers that ask for the upgrade.
func (u Upgrade) Headers() map[string]string {
	const streams = "v5.channel.k8s.io"
	protocol := streams
	switch u {
	case WebSocket, Tunnel:
		if u == Tunnel {
			protocol = "SPDY/3.1+portforward.k8s.io"
		}
		return map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			// The key is any 16 bytes. By them the server proves that it speaks the protocol.
			"Sec-WebSocket-Key": "YXV0aHpjb25mLW5vbmNlLQ==", "Sec-WebSocket-Protocol": protocol,
		}
	case SPDY:
		return map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": streams}
	}
	return nil
}

// ContentType returns the media type of the request's body.
func (r *Request) ContentType() string {
	if r.Verb != "patch" {
		return "application/json"
	}
	return contentTypes[cmp.Or(r.Patch, MergePatch)]
}

// Content returns the body as it is sent, or nil if there is none. JSON is also YAML.
func (r *Request) Content() (json.RawMessage, error) {
	switch {
	case r.Operations != nil:
		return json.Marshal(r.Operations)
	case r.Body != nil:
		return json.Marshal(r.Body)
	}
	return nil, nil
}

// Reviewed returns the alias of the requestor whose token the request asks about, or "". In the body of a TokenReview
// the alias stands for the token.
func (r *Request) Reviewed() string {
	if Text(r.Body, "kind") != "TokenReview" {
		return ""
	}
	return Text(r.Body, "spec", tokenField)
}

// WithTokens returns the request with the token in place of the alias.
func (r *Request) WithTokens(tokens map[string]string) *Request {
	out, alias := *r, r.Reviewed()
	if tokens[alias] != "" {
		out.Body = rewriteTexts("", r.Body, func(field, text string) string {
			if field == tokenField && text == alias {
				return tokens[alias]
			}
			return text
		}).(map[string]any)
	}
	return &out
}

// HTTPMethods are the HTTP methods of the request verbs, as k8s.io/apiserver/pkg/endpoints/request/requestinfo.go reads
// them.
var HTTPMethods = map[string]string{
	"get": "GET", "list": "GET", "watch": "GET",
	"create": "POST", "update": "PUT", "patch": "PATCH",
	"delete": "DELETE", "deletecollection": "DELETE",
}

// requestInfo reads requests as kube-apiserver does.
var requestInfo = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// RequestInfo returns how an API server understands a request line. It returns an error for a path to which an API
// server also answers with an error. For a query that cannot be decoded, the library ignores all options but watch, and
// logs that in whatever process it runs. So it gets a query with the same meaning that can be decoded.
func RequestInfo(method string, address *url.URL) (*request.RequestInfo, error) {
	query, readable := address.Query(), *address
	if metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &metainternalversion.ListOptions{}) == nil {
		return requestInfo.NewRequestInfo(&http.Request{Method: method, URL: address, Header: http.Header{}})
	}
	same := url.Values{}
	if watch := query["watch"]; len(watch) > 0 && !slices.Contains([]string{"false", "0"}, strings.ToLower(watch[0])) {
		same.Set("watch", "true")
	}
	for _, selector := range []string{"fieldSelector", "labelSelector"} {
		if query.Get(selector) != "" {
			same.Set(selector, "some=thing")
		}
	}
	readable.RawQuery = same.Encode()
	info, err := requestInfo.NewRequestInfo(&http.Request{Method: method, URL: &readable, Header: http.Header{}})
	if info != nil && info.FieldSelector != "" {
		info.FieldSelector = query.Get("fieldSelector")
	}
	if info != nil && info.LabelSelector != "" {
		info.LabelSelector = query.Get("labelSelector")
	}
	return info, err
}

// Method returns the HTTP method, or "" if the verb is unknown.
func (r *Request) Method() string {
	if r.Path != "" {
		return strings.ToUpper(r.Verb)
	}
	return HTTPMethods[r.Verb]
}

// URI returns the path with its query, as it is sent.
func (r *Request) URI() string {
	if q := r.query(); len(q) > 0 {
		return r.path() + "?" + q.Encode()
	}
	return r.path()
}

// path returns the path of a resource request, or the given path.
func (r *Request) path() string {
	if r.Path != "" {
		return r.Path
	}
	path := "/apis/" + r.APIGroup + "/" + r.APIVersion()
	if r.APIGroup == "" {
		path = "/api/" + r.APIVersion()
	}
	if r.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(r.Namespace)
	}
	for _, part := range []string{r.Resource, r.Name, r.Subresource} {
		if part != "" {
			path += "/" + url.PathEscape(part)
		}
	}
	return path
}

// APIVersion returns the version of a resource request.
func (r *Request) APIVersion() string { return cmp.Or(r.Version, "v1") }

func (r *Request) query() url.Values {
	q := url.Values{}
	switch {
	case r.Verb == "watch":
		q.Set("watch", "true")
	case r.Verb == "list" && r.Path == "":
		// This lists as informers do, which accept any state. Without it the API server would wait up to 100 ms until
		// its cache is confirmed as the newest, after everything that is judged here.
		q.Set("resourceVersion", "0")
	}
	for k, v := range r.Query {
		q.Set(k, v)
	}
	if r.FieldSelector != "" {
		q.Set("fieldSelector", r.FieldSelector)
	}
	if r.LabelSelector != "" {
		q.Set("labelSelector", r.LabelSelector)
	}
	return q
}

// agentHeader names the client. It is recorded apart from the other headers, because every client has one of its own.
const agentHeader, acceptHeader = "User-Agent", "Accept"

// UserAgent returns the name of the client in the request: the one in the scenario, or our own.
func (r *Request) UserAgent() string { return r.header(agentHeader, "authzconf") }

// Accept returns which media types the answer may have. It is not recorded.
func (r *Request) Accept() string { return r.header(acceptHeader, "application/json") }

func (r *Request) header(name, otherwise string) string {
	for _, line := range r.Headers {
		if line.Name == name {
			return line.Bytes()
		}
	}
	return otherwise
}

// WireHeaders returns the header lines with which the request must be sent, as evidence shows them. It leaves out
// headers that all requests have.
func (r *Request) WireHeaders() map[string][]string {
	h := r.lines()
	for name, values := range h {
		h[name] = ShownValues(values)
	}
	return h
}

// lines returns the header lines of the request, without those that all requests have.
func (r *Request) lines() map[string][]string {
	h := r.Impersonate.headers()
	if r.Body != nil || r.Operations != nil {
		h.Set("Content-Type", r.ContentType())
	}
	for name, value := range r.Upgrade.Headers() {
		h.Set(name, value)
	}
	for _, line := range r.Headers {
		h[line.Name] = append(h[line.Name], line.Bytes())
	}
	delete(h, agentHeader)
	delete(h, acceptHeader)
	return h
}

// RequestedUser returns the user that the headers ask for, before the API server adds groups
// (processImpersonationHeaders in k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func (r *Request) RequestedUser() User {
	u := User{Extra: map[string][]string{}}
	for name, values := range r.lines() {
		name = textproto.CanonicalMIMEHeaderKey(name)
		values = seq.Map(values, func(v string) string { return strings.Trim(v, " \t") }) // as HTTP does
		key, extra := strings.CutPrefix(name, "Impersonate-Extra-")
		switch {
		case name == userHeader:
			u.Name = values[0]
		case name == "Impersonate-Uid":
			u.UID = values[0]
		case name == "Impersonate-Group":
			u.Groups = values
		case extra:
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			u.Extra[key] = append(u.Extra[key], values...)
		}
	}
	return u
}

// headers returns the headers that client-go sends (NewImpersonatingRoundTripper). They are computed again here to
// compare them with what was sent.
func (i *Impersonate) headers() textproto.MIMEHeader {
	h := textproto.MIMEHeader{}
	if i == nil {
		return h
	}
	h.Set(userHeader, i.User)
	if i.UID != "" {
		h.Set("Impersonate-Uid", i.UID)
	}
	for _, group := range i.Groups {
		h.Add("Impersonate-Group", group)
	}
	for key, values := range i.Extra {
		name := "Impersonate-Extra-"
		for _, b := range []byte(key) {
			if isOutsideToken(rune(b)) || b == '%' {
				name += fmt.Sprintf("%%%02X", b)
			} else {
				name += string(rune(b))
			}
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); len(values) > 0 {
			h[name] = append(h[name], values...)
		}
	}
	return h
}

const shownLimit = 4 << 10

// ShownValues returns the values of a header for evidence: shortened, and quoted if they are not UTF-8.
func ShownValues(values []string) []string {
	texts := make([]string, 0, len(values))
	for _, v := range values {
		if !utf8.ValidString(v) {
			v = strconv.Quote(v)
		}
		if len(v) > shownLimit {
			v = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(v[:shownLimit], ""), len(v))
		}
		texts = append(texts, v)
	}
	return texts
}

// checkWire checks how the request is sent.
func (c *checker) checkWire(r *Request, path []any) {
	checkEnum(c, extend(path, "patch"), r.Patch, slices.Sorted(maps.Keys(contentTypes))...)
	checkEnum(c, extend(path, "upgrade"), r.Upgrade, WebSocket, SPDY, Tunnel)
	c.failIf(r.Hold && r.Verb != "watch", extend(path, "hold"), "hold is given with the verb %s (expected it with watch only)", r.Verb)
	c.failIf(r.Patch != "" && r.Verb != "patch", extend(path, "patch"),
		"patch is given with the verb %s (expected it with patch only)", r.Verb)
	c.failIf((r.Operations != nil) != (r.Patch == JSONPatch) && !c.src.failedAt(path), path,
		"only one of operations and patch: json is given (expected both)")
	c.failIf(r.Operations != nil && r.Body != nil, extend(path, "body"),
		"body is given beside operations (expected one of the two)")
}

// AssociatedNodeKeysKey is the only key of extra that the requestor has in the reviews of the mode associated-node. Its
// values are the keys of extra in the requestor's token: associatedNodeImpersonationRequestorUserInfo of
// k8s.io/apiserver/pkg/endpoints/filters/impersonation.
const AssociatedNodeKeysKey = "authentication.kubernetes.io/associated-node-keys"

var messageEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// EscapeMessage returns the message of a refusal as an API server sends it, escaped so that no browser takes it for a
// page: sanitizer of k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
func EscapeMessage(text string) string { return messageEscapes.Replace(text) }
