package enforcer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/scenarios"
)

// ServeHTTP implements http.Handler.
func (e *Enforcer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		// Only the enforcer itself may impersonate: a client must not be able to impersonate by the enforcer's rights.
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
	if !isChecked(info) {
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

// outcome says how a request is carried out that is not refused: as whom, and with which body.
type outcome struct {
	as   user.Info
	body []byte
}

func respond(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// pass sends a request to the API server as a user. If body is not nil, it replaces the body of the client.
func (e *Enforcer) pass(w http.ResponseWriter, r *http.Request, userInfo user.Info, body []byte) {
	proxy := &httputil.ReverseProxy{
		Transport: e.roundTripper(userInfo),
		// The response to a watch is a stream.
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

// roundTripper returns the way to the API server as an actor.
func (e *Enforcer) roundTripper(u user.Info) http.RoundTripper {
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
	}, e.forward)
}

// send sends a client's request as a user, with another query and body. It returns an error if the API server refuses
// the request.
func (e *Enforcer) send(ctx context.Context, r *Request, query string, body []byte, userInfo user.Info) ([]byte, error) {
	out := r.http.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery, out.Host, out.RequestURI = e.url.Scheme, e.url.Host, query, "", ""
	out.Header.Del("Authorization")
	out.Header.Del("Accept-Encoding")
	out.Header.Set("Accept", "application/json")
	setBody(out, body)
	response, err := e.roundTripper(userInfo).RoundTrip(out)
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

// forbidden returns the error that an API server returns to a user without a permission.
func forbidden(r *Request, verb, reason string) *apierrors.StatusError {
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason)
}
