package surface

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/server"
)

// remembered is for how long an API server remembers an impersonation that succeeded (cache.go of its impersonation filter).
const remembered = 10 * time.Second

// concurrent is how many requests are under way at once.
const concurrent = 16

// memoryKind is what differs between impersonations, so that each is remembered by itself.
type memoryKind struct {
	name string
	// request returns the path and the headers of one of many requests.
	request func(n int) (path string, headers []string)
}

var memoryKinds = []memoryKind{
	{"names", func(n int) (string, []string) {
		return "/version", []string{impersonateUser, fmt.Sprintf("authzconf-user-%07d", n)}
	}},
	{"groups", func(n int) (string, []string) {
		return "/version", []string{impersonateUser, viewer, "Impersonate-Group", fmt.Sprintf("authzconf-group-%07d", n)}
	}},
	{"selectors", func(n int) (string, []string) {
		return fmt.Sprintf("%s?labelSelector=n%%3D%07d", requestPath, n), []string{impersonateUser, viewer}
	}},
}

// Memory is what an API server's heap held before, during and after many impersonations that differ. Bytes are of live objects,
// after a garbage collection.
type Memory struct {
	// Sent is the number of impersonations, Live how many of them had succeeded less than ten seconds before the heap was read.
	Sent int `json:"sent"`
	Live int `json:"live"`
	// Before is the heap before the first request, Full after the last, Expired when all had been forgotten, and Next after
	// one more request.
	Before int `json:"beforeBytes"`
	Full   int `json:"fullBytes"`
	// Expired is read without any request of this kind in between.
	Expired int `json:"expiredBytes"`
	Next    int `json:"nextBytes"`
	// Seconds is how long the requests took.
	Seconds float64 `json:"seconds"`
}

// measureMemory sends impersonations that differ, and reads the heap.
func measureMemory(ctx context.Context, s *server.Server, kind memoryKind, entries int) (m Memory, err error) {
	client, err := rest.HTTPClientFor(s.Admin())
	if err != nil {
		return m, err
	}
	a := admin{client, s.Host()}
	one := func(ctx context.Context, n int) error {
		path, headers := kind.request(n)
		_, err := a.get(ctx, path, headers...)
		return err
	}
	// What is made once is there before the heap is read: connections, and the tables of maps, which do not shrink.
	if _, err := sendMany(ctx, entries, one); err != nil {
		return m, err
	}
	if err := pause(ctx, remembered+time.Second); err != nil {
		return m, err
	}
	if err := one(ctx, 0); err != nil { // which gives back what has expired
		return m, err
	}
	if m.Before, err = a.readHeap(ctx); err != nil {
		return m, err
	}
	began := time.Now()
	answered, err := sendMany(ctx, entries, one)
	if err != nil {
		return m, err
	}
	m.Sent, m.Seconds = entries, time.Since(began).Seconds()
	if m.Full, err = a.readHeap(ctx); err != nil {
		return m, err
	}
	for _, at := range answered {
		if time.Since(at) < remembered {
			m.Live++
		}
	}
	if err := pause(ctx, remembered+time.Second); err != nil {
		return m, err
	}
	if m.Expired, err = a.readHeap(ctx); err != nil {
		return m, err
	}
	if err := one(ctx, entries+1); err != nil {
		return m, err
	}
	m.Next, err = a.readHeap(ctx)
	return m, err
}

// sendMany sends requests, several at a time, and returns when each was answered.
func sendMany(ctx context.Context, n int, one func(ctx context.Context, n int) error) ([]time.Time, error) {
	answered := make([]time.Time, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	var wrote sync.Mutex
	for i := range n {
		group.Go(func() error {
			if err := one(ctx, i+1); err != nil {
				return err
			}
			wrote.Lock()
			defer wrote.Unlock()
			answered[i] = time.Now()
			return nil
		})
	}
	return answered, group.Wait()
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heapLine matches the line of a heap profile that says how many bytes are live.
var heapLine = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// readHeap returns the bytes on the server's heap after it collected its garbage twice: what a pool holds survives the first
// time.
func (a admin) readHeap(ctx context.Context) (bytes int, err error) {
	for range 2 {
		body, err := a.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		m := heapLine.FindSubmatch(body)
		if m == nil {
			return 0, errors.New("the heap profile does not say how many bytes are live")
		}
		if bytes, err = strconv.Atoi(string(m[1])); err != nil {
			return 0, err
		}
	}
	return bytes, nil
}

// Growth is by how many bytes the heap grew.
func (m Memory) Growth() int { return m.Full - m.Before }

// PerEntry is by how many bytes it grew for each impersonation that was remembered.
func (m Memory) PerEntry() float64 { return float64(m.Growth()) / float64(max(1, m.Live)) }

// Held is the share of the growth that was still there when everything had expired.
func (m Memory) Held() float64 { return float64(m.Expired-m.Before) / float64(max(1, m.Growth())) }

// Rest is the share of the growth that was left after one more impersonation.
func (m Memory) Rest() float64 { return float64(m.Next-m.Before) / float64(max(1, m.Growth())) }

// describe says what was measured, in a line.
func (m Memory) describe() string {
	return fmt.Sprintf("%d impersonations in %.1f s, %d of them remembered: %d KiB more, %.0f bytes each; %.0f %% of it was held when all had expired, %.0f %% after the next success",
		m.Sent, m.Seconds, m.Live, m.Growth()>>10, m.PerEntry(), 100*m.Held(), 100*m.Rest())
}
