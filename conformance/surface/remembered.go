package surface

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// remembered is for how long an API server remembers an impersonation that succeeded (cache.go of its impersonation filter).
const remembered = 10 * time.Second

// Memory is what a heap held before, during and after impersonations that all differ, in bytes of live objects.
type Memory struct {
	// Entries is how many impersonations there were, Sent how many bytes their headers had in all.
	Entries, Sent int
	// Before the first, Full after the last, Expired when all had expired, Next after one more.
	Before, Full, Expired, Next int
}

// Growth returns by how many bytes the heap grew.
func (m Memory) Growth() int { return m.Full - m.Before }

// PerEntry returns by how many bytes the heap grew for each impersonation.
func (m Memory) PerEntry() int { return m.Growth() / m.Entries }

// Held returns the share of the growth, in percent, that was there when everything had expired.
func (m Memory) Held() int { return 100 * (m.Expired - m.Before) / max(1, m.Growth()) }

// Rest returns the share of the growth, in percent, that was there after one more impersonation.
func (m Memory) Rest() int { return 100 * (m.Next - m.Before) / max(1, m.Growth()) }

// IsUnbounded reports whether the heap kept about as much as was sent, so that neither the number nor the size of what is
// remembered is limited.
func (m Memory) IsUnbounded() bool { return m.Growth() > m.Sent*3/4 }

// IsHeld reports whether most of it was still there when everything had expired.
func (m Memory) IsHeld() bool { return m.Expired-m.Before > m.Sent/2 }

// How many users are impersonated to see what a server keeps of them, and how long their names are: enough for their sum to
// stand out from what else happens in a server, and few enough to be sent before the first expires.
const (
	longNames  = 100
	nameLength = 256 << 10
)

// MeasureRemembered starts an API server with the gate on, impersonates users with long names, each once, and reads the
// server's heap. The names are in headers that an API server takes; what it keeps of them is measured after a garbage
// collection.
func MeasureRemembered(ctx context.Context, release local.Release, binaries *local.Binaries) (m Memory, err error) {
	s, err := server.Start(ctx, plainServer(release, binaries, scenarios.GateOn))
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	client, err := rest.HTTPClientFor(s.Admin())
	if err != nil {
		return m, err
	}
	return measureNames(ctx, s, admin{client, s.Host()})
}

// measureNames impersonates users as an administrator, who may impersonate everybody by a constrained mode.
func measureNames(ctx context.Context, s *server.Server, a admin) (m Memory, err error) {
	m = Memory{Entries: longNames, Sent: longNames * nameLength}
	if m.Before, err = a.impersonateAndRead(ctx, s, "authzconf-first"); err != nil { // connections are there from here on
		return m, err
	}
	began := time.Now()
	for n := range longNames - 1 {
		if err := a.impersonate(ctx, makeLongName(n)); err != nil {
			return m, err
		}
	}
	if m.Full, err = a.impersonateAndRead(ctx, s, makeLongName(longNames-1)); err != nil {
		return m, err
	}
	if took := time.Since(began); took > remembered {
		return m, fmt.Errorf(
			"%d impersonations took %s: the first had expired before the last; the machine is too busy to say anything",
			longNames,
			took.Round(time.Second),
		)
	}
	if !clusters.Pause(ctx, remembered+time.Second) {
		return m, ctx.Err()
	}
	if m.Expired, err = a.readHeap(ctx, s); err != nil {
		return m, err
	}
	m.Next, err = a.impersonateAndRead(ctx, s, "authzconf-last")
	return m, err
}

// makeLongName returns the n-th of the long names.
func makeLongName(n int) string {
	number := fmt.Sprintf("%07d", n)
	return strings.Repeat("u", nameLength-len(number)) + number
}

// impersonate sends a request as a user, which everybody who is authenticated may send.
func (a admin) impersonate(ctx context.Context, name string) error {
	_, err := a.get(ctx, "/version", impersonateUser, name)
	return err
}

// impersonateAndRead sends a request as a user, and reads the heap.
func (a admin) impersonateAndRead(ctx context.Context, s *server.Server, name string) (int, error) {
	if err := a.impersonate(ctx, name); err != nil {
		return 0, err
	}
	return a.readHeap(ctx, s)
}

// heapMetric is how many bytes of a server's heap are allocated.
const heapMetric = "go_memstats_heap_alloc_bytes"

// readHeap has the server collect its garbage, and returns the bytes of live objects.
func (a admin) readHeap(ctx context.Context, s *server.Server) (int, error) {
	if _, err := a.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}
	families, err := s.Scrape(ctx, heapMetric)
	if err != nil {
		return 0, err
	}
	samples := families[heapMetric].GetMetric()
	if len(samples) == 0 {
		return 0, fmt.Errorf("the API server has no metric %s", heapMetric)
	}
	return int(samples[0].GetGauge().GetValue()), nil
}
