package recorder

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nodeAgentReview is the review that a storm consists of, as a kube-apiserver
// writes it: the action check of a pod-bound service account that impersonates
// its node to list that node's pods.
const nodeAgentReview = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{` +
	`"resourceAttributes":{"namespace":"default","verb":"impersonate-on:associated-node:list","version":"v1","resource":"pods",` +
	`"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["node1"]}]}},` +
	`"user":"system:serviceaccount:default:agent",` +
	`"groups":["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"],` +
	`"extra":{"authentication.kubernetes.io/credential-id":["JTI=7ee52be0-9045-4653-aa5e-0da57b8dccdc"],` +
	`"authentication.kubernetes.io/node-name":["node1"],` +
	`"authentication.kubernetes.io/node-uid":["497e9d9a-47aa-4930-b0f6-9f2fb574c8c6"],` +
	`"authentication.kubernetes.io/pod-name":["agent-abcde"],` +
	`"authentication.kubernetes.io/pod-uid":["e87dbbd6-3d7e-45db-aafb-72b24627dff5"]},` +
	`"uid":"d2cd2f42-0c8e-4d1f-8f3b-0d5e6f0c3e4a"},"status":{"allowed":false}}` + "\n"

// benchConns connections carry benchStreams reviews at a time each.
const (
	benchConns   = 4
	benchStreams = 8
)

// canned is the least that a webhook can do: read the question, give an answer.
func canned(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header()["Content-Type"] = contentType
	_, _ = w.Write(unopinionated)
}

// benchTarget is a server to be asked over several connections.
type benchTarget struct {
	url     string
	clients [benchConns]*http.Client
	reset   func()
}

func newBenchTarget(b *testing.B, p *PKI, url string, reset func()) *benchTarget {
	b.Helper()
	cert, err := tls.X509KeyPair(p.ClientCert, p.ClientKey)
	if err != nil {
		b.Fatal(err)
	}
	t := &benchTarget{url: url, reset: reset}
	for i := range t.clients {
		transport := &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig:   &tls.Config{RootCAs: p.authority, Certificates: []tls.Certificate{cert}},
		}
		t.clients[i] = &http.Client{Transport: transport}
		b.Cleanup(transport.CloseIdleConnections)
		ask(b, t.clients[i], url) // opens the connection
	}
	return t
}

// bareTarget serves canned on the very set-up of a recorder.
func bareTarget(b *testing.B) *benchTarget {
	b.Helper()
	p, err := NewPKI(time.Now().Add(Lifetime), time.Now().Add(Lifetime))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := newServer(http.HandlerFunc(canned), p, nil)
	go func() { _ = s.ServeTLS(l, "", "") }()
	b.Cleanup(func() { _ = s.Close() })
	return newBenchTarget(b, p, "https://"+l.Addr().String()+"/front", func() {})
}

// counted is what a storm has of a recorder.
var counted = &StormHooks{Arrived: func(Point, string) {}, Answered: func(Point, string, time.Duration) {}}

func recorderTarget(b *testing.B) *benchTarget {
	b.Helper()
	r, err := Start(Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	r.Count(counted)
	return newBenchTarget(b, r.pki, r.URL(Front), r.Reset)
}

func ask(tb testing.TB, c *http.Client, url string) {
	resp, err := c.Post(url, "application/json", bytes.NewReader([]byte(nodeAgentReview)))
	if err != nil {
		tb.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tb.Errorf("status %d", resp.StatusCode)
	}
}

// storm asks n reviews as fast as they are answered.
func (t *benchTarget) storm(b *testing.B, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var done sync.WaitGroup
	for i := range benchConns * benchStreams {
		done.Go(func() {
			for left.Add(-1) >= 0 {
				ask(b, t.clients[i%benchConns], t.url)
			}
		})
	}
	done.Wait()
	t.reset()
}

// BenchmarkReview is the cost of a review over TLS and HTTP/2 on kept-alive
// connections, its client included: of a handler that gives a canned answer, and
// of the recorder. "ratio" runs both in turns of the same process, so that what
// else the machine does falls on both, and reports recorder/bare.
func BenchmarkReview(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchStorm(b, bareTarget(b)) })
	b.Run("recorder", func(b *testing.B) { benchStorm(b, recorderTarget(b)) })
	b.Run("ratio", func(b *testing.B) {
		bare, rec := bareTarget(b), recorderTarget(b)
		var spent [2]time.Duration
		const turn = 500
		b.ResetTimer()
		for i := 0; i < b.N; i += 4 * turn {
			for _, arm := range []int{0, 1, 1, 0} {
				start := time.Now()
				[]*benchTarget{bare, rec}[arm].storm(b, turn)
				spent[arm] += time.Since(start)
			}
		}
		b.ReportMetric(float64(spent[1])/float64(spent[0]), "recorder/bare")
		b.ReportMetric(0, "ns/op") // of both arms together; means nothing
	})
}

func benchStorm(b *testing.B, t *benchTarget) {
	b.ReportAllocs()
	b.SetBytes(int64(len(nodeAgentReview)))
	b.ResetTimer()
	t.storm(b, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reviews/s")
}

// nullWriter is the cheapest ResponseWriter, so that what is measured is the
// handler.
type nullWriter struct{ header http.Header }

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *nullWriter) WriteHeader(int)             {}

// BenchmarkHandler is the cost of a review without network and TLS.
func BenchmarkHandler(b *testing.B) {
	mounts, err := mountsFor(nil)
	if err != nil {
		b.Fatal(err)
	}
	r := &Recorder{mounts: mounts}
	for _, arm := range []struct {
		name   string
		handle http.HandlerFunc
	}{{"bare", canned}, {"recorder", r.handle}} {
		b.Run(arm.name, func(b *testing.B) {
			b.ReportAllocs()
			body := bytes.NewReader([]byte(nodeAgentReview))
			w := &nullWriter{header: http.Header{}}
			req := httptest.NewRequest(http.MethodPost, "/front", body)
			for i := 0; b.Loop(); i++ {
				_, _ = body.Seek(0, io.SeekStart)
				arm.handle(w, req)
				if i%10_000 == 0 {
					r.Reset()
				}
			}
		})
	}
	if err := r.Err(); err != nil || r.Mark() == 0 {
		b.Errorf("the recorder refused what it was measured with: %v", err)
	}
}
