package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestIdleConnections has a server that closes connections as soon as they are idle, as API servers do after 90 s. No
// request may be lost by that.
func TestIdleConnections(t *testing.T) {
	const idle = 20 * time.Millisecond
	c := stubWith(t, func(s *httptest.Server) { s.Config.IdleTimeout = idle }, func(http.ResponseWriter, *http.Request) {})
	pool, err := NewPool(c, 1, 1, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := &Storm{Pool: pool, Timeout: 5 * time.Second}
	for i := range 100 {
		if got, err := s.send(t.Context(), 0, Request{Path: "/", Header: http.Header{}}); err != nil || got.status != http.StatusOK {
			t.Fatalf("request %d: status %d, %v", i, got.status, err)
		}
		time.Sleep(idle - time.Millisecond + time.Duration(i%20)*200*time.Microsecond)
	}
	if n := pool.opened.Load(); n < 20 {
		t.Errorf("%d connections were opened: the server did not close them", n)
	}
}
