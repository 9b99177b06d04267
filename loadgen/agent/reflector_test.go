package agent

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
)

// TestWatchList has a server that ends every watch once. Agents never list, and begin each watch with what exists.
func TestWatchList(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	server, c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path+" "+r.URL.RawQuery]++
		mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := storm(t, c, func(s *Storm) {
		s.Plan.Arrivals, s.Plan.Length, s.Plan.Mix = pacer.Burst, 5*time.Second, []int{1, 0, 0}
		s.Return, s.WatchList, s.Kinds = true, true, []string{"list", "get", "watch"}
		s.Request = func(_, kind, _ int) Request {
			return Request{
				Path:   "/" + s.Kinds[kind],
				Query:  "resourceVersion=0&watch=true",
				Header: http.Header{},
				Watch:  kind == watchKind,
			}
		}
	})
	b := play(t.Context(), t, s, func() { time.AfterFunc(1500*time.Millisecond, server.CloseClientConnections) })
	balanced(t, b)
	const want = "/watch allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"
	if len(asked) != 1 || asked[want] != 40 {
		t.Errorf("asked %v, want 40 times %s", asked, want)
	}
	if b.Planned != 40 || !b.FollowsServer || len(b.Wrong) > 0 {
		t.Errorf("planned %d, wrong %v", b.Planned, b.Wrong)
	}
	for kind := range b.Kinds {
		if !strings.EqualFold(kind, "watch") {
			t.Errorf("a %s was sent", kind)
		}
	}
}
