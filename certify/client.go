package certify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	maxAnswer = 1 << 20 // an answer that repeats the largest review is shorter
	// Timeout is how long an answer may take by default. slow is the time that AuthorizationConfiguration recommends.
	Timeout    = 10 * time.Second
	slowAnswer = 3 * time.Second
	minIdle    = 100 * time.Millisecond // servers wait longer before they close a connection
	// faultNoAnswerInTime is the fault of an answer that did not come within Timeout.
	faultNoAnswerInTime = "does-not-answer-in-time"
)

// client sends requests to a webhook over connections of its own.
type client struct {
	*Webhook
	http        *http.Client
	address     string       // the webhook's URL as client-go requests it
	connections atomic.Int64 // how many connections were opened
	lag         *lagMeter    // measures what the harness itself needs; nil if that is not measured
}

// newClient returns a client of the webhook. If http1 is true, it speaks HTTP/1.1 only.
func (w *Webhook) newClient(http1 bool) (*client, error) {
	return w.newClientOver(http1, (&net.Dialer{Timeout: w.Timeout}).DialContext)
}

// newClientOver returns a client whose connections are opened by the given function.
func (w *Webhook) newClientOver(http1 bool, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*client, error) {
	t := &http.Transport{
		// The handshake has less time than the whole request, so that a handshake that hangs can be told apart.
		TLSClientConfig: w.tls.Clone(), TLSHandshakeTimeout: w.Timeout * 9 / 10, ResponseHeaderTimeout: w.Timeout,
		DialContext:         dial,
		MaxIdleConnsPerHost: 2 * streamCount, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		Protocols: new(http.Protocols),
	}
	address, err := w.address()
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig.VerifyConnection = w.certificates.record
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(!http1)
	authenticated, err := rest.HTTPWrappersForConfig(w.config, t)
	if err != nil {
		return nil, fmt.Errorf("the credentials of the kubeconfig: %s", firstLine(err))
	}
	return &client{Webhook: w, address: address, http: &http.Client{
		Transport: authenticated,
		// The client of an API server does not follow redirects to a good end either.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// close closes the connections that are not in use.
func (c *client) close() { c.http.CloseIdleConnections() }

// address returns the address of reviews. It is what client-go makes of the kubeconfig's: it has the timeout, and leaves
// out the rest of the query.
func (w *Webhook) address() (string, error) {
	base, err := url.Parse(w.url)
	if err != nil {
		return "", err
	}
	return rest.NewRequestWithClient(base, "", rest.ClientContentConfig{}, &http.Client{Timeout: w.Timeout}).URL().String(), nil
}

// request makes the same request that an API server sends to a webhook, so that a webhook cannot tell them apart. The
// User-Agent is Go's own, because NewGenericWebhook in k8s.io/apiserver/pkg/util/webhook sets none
// (testdata/request.txt).
func (c *client) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	return req, nil
}

// reply is what came back for a request, or the fault because of which nothing did.
type reply struct {
	code, protocol int
	body           []byte
	fault          string
	wasIdle        bool // nothing had been sent over the connection for a while
}

// post sends a request, and returns what came back. A request that belongs to a wave is held back until the wave opens.
func (c *client) post(ctx context.Context, method string, body []byte, held *heldRequest) (r reply) {
	limit := c.Timeout
	if held != nil {
		limit += c.lag.patience(gatherTimeout) + c.lag.patience(flushTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if r.wasIdle = i.IdleTime > minIdle; !i.Reused {
			c.connections.Add(1)
		}
	}})
	got := c.exchange(ctx, method, body, held)
	got.wasIdle = r.wasIdle
	return got
}

// exchange sends a request and reads its answer.
func (c *client) exchange(ctx context.Context, method string, body []byte, held *heldRequest) (r reply) {
	req, err := c.request(ctx, method, body)
	if err != nil {
		return reply{fault: "harness"}
	}
	if held != nil {
		req = held.attach(req, body)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{fault: c.faultOf(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if contentType := resp.Header.Get("Content-Type"); contentType != "" {
		if _, _, err := mime.ParseMediaType(contentType); err != nil { // an API server reads no further
			return reply{fault: "answer-unreadable"}
		}
	}
	r.code, r.protocol = resp.StatusCode, resp.ProtoMajor
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case len(raw) > maxAnswer:
		r.fault = "answer-too-large"
	case err != nil:
		return reply{fault: c.faultOf(err)} // nothing is kept of a part of a body
	default:
		r.body = raw
	}
	return r
}

// ask asks a question for a check.
func (c *client) ask(ctx context.Context, check string, v Question) Answer {
	return c.askHeld(ctx, check, v, nil)
}

// askHeld asks a question as a part of a wave, or by itself if held is nil.
func (c *client) askHeld(ctx context.Context, check string, v Question, held *heldRequest) Answer {
	return c.send(ctx, check, v, held).read()
}

// unreadAnswer is an answer to a question with a body that was not read yet.
type unreadAnswer struct {
	question Question
	answer   Answer
	body     []byte
}

// read returns the answer with what its body says.
func (u unreadAnswer) read() Answer {
	a := u.answer
	if a.Fault == "" {
		a.keepBody(u.body, u.question)
	}
	return a
}

// send asks a question as a part of a wave, or by itself if held is nil, and leaves the body of the answer to be read.
func (c *client) send(ctx context.Context, check string, v Question, held *heldRequest) unreadAnswer {
	a := Answer{Check: check, Vector: v.ID}
	body, err := v.body()
	if err != nil {
		a.Fault = "harness"
		return unreadAnswer{question: v, answer: a}
	}
	if v.Form != literal {
		body = append(body, '\n') // the API server's encoder ends an object so
	}
	began := time.Now()
	r := c.post(ctx, cmp.Or(v.Method, http.MethodPost), body, held)
	if held != nil {
		if inFlight, since, isSent := held.countAnswer(); isSent {
			a.InFlight, began = inFlight, since
		}
	}
	if r.fault == "closes-the-connection" && r.wasIdle {
		// A server may close an idle connection at the moment when it is used again. That is not its fault, so the
		// question is sent once more. If a connection ends otherwise, that is the server's fault.
		r = c.post(ctx, cmp.Or(v.Method, http.MethodPost), body, nil)
	}
	a.Millis, a.HTTP, a.Protocol, a.Fault = time.Since(began).Milliseconds(), r.code, r.protocol, r.fault
	a.AtMs, a.HarnessMs = c.lag.measure(began, time.Now())
	return unreadAnswer{question: v, answer: a, body: r.body}
}

// Poster posts to a webhook over connections that stay open.
type Poster struct{ client *client }

// NewPoster returns a Poster for the webhook. Its error is about the credentials in the kubeconfig.
func (w *Webhook) NewPoster() (*Poster, error) {
	c, err := w.newClient(false)
	return &Poster{c}, err
}

// Close closes the connections.
func (p *Poster) Close() { p.client.close() }

// Post posts JSON as API servers do. A fault is what went wrong on the way, by the name that certification has for it.
func (p *Poster) Post(ctx context.Context, body []byte) (code int, answer []byte, fault string) {
	r := p.client.post(ctx, http.MethodPost, body, nil)
	return r.code, r.body, r.fault
}

// faultOf names an error of the connection. It does not keep the text of the error, which contains addresses.
func (c *client) faultOf(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		cert      x509.CertificateInvalidError
		header    tls.RecordHeaderError
		alert     tls.AlertError
		op        *net.OpError
	)
	var address *url.Error // the text of such an error contains the URL, with a timeout
	if errors.As(err, &address) {
		err = address.Err
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "TLS handshake timeout"):
		return "tls-handshake-hangs"
	case errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "timeout"):
		return faultNoAnswerInTime
	case errors.As(err, &authority):
		return "server-certificate-untrusted"
	case errors.As(err, &host):
		return "server-certificate-for-another-host"
	case errors.As(err, &cert):
		if cert.Reason == x509.Expired {
			return "server-certificate-expired"
		}
		return "server-certificate-untrusted"
	case !c.clientEnd.IsZero() && time.Now().After(c.clientEnd):
		return "client-certificate-expired"
	case errors.As(err, &header) || strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "plain-http"
	case errors.As(err, &alert) || strings.Contains(text, "remote error: tls:"):
		return "client-certificate-refused"
	case errors.As(err, &op) && op.Op == "dial":
		return "cannot-connect"
	case strings.Contains(text, "response headers exceeded"):
		return "answer-too-large"
	}
	return "closes-the-connection"
}
