package agent_test

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// stubServer answers with two bytes to a request with a bearer token that impersonates, and with 401 to any other.
// /stall makes it stand still for a second; whoever asks meanwhile is answered at its end, in order. /p99 returns the
// p99 that the stub itself saw, from the beginning to the end of its handler.
type stubServer struct {
	mu      sync.Mutex
	stalled bool
	waiting []chan struct{} // those who asked during a stall, in order
	took    []time.Duration
}

func (s *stubServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	switch r.URL.Path {
	case "/stall":
		s.mu.Lock()
		s.stalled = true
		s.mu.Unlock()
		time.AfterFunc(time.Second, s.release)
		return
	case "/p99":
		s.mu.Lock()
		defer s.mu.Unlock()
		slices.SortFunc(s.took, cmp.Compare[time.Duration])
		if n := len(s.took); n > 0 {
			_ = json.NewEncoder(w).Encode(s.took[(99*n+99)/100-1])
		}
		return
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") || r.Header.Get("Impersonate-User") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	var turn chan struct{}
	if s.stalled {
		turn = make(chan struct{})
		s.waiting = append(s.waiting, turn)
	}
	s.mu.Unlock()
	if turn != nil {
		<-turn
	}
	_, _ = w.Write([]byte("ok"))
	s.mu.Lock()
	s.took = append(s.took, time.Since(begin))
	s.mu.Unlock()
}

// release ends a stall. It lets one request run before it releases the next, because a scheduler that gets a thousand
// at once does not keep their order.
func (s *stubServer) release() {
	s.mu.Lock()
	s.stalled = false
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, turn := range waiting {
		close(turn)
		runtime.Gosched()
	}
}

// stub serves until its standard input ends.
func stub() error {
	s := httptest.NewUnstartedServer(&stubServer{})
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := json.NewEncoder(os.Stdout).Encode(work{URL: s.URL, CA: ca}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
