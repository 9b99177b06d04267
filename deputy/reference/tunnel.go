package reference

import (
	"net/http"
	"net/url"
	"strings"
)

// NewAgent is the agent at the end of a tunnel. It adds its token, in place of any that comes, and passes
// impersonation on as it is. It has no business of its own: a request that impersonates nobody is refused, and so
// is one whose headers two readers could read differently.
func NewAgent(target *url.URL, transport http.RoundTripper, token func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := whyRefused(r.Header); why != "" {
			refuse(w, http.StatusForbidden, why)
			return
		}
		proxy(target, transport, func(h http.Header) {
			for name := range h {
				if strings.HasPrefix(name, "X-Remote-") || name == "Cookie" {
					delete(h, name)
				}
			}
			h.Set("Authorization", "Bearer "+token())
		}).ServeHTTP(w, r)
	})
}

// whyRefused says why a request is not passed on; empty if it is.
func whyRefused(h http.Header) string {
	if !plainConnection(h) {
		return "the header Connection names other headers"
	}
	for name := range h {
		alike := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if !strings.HasPrefix(alike, "impersonate") {
			continue
		}
		if name != userHeader && name != groupHeader && name != uidHeader && !strings.HasPrefix(name, extraPrefix) {
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
