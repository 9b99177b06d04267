package replay

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

// TestOpenWatch opens watches that stay open, end by themselves, and are refused.
func TestOpenWatch(t *testing.T) {
	hungUp := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			http.Error(w, "no", http.StatusForbidden)
		case "/open":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(hungUp)
		}
	}))
	defer server.Close()
	hold := func(path string) (verdicts.Response, func() string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, hangUp, err := OpenWatch(server.Client(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r, hangUp
	}
	if r, hangUp := hold("/refused"); hangUp != nil || r.Held != "" || strings.TrimSpace(r.Body) != "no" {
		t.Errorf("refused: %+v, held: %t", r, hangUp != nil)
	}
	if r, hangUp := hold("/open"); r.Held != verdicts.Open {
		t.Errorf("open: %+v", r)
	} else if how := hangUp(); how != verdicts.Open {
		t.Errorf("open: %s", how)
	}
	<-hungUp
	_, hangUp := hold("/ended")
	time.Sleep(100 * time.Millisecond)
	if how := hangUp(); how != "ended by itself: EOF" {
		t.Errorf("ended: %s", how)
	}
}
