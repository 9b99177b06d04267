package recorder

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	r := start(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	ask := func(p Point, body string) {
		t.Helper()
		if code, answer, err := send(c, http.MethodPost, r.URL(p), strings.NewReader(body)); err != nil || code != http.StatusOK || !strings.Contains(answer, `"allowed":false`) {
			t.Fatalf("%d %s, %v", code, answer, err)
		}
	}
	var mu sync.Mutex
	verbs, answered := map[string]int{}, map[Point]time.Duration{}
	const delay = 30 * time.Millisecond
	r.Count(&Counting{
		Delay: func() time.Duration { return delay }, Slots: make(chan struct{}, 1),
		Arrived: func(p Point, verb string) {
			mu.Lock()
			defer mu.Unlock()
			verbs[string(p)+" "+verb]++
		},
		Answered: func(p Point, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			answered[p] = took
		},
	})
	attributes := func(verb string) string {
		return spec(asV1, `"user":"jane","resourceAttributes":{"verb":"`+verb+`","resource":"pods","name":"p"}`)
	}
	ask(Front, attributes("impersonate-on:associated-node:list"))
	ask(Front, attributes("impersonate-on:associated-node:list"))
	ask(Front, attributes(`\u006cist`)) // what only the decoder reads
	ask(Front, spec(asV1beta1, `"user":"jane","nonResourceAttributes":{"path":"/x","verb":"get"}`))
	ask(Back, attributes("impersonate"))
	ask(Back, spec(asV1, `"user":"jane","extra":{"`+ProbeExtraKey+`":["x"]},"nonResourceAttributes":{"path":"/x","verb":"get"}`))
	r.Count(nil)
	ask(Front, attributes("watch"))
	mu.Lock()
	defer mu.Unlock()
	for name, want := range map[string]int{"front impersonate-on:associated-node:list": 2, "front list": 1, "front get": 1, "back impersonate": 1} {
		if verbs[name] != want {
			t.Errorf("%s: %d, want %d", name, verbs[name], want)
		}
	}
	if len(verbs) != 4 {
		t.Errorf("counted %v", verbs)
	}
	if answered[Front] < delay || answered[Back] >= delay {
		t.Errorf("answered after %v, the delay of the front is %s", answered, delay)
	}
	if n := len(r.Since(0)); n != 1 {
		t.Errorf("%d recorded, want the one after the counting", n)
	}
	if got := r.Mark(); got != 7 {
		t.Errorf("place %d, want 7", got)
	}
}
