// Package recorder is our webhook in the chain; it has no opinion, and writes down every access review.
//
// Every SubjectAccessReview that a kube-apiserver sends to it is answered "no opinion" and kept whole, in order of arrival.
//
// One recorder is mounted at two points of one authorizer chain: [Front], before every other authorizer, and
// [Back], after them. A review that arrives at the front and not at the back was decided by what stands between;
// one that arrives at both got no opinion from everybody. So the decision of each check can be told without asking
// the API server again, and without trusting what it says about itself. A further point can be scripted, to stand
// for a webhook that decides, errs or stays silent.
//
// A review is recorded before it is answered: once the API server has answered a request, everything it asked on
// behalf of that request is in the record. This holds only while the API server does not cache what the webhook
// answers, so the caches of the chain have to be off.
package recorder

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
)

// ProbeExtraKey marks a review that the harness asked for itself, to see whether a grant is in force: it is a key of
// spec.extra, with any value. Such reviews are answered and counted, never recorded: no request under test caused them.
const ProbeExtraKey = "authzconf.dev/probe"

// handshakeTimeout bounds a connection before its first request; later nothing does: API servers keep theirs for hours.
const handshakeTimeout = 10 * time.Second

// Options say where a recorder listens: by default on a free loopback port, with the points Front and Back.
type Options struct {
	// Listener is served if it is set; the recorder closes it, also when Start fails. Whoever closes it first makes the
	// recorder fail, which is how a test shows what becomes of a run whose recorder dies.
	Listener net.Listener
	// Scripts are points beside Front and Back that answer as they are told, for chains with a webhook that
	// decides. A point is a DNS label; a nil script has no opinion.
	Scripts map[Point]Script
	// HTTP1 makes API servers speak HTTP/1.1: a fifth less processor time if reviews come one at a time, unlike in storms.
	HTTP1 bool
}

// Recorder is a running webhook. Its methods are safe for concurrent use, also after Close: the record stays readable.
type Recorder struct {
	journal
	mounts map[string]*mount // by URL path; fixed after Start
	// counting, if set, takes the place of the journal at Front and Back.
	counting atomic.Pointer[StormHooks]
	read     atomic.Pointer[reviewWithBody] // last

	addr   string // host:port as API servers reach it
	pki    *PKI
	server *http.Server
	conns  sync.WaitGroup // connections that are being served
	served chan struct{}  // closed when the accept loop has ended
	failed atomic.Pointer[error]
}

// Start listens and serves until Close. Certificates are made anew on every start and never written but into Kubeconfig.
func Start(o Options) (*Recorder, error) {
	l, err := o.Listener, error(nil)
	if l == nil {
		l, err = Listen(context.Background())
	}
	if err != nil {
		return nil, err
	}
	r, err := prepare(o, l.Addr())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go r.serve(l)
	return r, nil
}

// prepare makes a recorder that listens on addr and does not serve yet.
func prepare(o Options, addr net.Addr) (*Recorder, error) {
	mounts, err := mountsFor(o.Scripts)
	if err != nil {
		return nil, err
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("recorder: API servers cannot reach %s", addr)
	}
	end := time.Now().Add(Lifetime)
	p, err := NewPKI(end, end, tcp.IP.String())
	if err != nil {
		return nil, err
	}
	r := &Recorder{mounts: mounts, addr: addr.String(), pki: p, served: make(chan struct{})}
	r.server = newServer(http.HandlerFunc(r.handle), p, r.track)
	if o.HTTP1 {
		r.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	return r, nil
}

// newServer is the HTTP server of a recorder around any handler, so that a benchmark can put another handler behind the
// very same set-up. What net/http says of broken connections is thrown away: the recorder's client says it, too.
func newServer(h http.Handler, p *PKI, track func(net.Conn, http.ConnState)) *http.Server {
	server := &http.Server{
		Handler:           h,
		TLSConfig:         p.ServerConfig(),
		ReadHeaderTimeout: handshakeTimeout,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         track,
	}
	liftHeaderLimit(server)
	return server
}

// serve runs the accept loop. If it ends for any reason but Close, open connections are cut as well: a recorder
// that answers some API servers and not others would leave a record that looks whole.
func (r *Recorder) serve(l net.Listener) {
	defer close(r.served)
	err := r.server.ServeTLS(l, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	err = fmt.Errorf("recorder: stopped serving: %w", err)
	r.failed.Store(&err)
	_ = r.server.Close()
}

func (r *Recorder) track(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		r.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.conns.Done()
	}
}

// Err says why the recorder stopped serving, or what it received that is not a review; nil if it serves or was closed.
// What a run recorded is whole only if Err is nil at its end.
func (r *Recorder) Err() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused > 0 {
		return fmt.Errorf("recorder: reviews that cannot be read: %d, the first because %s", r.refused, r.first)
	}
	return nil
}

// Close stops the server and returns when its connections are gone. It cuts reviews that are under way, so the API
// servers have to be stopped first. It may be called again.
func (r *Recorder) Close() error {
	err := r.server.Close()
	<-r.served
	r.conns.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("recorder: %w", err)
	}
	return nil
}

// Point is where in an authorizer chain reviews are recorded. It is the path of the webhook's URL.
type Point string

const (
	// Front stands before every other authorizer and sees every check.
	Front Point = "front"
	// Back stands after every other authorizer and sees only the checks that none of them decided.
	Back Point = "back"
)

type mount struct {
	point  Point
	script Script // nil has no opinion
}

func mountsFor(scripts map[Point]Script) (map[string]*mount, error) {
	mounts := map[string]*mount{}
	for _, p := range append([]Point{Front, Back}, slices.Sorted(maps.Keys(scripts))...) {
		if wrong := validation.IsDNS1123Label(string(p)); len(wrong) > 0 {
			return nil, fmt.Errorf("recorder: point %q: %s", p, strings.Join(wrong, "; "))
		}
		mounts["/"+string(p)] = &mount{point: p, script: scripts[p]}
	}
	return mounts, nil
}

// URL is the address of a point. One that the recorder was not started with answers 404.
func (r *Recorder) URL(p Point) string { return "https://" + r.addr + "/" + string(p) }

// Kubeconfig is the webhook configuration with which an API server asks a point. It holds a client key, without
// which the recorder accepts no connection: write it to a file that only the API server can read.
func (r *Recorder) Kubeconfig(p Point) []byte {
	out, err := r.pki.Kubeconfig("recorder-"+string(p), r.URL(p))
	if err != nil {
		// Only strings and bytes are encoded, so this is a mistake here and nothing that a caller could handle.
		panic(fmt.Sprintf("recorder: encoding a kubeconfig: %v", err))
	}
	return out
}

// StormHooks is for storms: what would fill the memory is counted and forgotten. Its functions are called concurrently.
type StormHooks struct {
	// Arrived is called for each review before it is answered, so that what an API server has an answer to is counted.
	Arrived func(p Point, verb string)
	// Read, if given, is called with the text of each review at Front, which it must not keep.
	Read func(verb string, body []byte)
	// Answered is called with the same verb when the answer is written; took is the time since the request was read.
	Answered func(p Point, verb string, took time.Duration)
	// Other, if given, says of a review that it is not of the storm: it is answered at once, and not counted.
	Other func(p Point, spec authorizationv1.SubjectAccessReviewSpec) bool
	// Delay, if given, is how long an answer at Front takes, to stand for an authorizer that is far away. Back answers
	// at once: the chain as a whole has one delay. Slots, if given, is how many answers may take so long at once: the
	// others wait, as before an authorizer that is saturated.
	Delay func() time.Duration
	Slots chan struct{}
}

// Count counts the reviews at Front and Back from now on instead of recording them; nil records again. Probes and
// malformed reviews are treated as ever, and counted ones take their place in the order.
func (r *Recorder) Count(c *StormHooks) { r.counting.Store(c) }

func (r *Recorder) countReview(c *StormHooks, w http.ResponseWriter, req *http.Request, p Point, verb string, body []byte) {
	begin := time.Now()
	r.pass()
	c.Arrived(p, verb)
	if c.Read != nil && p == Front {
		c.Read(verb, body)
	}
	if c.Delay != nil && p == Front {
		c.takeTime(req.Context())
	}
	noOpinion(w)
	c.Answered(p, verb, time.Since(begin))
}

// reviewPrefix is how API servers begin a review.
var reviewPrefix = []byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`)

// writtenVerb is the verb of a review as API servers write it: decoding all of a review that is only counted costs the
// recorder as much as the rest of answering it. Without escapes nothing but the field looks like it.
func writtenVerb(body []byte) (string, bool) {
	before, after, found := bytes.Cut(body, []byte(`"verb":"`))
	verb, _, closed := bytes.Cut(after, []byte(`"`))
	plain := bytes.HasPrefix(before, reviewPrefix) && !bytes.ContainsRune(body, '\\') && !bytes.Contains(body, []byte(ProbeExtraKey))
	return string(verb), found && closed && plain && bytes.Count(after, []byte(`"verb":"`)) == 0
}

// takeTime waits as long as an answer takes, unless the API server goes away.
func (c *StormHooks) takeTime(ctx context.Context) {
	if c.Slots != nil {
		select {
		case c.Slots <- struct{}{}:
			defer func() { <-c.Slots }()
		case <-ctx.Done():
			return
		}
	}
	clusters.Pause(ctx, c.Delay())
}

// Server is an HTTPS server of the harness.
type Server struct {
	// URL is where it listens, without a path, and Port the last part of it. CA is the certificate to trust, in PEM.
	URL  string
	Port int
	CA   []byte

	server *http.Server
	served chan struct{}
}

// Listen takes a free port of the loopback interface.
func Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on the loopback interface: %w", err)
	}
	return l, nil
}

// Serve answers on a listener until Close, with a certificate of this PKI. HTTP/2 is spoken only if the configuration
// names no protocols: with it no connection can be upgraded.
func Serve(l net.Listener, h http.Handler, p *PKI, config *tls.Config) *Server {
	s := &Server{Port: l.Addr().(*net.TCPAddr).Port, CA: p.CA, served: make(chan struct{})}
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", s.Port)
	s.server = newServer(h, p, nil)
	s.server.TLSConfig = config
	// The default of 250 streams would be a queue where 1,000 reviews are meant to be under way.
	s.server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2000}
	s.server.Protocols = new(http.Protocols)
	s.server.Protocols.SetHTTP1(true)
	s.server.Protocols.SetHTTP2(config.NextProtos == nil)
	go func() {
		defer close(s.served)
		_ = s.server.ServeTLS(l, "", "") // ends with Close
	}()
	return s
}

// Close cuts all connections and returns when nothing is served any more.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.served
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Lifetime is longer than any run. Certificates die with their recorder, so nothing is gained by a shorter one.
const Lifetime = 365 * 24 * time.Hour

// PKI is what makes an authorizer and an API server trust each other and nobody else: an authority whose key is
// thrown away once it has signed one certificate for each side.
type PKI struct {
	CA, ClientCert, ClientKey []byte // PEM

	authority *x509.CertPool
	serving   tls.Certificate
}

// NewPKI makes a PKI whose serving certificate is valid for the loopback addresses and for more names and addresses. The
// two ends are when the serving and the client certificate expire, which lets a test have expired ones.
func NewPKI(servingEnd, clientEnd time.Time, more ...string) (*PKI, error) {
	ca, caKey, err := clusters.Sign(template("authzconf-authority", time.Now().Add(Lifetime)), nil, nil)
	if err != nil {
		return nil, err
	}
	serving := template("authzconf-authorizer", servingEnd)
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range append([]string{"localhost", "127.0.0.1", "::1"}, more...) {
		if ip := net.ParseIP(name); ip != nil {
			serving.IPAddresses = append(serving.IPAddresses, ip)
		} else {
			serving.DNSNames = append(serving.DNSNames, name)
		}
	}
	cert, key, err := clusters.Sign(serving, ca, caKey)
	if err != nil {
		return nil, err
	}
	client := template("authzconf-client", clientEnd)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := clusters.Sign(client, ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &PKI{
		CA: clusters.EncodeCertificate(ca), ClientCert: clusters.EncodeCertificate(clientCert), authority: x509.NewCertPool(),
		serving: tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert},
	}
	p.authority.AddCert(ca)
	if p.ClientKey, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, fmt.Errorf("encoding the client key: %w", err)
	}
	return p, nil
}

// Kubeconfig is the webhook configuration, of this name, for a server with these certificates. It holds the client's key.
func (p *PKI) Kubeconfig(name, url string) ([]byte, error) {
	return clusters.Kubeconfig(name, &rest.Config{
		Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA, CertData: p.ClientCert, KeyData: p.ClientKey},
	})
}

// ServerConfig accepts only clients whose certificate this PKI signed.
func (p *PKI) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{p.serving},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    p.authority,
	}
}

// template is what all certificates of a PKI have in common. It starts a day before Lifetime because the clocks of an
// API server in a virtual machine may be behind.
func template(name string, end time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-Lifetime - 24*time.Hour), NotAfter: end}
}
