// Package reference is a reference deputy: a tool that sends the requests of many people to an API server, each under
// the name of the person, and that has its own audit log, as the article on the deputy pattern describes it
// (periscope). It also has the agent at the far end of a tunnel, which adds its token. Both are as small as they can be
// and still be right, and authzconf deputy tests API servers with them.
package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	userHeader    = "Impersonate-User"
	groupHeader   = "Impersonate-Group"
	uidHeader     = "Impersonate-Uid"
	extraPrefix   = "Impersonate-Extra-"
	auditIDHeader = "Audit-Id"
)

// User is somebody whom the identity provider has authenticated.
type User struct {
	Subject string   // the name that is impersonated
	Groups  []string // from the identity provider
}

// Tiers returns the five tiers, beginning with the lowest.
func Tiers() []string { return []string{"read", "triage", "write", "maintain", "admin"} }

// TierPrefix is the beginning of the name of a tier's group.
const TierPrefix = "periscope-tier:"

// Row is a line of the deputy's own audit log. It is written before the request is sent, so that nothing is done that
// is not logged.
type Row struct {
	AuditID string `json:"auditID"` // also that of the API server's event
	Actor   string `json:"actor"`   // the person
	Cluster string `json:"cluster,omitempty"`
	// Verb is the API server's word for what is done. The fields below are empty if the request is about no resource.
	Verb     string `json:"verb"`
	APIGroup string `json:"apiGroup,omitempty"`
	// Resource includes the subresource after a slash, such as pods/eviction.
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Correlation is the ID that the client has given the request in the header X-Request-Id.
	Correlation string `json:"correlation,omitempty"`
	Method      string `json:"method"`
	URI         string `json:"uri"`
}

// Options are what a deputy needs.
type Options struct {
	Target *url.URL // the API server, or the agent of a tunnel
	// Transport trusts the certificate of the target.
	Transport http.RoundTripper
	// Cluster is the name of the target's cluster, for the audit log.
	Cluster string
	// Token authenticates the deputy. If it is empty, none is sent: an agent adds its own.
	Token string
	// GroupTiers are the tiers of the identity provider's groups. A user gets the group of the highest tier.
	GroupTiers map[string]string
	// DefaultTier is the tier of a user who is in none of these groups. If it is empty, such a user is refused.
	DefaultTier string
	// Session returns who sent a request. If it returns false, the request is refused.
	Session func(*http.Request) (User, bool)
	// Audit receives the rows, from several goroutines. If it returns an error, the request is refused.
	Audit func(Row) error
}

// New returns the deputy. It passes on no impersonation and no credentials that a client sends.
func New(o Options) (http.Handler, error) {
	if err := o.checkTiers(); err != nil {
		return nil, err
	}
	return http.HandlerFunc(o.serve), nil
}

// serve sends the request of a session on as its person, after it has written a row.
func (o Options) serve(w http.ResponseWriter, r *http.Request) {
	user, ok := o.Session(r)
	if !ok {
		refuse(w, http.StatusUnauthorized, "there is no session")
		return
	}
	headers, err := o.impersonate(user)
	if err != nil {
		refuse(w, http.StatusForbidden, err.Error())
		return
	}
	if !isPlainConnection(r.Header) {
		refuse(w, http.StatusBadRequest, "the header Connection names other headers")
		return
	}
	row, err := o.newRow(user.Subject, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "what the request is about cannot be told")
		return
	}
	if err := o.Audit(row); err != nil {
		refuse(w, http.StatusInternalServerError, "the audit log cannot be written")
		return
	}
	headers.Set(auditIDHeader, row.AuditID)
	if o.Token != "" {
		headers.Set("Authorization", "Bearer "+o.Token)
	}
	proxy(o.Target, o.Transport, func(h http.Header) {
		dropIdentity(h)
		maps.Copy(h, headers)
	}).ServeHTTP(w, r)
}

// newRow returns the row for a request of a person.
func (o Options) newRow(actor string, r *http.Request) (Row, error) {
	row := Row{
		AuditID: string(uuid.NewUUID()), Actor: actor, Cluster: o.Cluster, Correlation: r.Header.Get("X-Request-Id"),
		Method: r.Method, URI: r.URL.RequestURI(),
	}
	info, err := scenarios.RequestInfo(r.Method, r.URL)
	if err != nil {
		return row, err
	}
	row.Verb, row.APIGroup, row.Resource, row.Namespace, row.Name = info.Verb, info.APIGroup, info.Resource, info.Namespace, info.Name
	if info.Subresource != "" {
		row.Resource += "/" + info.Subresource
	}
	return row, nil
}

// checkTiers returns an error for the first tier that does not exist.
func (o Options) checkTiers() error {
	for group, tier := range o.GroupTiers {
		if !slices.Contains(Tiers(), tier) {
			return fmt.Errorf("group %q: there is no tier %q (expected one of %s)", group, tier, strings.Join(Tiers(), ", "))
		}
	}
	if o.DefaultTier != "" && !slices.Contains(Tiers(), o.DefaultTier) {
		return fmt.Errorf(
			"there is no tier %q for those who are in no group (expected one of %s)",
			o.DefaultTier,
			strings.Join(Tiers(), ", "),
		)
	}
	return nil
}

// impersonate returns the headers for a user. Without a subject there would be no header, and the request would be the
// deputy's own. A subject whose name begins as those of the system do would have rights that no identity provider gave.
func (o Options) impersonate(u User) (http.Header, error) {
	best := -1
	for _, g := range u.Groups {
		best = max(best, slices.Index(Tiers(), o.GroupTiers[g]))
	}
	if best < 0 { // the tier of a group counts even if it is below the default
		best = slices.Index(Tiers(), o.DefaultTier)
	}
	switch {
	case strings.TrimSpace(u.Subject) == "":
		return nil, errors.New("the session has no subject")
	case strings.HasPrefix(u.Subject, "system:"):
		return nil, errors.New("the subject is one of the system's names")
	case best < 0:
		return nil, errors.New("the user is in no tier")
	}
	return http.Header{userHeader: {u.Subject}, groupHeader: {TierPrefix + Tiers()[best]}}, nil
}

// proxy sends a request on with the headers that rewrite leaves. It passes on streams at once, and upgrades too.
func proxy(target *url.URL, transport http.RoundTripper, rewrite func(http.Header)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			rewrite(r.Out.Header)
		},
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			refuse(w, http.StatusBadGateway, "the target does not answer") // the text of the error would name the target
		},
	}
}

// dropIdentity removes everything that could say who somebody is: credentials, impersonation, and headers of front
// proxies.
func dropIdentity(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		plain := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		return plain == "Authorization" || plain == "Cookie" || plain == auditIDHeader || strings.HasPrefix(plain, "Impersonate-") ||
			strings.HasPrefix(plain, "X-Remote-")
	})
}

// isPlainConnection reports whether the header Connection contains only options of a connection. A proxy drops every
// other header that it names (RFC 9110, 7.6.1), which could turn an impersonated request into one of the deputy's own.
func isPlainConnection(h http.Header) bool {
	for _, line := range h["Connection"] {
		for _, option := range strings.Split(line, ",") {
			option = strings.ToLower(strings.TrimSpace(option))
			if !slices.Contains([]string{"", "upgrade", "keep-alive", "close"}, option) {
				return false
			}
		}
	}
	return true
}

// refuse answers with a Status, as the Kubernetes API does.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: "deputy: " + message,
	})
}

// NewAgent returns the agent at the end of a tunnel. It sets its token in place of any that arrives, and passes
// impersonation on unchanged. It does nothing on its own behalf: it refuses a request that impersonates nobody, and one
// whose headers two readers could understand differently.
func NewAgent(target *url.URL, transport http.RoundTripper, token func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := findRefusal(r.Header); why != "" {
			refuse(w, http.StatusForbidden, why)
			return
		}
		proxy(target, transport, func(h http.Header) {
			maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Remote-") || name == "Cookie" })
			h.Set("Authorization", "Bearer "+token())
		}).ServeHTTP(w, r)
	})
}

// findRefusal returns why a request is not passed on, or "" if it is.
func findRefusal(h http.Header) string {
	if !isPlainConnection(h) {
		return "the header Connection names other headers"
	}
	for name := range h {
		if canonical := strings.ReplaceAll(strings.ToLower(name), "_", "-"); !strings.HasPrefix(canonical, "impersonate") {
			continue
		}
		isKnown := slices.Contains([]string{userHeader, groupHeader, uidHeader}, name)
		if !isKnown && !strings.HasPrefix(name, extraPrefix) {
			return "there is no such impersonation header"
		}
	}
	switch users := h[userHeader]; {
	case len(users) != 1 || users[0] == "":
		return "the request does not say whom it is for, or not once"
	case len(h[uidHeader]) > 1:
		return "the request has several UIDs"
	}
	return ""
}
