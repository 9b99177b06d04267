package certify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/reports/filing"
)

const (
	maxAnswer = 1 << 20 // more than an answer that repeats the largest review
	// Timeout is how long an answer may take by default; slow is what AuthorizationConfiguration recommends.
	Timeout = 10 * time.Second
	slow    = 3 * time.Second
	idleFor = 100 * time.Millisecond // less than a server waits before it closes a connection
)

// Webhook is how an authorizer is reached.
type Webhook struct {
	url       string // as in the kubeconfig
	config    *rest.Config
	tls       *tls.Config
	clientEnd time.Time     // of the client certificate; zero without one
	Timeout   time.Duration // how long an answer may take; left out, ten seconds
	shown     *certificates // the certificates that were seen, by their digests
}

// certificates are those of servers, in the order in which they were seen first.
type certificates struct {
	mu  sync.Mutex
	all []string
}

func (c *certificates) note(s tls.ConnectionState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.PeerCertificates) > 0 {
		if d := digest(s.PeerCertificates[0].Raw); !slices.Contains(c.all, d) && len(c.all) < maxCertificates {
			c.all = append(c.all, d)
		}
	}
	return nil
}

// maxCertificates is more than a server shows in an hour.
const maxCertificates = 100

// Certificates are the SHA-256 of the certificates that the webhook has shown.
func (w *Webhook) Certificates() []string {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	return slices.Clone(w.shown.all)
}

// LoadWebhook reads a webhook kubeconfig, the kind that an API server is given, as one of its contexts says; "" is the
// current one. Files that it names are found beside it, as kubectl and API servers find them.
func LoadWebhook(path, context string) (*Webhook, error) {
	raw, err := filing.Input(path)
	if err != nil {
		return nil, err
	}
	w, err := parseWebhook(raw, path, context)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// ParseWebhook is LoadWebhook of a text that names no files.
func ParseWebhook(raw []byte, context string) (*Webhook, error) {
	return parseWebhook(raw, "", context)
}

func parseWebhook(raw []byte, path, context string) (_ *Webhook, err error) {
	config, err := clientcmd.Load(raw)
	if err != nil {
		return nil, errors.New("it cannot be read as a kubeconfig")
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("the files that it names: %w", err)
	}
	if context != "" {
		if config.Contexts[context] == nil {
			return nil, fmt.Errorf("it has no context %q", context)
		}
		config.CurrentContext = context
	}
	current := config.Contexts[config.CurrentContext]
	switch {
	case config.CurrentContext == "":
		return nil, errors.New("it has no current-context")
	case current == nil:
		return nil, fmt.Errorf("its current-context is %q, which it does not have", config.CurrentContext)
	case config.Clusters[current.Cluster] == nil:
		return nil, fmt.Errorf("its current context is for the cluster %q, which it does not have", current.Cluster)
	}
	if user := config.AuthInfos[current.AuthInfo]; user != nil && (user.Exec != nil || user.AuthProvider != nil) {
		return nil, errors.New("its user gets credentials from another program, which is not run for a file that somebody handed over")
	}
	rc, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("it cannot be used: %s", firstLine(err))
	}
	u, err := url.Parse(rc.Host)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("its server is not a URL")
	case u.Scheme != "https":
		return nil, fmt.Errorf("its server is reached by %s, and reviews go by https only", u.Scheme)
	}
	w := &Webhook{url: rc.Host, config: rc, Timeout: Timeout, shown: &certificates{}}
	if w.tls, err = rest.TLSConfigFor(rc); err != nil {
		return nil, fmt.Errorf("its certificates cannot be used: %s", firstLine(err))
	}
	w.tls = cmp.Or(w.tls, &tls.Config{MinVersion: tls.VersionTLS12})
	if block, _ := pem.Decode(rc.CertData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			w.clientEnd = c.NotAfter
		}
	}
	return w, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

type client struct {
	*Webhook
	http   *http.Client
	opened atomic.Int64 // connections
}

func (w *Webhook) client(http1 bool) (*client, error) {
	t := &http.Transport{
		// Less than all of the time, so that a handshake that hangs is known for one.
		TLSClientConfig: w.tls.Clone(), TLSHandshakeTimeout: w.Timeout * 9 / 10, ResponseHeaderTimeout: w.Timeout,
		DialContext:         (&net.Dialer{Timeout: w.Timeout}).DialContext,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		Protocols: new(http.Protocols),
	}
	t.TLSClientConfig.VerifyConnection = w.shown.note
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(!http1)
	authenticated, err := rest.HTTPWrappersForConfig(w.config, t)
	if err != nil {
		return nil, fmt.Errorf("the credentials of the kubeconfig: %s", firstLine(err))
	}
	return &client{Webhook: w, http: &http.Client{
		Transport: authenticated,
		// An API server's client follows redirects nowhere good either.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// request is what an API server sends to a webhook, so that none can tell them apart: the address as client-go
// makes it, with the timeout and without what else the kubeconfig's has, and no User-Agent but Go's own, for
// NewGenericWebhook in k8s.io/apiserver/pkg/util/webhook sets none (testdata/request.txt).
func (c *client) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	base, err := url.Parse(c.url)
	if err != nil {
		return nil, err
	}
	address := rest.NewRequestWithClient(base, "", rest.ClientContentConfig{}, &http.Client{Timeout: c.Timeout}).URL()
	req, err := http.NewRequestWithContext(ctx, method, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	return req, nil
}

type reply struct {
	code, protocol int
	body           []byte
	fault          string
	idle           bool // nothing had gone over the connection for a while
}

func (c *client) send(ctx context.Context, method string, body []byte) (r reply) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if r.idle = i.IdleTime > idleFor; !i.Reused {
			c.opened.Add(1)
		}
	}})
	got := c.exchange(ctx, method, body)
	got.idle = r.idle
	return got
}

func (c *client) exchange(ctx context.Context, method string, body []byte) (r reply) {
	req, err := c.request(ctx, method, body)
	if err != nil {
		return reply{fault: "harness"}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{fault: c.fault(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if of := resp.Header.Get("Content-Type"); of != "" {
		if _, _, err := mime.ParseMediaType(of); err != nil { // an API server reads no further
			return reply{fault: "answer-unreadable"}
		}
	}
	r.code, r.protocol = resp.StatusCode, resp.ProtoMajor
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case len(raw) > maxAnswer:
		r.fault = "answer-too-large"
	case err != nil:
		return reply{fault: c.fault(err)} // of a part nothing is kept
	default:
		r.body = raw
	}
	return r
}

func (c *client) ask(ctx context.Context, check string, v Question) Answer {
	a := Answer{Check: check, Vector: v.ID}
	body, err := v.body()
	if err != nil {
		a.Fault = "harness"
		return a
	}
	if v.Form != literal {
		body = append(body, '\n') // as the API server's encoder ends an object
	}
	began := time.Now()
	r := c.send(ctx, cmp.Or(v.Method, http.MethodPost), body)
	if r.fault == "closes-the-connection" && r.idle {
		// A server may close what is idle at the moment when it is used again. That is not its fault; another end is.
		r = c.send(ctx, cmp.Or(v.Method, http.MethodPost), body)
	}
	a.Millis, a.HTTP, a.Protocol, a.Fault = time.Since(began).Milliseconds(), r.code, r.protocol, r.fault
	if a.Fault == "" {
		a.keep(r.body, v)
	}
	return a
}

// Poster posts to a webhook over connections that are kept.
type Poster struct{ client *client }

// Poster makes one. Its error is about the credentials of the kubeconfig.
func (w *Webhook) Poster() (*Poster, error) {
	c, err := w.client(false)
	return &Poster{c}, err
}

// Close ends its connections.
func (p *Poster) Close() { p.client.close() }

// Post posts JSON as API servers do. A fault is what went wrong on the way, by the names that certification has for it.
func (p *Poster) Post(ctx context.Context, body []byte) (code int, answer []byte, fault string) {
	r := p.client.send(ctx, http.MethodPost, body)
	return r.code, r.body, r.fault
}

// fault names an error of the connection. Its text is not kept: it has addresses in it.
func (c *client) fault(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		cert      x509.CertificateInvalidError
		header    tls.RecordHeaderError
		alert     tls.AlertError
		op        *net.OpError
	)
	var address *url.Error // its text has the URL in it, with a timeout
	if errors.As(err, &address) {
		err = address.Err
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "TLS handshake timeout"):
		return "tls-handshake-hangs"
	case errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "timeout"):
		return "does-not-answer-in-time"
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
