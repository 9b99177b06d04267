package enforcer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/transport"
)

// ServeHTTP implements http.Handler.
func (e *Enforcer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		// The enforcer impersonates; nobody else may through it.
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			respond(w, apierrors.NewBadRequest("the enforcer does not pass "+name+" on"))
			return
		}
	}
	u, err := e.authenticate(r.Context(), r)
	if err != nil {
		respond(w, err)
		return
	}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		respond(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if !checked(info) {
		e.pass(w, r, u, nil)
		return
	}
	request, err := readRequest(w, r, u, info)
	if err != nil {
		respond(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	d := Decision{User: u.GetName(), Verb: info.Verb, Fields: -1}
	outcome, err := e.judge(r.Context(), request, &d)
	if e.o.Record != nil {
		e.o.Record(d)
	}
	switch {
	case err != nil:
		respond(w, err)
	case outcome.refusal != nil:
		outcome.refusal.send(w)
	default:
		e.pass(w, r, outcome.as, outcome.body)
	}
}

// outcome is what becomes of a request: refusal is an answer of the API server to the
// dry run that is passed on, as is who carries it out, with body.
type outcome struct {
	refusal *answer
	as      user.Info
	body    []byte
}

// answer is one of the API server.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a *answer) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.header.Get("Content-Type"))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// respond answers with an error as a Status object.
func respond(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	responsewriters.WriteRawJSON(int(s.Code), s, w)
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
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			respond(w, apierrors.NewServiceUnavailable(fmt.Sprintf("the API server cannot be reached: %v", err)))
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

// send sends a request, as somebody, or with the enforcer's own rights if as is nil.
func (e *Enforcer) send(ctx context.Context, method, path, query string, header http.Header, body []byte, as user.Info) (*answer, error) {
	u := e.url.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Del("Accept-Encoding")
	r.Header.Set("Accept", "application/json")
	if body != nil {
		setBody(r, body)
	}
	way := e.forward
	if as != nil {
		way = e.as(as)
	}
	response, err := way.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &answer{code: response.StatusCode, header: response.Header, body: raw}, nil
}

// forbidden is the error of an API server for somebody without a permission.
func forbidden(r *Request, verb, reason string) *apierrors.StatusError {
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason)
}
