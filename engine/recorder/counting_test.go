package recorder

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	r := startRecorder(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	ask := func(p Point, body string) {
		t.Helper()
		code, answer, err := send(c, http.MethodPost, r.URL(p), strings.NewReader(body))
		if err != nil || code != http.StatusOK || !strings.Contains(answer, `"allowed":false`) {
			t.Fatalf("%d %s, %v", code, answer, err)
		}
	}
	var mu sync.Mutex
	verbs, answered := map[string]int{}, map[Point]time.Duration{}
	const delay = 30 * time.Millisecond
	r.Count(&StormHooks{
		Delay: func() time.Duration { return delay }, Slots: make(chan struct{}, 1),
		Arrived: func(p Point, verb string) {
			mu.Lock()
			defer mu.Unlock()
			verbs[string(p)+" "+verb]++
		},
		Answered: func(p Point, _ string, took time.Duration) {
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
	ask(Front, spec(asV1, `"user":"jane","nonResourceAttributes":{"path":"/x","verb":"get"}`))
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

// TestGivenUp has an API server that gives a review up before all of it is sent: in a storm that is no fault of the
// recorder's.
func TestGivenUp(t *testing.T) {
	r := startRecorder(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	r.Count(&StormHooks{
		Arrived:  func(Point, string) { t.Error("half a review was counted") },
		Answered: func(Point, string, time.Duration) { t.Error("half a review was answered") },
	})
	ctx, giveUp := context.WithCancel(t.Context())
	body, rest := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL(Front), body)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = rest.Write([]byte(`{"kind":"SubjectAcc`))
		giveUp()
	}()
	if resp, err := c.Do(req); !errors.Is(err, context.Canceled) {
		_ = resp.Body.Close()
		t.Fatalf("%v, want that it was given up", err)
	}
	if err := errors.Join(r.Err(), r.Close(), r.Err()); err != nil {
		t.Error(err)
	}
}
