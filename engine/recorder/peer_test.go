package recorder

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startRecorder is a recorder that is closed with the test.
func startRecorder(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// peer is a client on a connection of its own, made from a kubeconfig.
func peer(t *testing.T, kubeconfig []byte, http2 bool) *http.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send posts a body and returns the status and the answer.
func send(c *http.Client, method, url string, body io.Reader) (int, string, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(answer), err
}

// numbered is the n-th review of a user.
func numbered(user string, n int) string {
	return fmt.Sprintf(`{%s,"spec":{"nonResourceAttributes":{"path":"/%d","verb":"get"},"user":%q}}`, asV1, n, user)
}

// serverGoroutines are the stacks of all goroutines that serve.
func serverGoroutines() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for _, stack := range strings.Split(string(buf), "\n\n") {
		for _, part := range []string{"(*Recorder)", "net/http.(*conn)", "erverConn)", "(*Server)"} {
			if strings.Contains(stack, part) {
				out = append(out, stack)
				break
			}
		}
	}
	return out
}

// wantNoServer fails if goroutines of a server stay. They are given a moment,
// because a goroutine that has done its work still has to return.
func wantNoServer(t *testing.T) {
	t.Helper()
	var left []string
	for range 200 {
		if left = serverGoroutines(); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
}
