package reference

import (
	"encoding/json"
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
)

const (
	userHeader    = "Impersonate-User"
	groupHeader   = "Impersonate-Group"
	uidHeader     = "Impersonate-Uid"
	extraPrefix   = "Impersonate-Extra-"
	auditIDHeader = "Audit-Id"
)

// Row is a line of the deputy's own audit log. It is written before the request
// is sent: what is not written is not done.
type Row struct {
	// AuditID is that of the API server's event as well.
	AuditID string `json:"auditID"`
	// Actor is the person.
	Actor  string `json:"actor"`
	Method string `json:"method"`
	URI    string `json:"uri"`
}

// Options are what a deputy needs.
type Options struct {
	// Target is the API server, or the agent of a tunnel.
	Target *url.URL
	// Transport trusts the target.
	Transport http.RoundTripper
	// Token authenticates the deputy. Empty sends none: an agent adds its own.
	Token string
	// Mapping says whom users are impersonated as.
	Mapping Mapping
	// Session says who a request is from; false refuses it.
	Session func(*http.Request) (User, bool)
	// Audit receives the rows, from several goroutines. An error refuses the request.
	Audit func(Row) error
}

// New is the deputy. Whatever impersonation and credentials a client sends are its
// own business: none of it is passed on.
func New(o Options) (http.Handler, error) {
	if err := o.Mapping.Check(); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := o.Session(r)
		if !ok {
			refuse(w, http.StatusUnauthorized, "there is no session")
			return
		}
		as := http.Header{}
		if err := o.Mapping.impersonate(as, user); err != nil {
			refuse(w, http.StatusForbidden, err.Error())
			return
		}
		if !plainConnection(r.Header) {
			refuse(w, http.StatusBadRequest, "the header Connection names other headers")
			return
		}
		row := Row{AuditID: string(uuid.NewUUID()), Actor: user.Subject, Method: r.Method, URI: r.URL.RequestURI()}
		if err := o.Audit(row); err != nil {
			refuse(w, http.StatusInternalServerError, "the audit log cannot be written")
			return
		}
		as.Set(auditIDHeader, row.AuditID)
		if o.Token != "" {
			as.Set("Authorization", "Bearer "+o.Token)
		}
		proxy(o.Target, o.Transport, func(h http.Header) {
			dropIdentity(h)
			maps.Copy(h, as)
		}).ServeHTTP(w, r)
	}), nil
}

// proxy sends a request on with the headers as rewrite leaves them. What streams is
// passed on at once, and connections may be upgraded.
func proxy(target *url.URL, transport http.RoundTripper, rewrite func(http.Header)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			rewrite(r.Out.Header)
		},
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			refuse(w, http.StatusBadGateway, "the target does not answer") // the error would name it
		},
	}
}

// dropIdentity takes out everything that could say who somebody is: credentials,
// impersonation, and what front proxies say (--requestheader-*).
func dropIdentity(h http.Header) {
	for name := range h {
		plain := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if plain == "Authorization" || plain == "Cookie" || plain == auditIDHeader ||
			strings.HasPrefix(plain, "Impersonate-") || strings.HasPrefix(plain, "X-Remote-") {
			delete(h, name)
		}
	}
}

// plainConnection tells whether the header Connection names nothing but what a
// connection is: every header that it names is dropped by a proxy (RFC 9110, 7.6.1),
// which would turn an impersonated request into one of the deputy's own.
func plainConnection(h http.Header) bool {
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

// refuse answers as an API server would.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: "deputy: " + message,
	})
}
