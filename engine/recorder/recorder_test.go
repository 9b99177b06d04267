package recorder

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestAnswersNoOpinion(t *testing.T) {
	r := startRecorder(t, Options{Scripts: map[Point]Script{"middle": nil}})
	for _, http2 := range []bool{true, false} {
		c := peer(t, r.Kubeconfig(Front), http2)
		for _, p := range []Point{Front, Back, "middle"} {
			code, answer, err := send(c, http.MethodPost, r.URL(p), strings.NewReader(spec(asV1, question+`,"user":"jane"`)))
			const want = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{},"status":{"allowed":false,"denied":false}}` + "\n"
			if err != nil || code != http.StatusOK || answer != want {
				t.Errorf("%s: %d %s, %v", p, code, answer, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	r := startRecorder(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	big := strings.Repeat("x", maxBody+1)
	for _, tc := range []struct {
		name, method, url, body string
		code                    int
		answer                  string
	}{
		{"malformed", http.MethodPost, r.URL(Front), `{"kind":"Pod"}`, 400, `kind is "Pod", not SubjectAccessReview` + "\n"},
		{"empty", http.MethodPost, r.URL(Front), ``, 400, "unexpected end of JSON input\n"},
		{"too big", http.MethodPost, r.URL(Back), big, 400, "the body is over 3145728 bytes\n"},
		{"get", http.MethodGet, r.URL(Front), ``, 405, "reviews are posted\n"},
		{"put", http.MethodPut, r.URL(Back), nodeAgentReview, 405, "reviews are posted\n"},
		{"another point", http.MethodPost, r.URL("side"), nodeAgentReview, 404, "404 page not found\n"},
		{"below a point", http.MethodPost, r.URL(Front) + "/x", nodeAgentReview, 404, "404 page not found\n"},
		{"no point", http.MethodGet, r.URL(""), ``, 404, "404 page not found\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, answer, err := send(c, tc.method, tc.url, strings.NewReader(tc.body))
			if err != nil || code != tc.code || answer != tc.answer {
				t.Errorf("%d %q, %v; want %d %q", code, answer, err, tc.code, tc.answer)
			}
		})
	}
	if err := r.Err(); len(r.Since(0)) != 0 || err == nil ||
		!strings.Contains(err.Error(), `cannot be read: 3, the first because kind is "Pod"`) {
		t.Errorf("%d recorded, %v", len(r.Since(0)), err)
	}
}

// unsized has no length that net/http could know, so it is sent in chunks.
type unsized struct{ io.Reader }

func TestBodyOfUnknownLength(t *testing.T) {
	r := startRecorder(t, Options{})
	for _, http2 := range []bool{true, false} {
		code, _, err := send(
			peer(t, r.Kubeconfig(Front), http2),
			http.MethodPost,
			r.URL(Front),
			unsized{strings.NewReader(nodeAgentReview)},
		)
		if err != nil || code != http.StatusOK {
			t.Errorf("%d, %v", code, err)
		}
	}
	for _, rec := range r.Since(0) {
		if rec.Spec.UID != "d2cd2f42-0c8e-4d1f-8f3b-0d5e6f0c3e4a" {
			t.Errorf("recorded %+v", rec.Spec)
		}
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	r := startRecorder(t, Options{})
	req := []byte("POST /front HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"half\"")
	cert, err := tls.X509KeyPair(r.pki.ClientCert, r.pki.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", r.addr, &tls.Config{RootCAs: r.pki.authority, Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(req); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "the body ends after 7 bytes") {
		t.Errorf("Err: %v", err)
	}
}

func TestOnlyItsOwnClients(t *testing.T) {
	r, other := startRecorder(t, Options{}), startRecorder(t, Options{})
	for _, tc := range []struct {
		name   string
		change func(own, stranger *clientcmdapi.AuthInfo)
	}{
		{"no certificate", func(own, _ *clientcmdapi.AuthInfo) {
			own.ClientCertificateData, own.ClientKeyData = nil, nil
		}},
		{"the certificate of another recorder", func(own, stranger *clientcmdapi.AuthInfo) {
			*own = *stranger
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config, err := clientcmd.Load(r.Kubeconfig(Front))
			if err != nil {
				t.Fatal(err)
			}
			stranger, err := clientcmd.Load(other.Kubeconfig(Front))
			if err != nil {
				t.Fatal(err)
			}
			tc.change(config.AuthInfos["recorder-front"], stranger.AuthInfos["recorder-front"])
			kubeconfig, err := clientcmd.Write(*config)
			if err != nil {
				t.Fatal(err)
			}
			code, _, err := send(peer(t, kubeconfig, true), http.MethodPost, r.URL(Front), strings.NewReader(nodeAgentReview))
			if err == nil {
				t.Errorf("answered %d", code)
			}
		})
	}
	if r.Mark() != 0 {
		t.Error("something was recorded")
	}
}

func TestReachableFromElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0") // as the address of a network of kind
	if err != nil {
		t.Fatal(err)
	}
	r := startRecorder(t, Options{Listener: l})
	if !strings.HasPrefix(r.URL(Back), "https://127.0.0.2:") || !strings.HasSuffix(r.URL(Back), "/back") {
		t.Errorf("URL %s", r.URL(Back))
	}
	for _, host := range []string{"127.0.0.2", "127.0.0.1", "::1", "localhost"} {
		if err := r.pki.serving.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestStartFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(Options{Listener: l, Scripts: map[Point]Script{"No/Point": nil}})
	if err == nil || !strings.Contains(err.Error(), `"No/Point"`) {
		t.Errorf("a bad point: %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Error("Start left its listener open")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	r, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Connections that are idle, of both protocols, and one that never speaks.
	for _, http2 := range []bool{true, false} {
		code, _, err := send(
			peer(t, r.Kubeconfig(Front), http2),
			http.MethodPost,
			r.URL(Front),
			strings.NewReader(nodeAgentReview),
		)
		if err != nil || code != http.StatusOK {
			t.Fatalf("%d, %v", code, err)
		}
	}
	silent, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := r.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closers.Wait()
	wantNoServer(t)
	if err := r.Err(); err != nil {
		t.Errorf("Err after Close: %v", err)
	}
	if got := len(r.Since(0)); got != 2 {
		t.Errorf("%d records after Close", got)
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("the port is still open")
	}
}

func TestListenerThatDies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := startRecorder(t, Options{Listener: l})
	c := peer(t, r.Kubeconfig(Front), true)
	code, _, err := send(c, http.MethodPost, r.URL(Front), strings.NewReader(nodeAgentReview))
	if err != nil || code != http.StatusOK || r.Err() != nil {
		t.Fatalf("%d, %v, %v", code, err, r.Err())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-r.served
	if err := r.Err(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Err: %v", err)
	}
	wantNoServer(t) // open connections do not live on
	if _, _, err := send(c, http.MethodPost, r.URL(Front), strings.NewReader(nodeAgentReview)); err == nil {
		t.Error("a dead recorder answered")
	}
	if err := r.Close(); err != nil || r.Err() == nil {
		t.Errorf("Close: %v, Err: %v", err, r.Err())
	}
}
