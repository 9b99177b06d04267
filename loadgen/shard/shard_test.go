package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestMain also runs the program of a shard.
func TestMain(m *testing.M) {
	if os.Getenv("AUTHZCONF_TEST_SHARD") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Serve(ctx, os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var program = Processes{"/usr/bin/env", "AUTHZCONF_TEST_SHARD=1", os.Args[0]}

// jobs returns the jobs of agents that ask a stub.
func jobs(t *testing.T, n int, h http.HandlerFunc) []Job {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	p := profile.Defaults()
	p.Nodes, p.Block, p.Mix.List, p.Mix.Get, p.LateTolerance = 10, time.Second, 3, 1, time.Second
	p.Mix.Whoami = new(0) // the stub is not an API server that could answer it
	p.Arrivals = profile.Arrivals{Kind: "poisson", Every: 100 * time.Millisecond}
	p.Comparisons = []profile.Comparison{{Name: "aa", A: profile.Side{Variant: "none", Server: profile.GateOffServer}, B: profile.Side{Variant: "none", Server: profile.GateOffServer}}}
	tokens := make([][]string, p.Agents())
	for i := range tokens {
		tokens[i] = []string{fmt.Sprintf("token-%d", i)}
	}
	var all []Job
	for i := range n {
		all = append(all, Job{
			Index:   i,
			Count:   n,
			Profile: p,
			Tokens:  map[string][][]string{"none": tokens},
			Servers: map[profile.Server]Endpoint{
				profile.GateOffServer: {
					Hosts: []string{s.URL},
					CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
				},
			},
		})
	}
	return all
}

func order() Order {
	return Order{
		Side:  profile.Side{Variant: "none", Server: profile.GateOffServer},
		Seed:  11,
		Start: time.Now().Add(200 * time.Millisecond),
	}
}

// TestShardsAreOne checks that, however many processes there are, the server is asked the same by the same agents, and
// that the counts agree.
func TestShardsAreOne(t *testing.T) {
	var asked []string
	var blocks []*run.Block
	for _, n := range []int{1, 2, 3} {
		var mu sync.Mutex
		seen := map[string]int{}
		list := jobs(t, n, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen[r.Header.Get("Authorization")+" "+r.URL.String()]++
		})
		g, err := Start(t.Context(), program, list)
		if err != nil {
			t.Fatal(err)
		}
		b, err := g.Block(t.Context(), order())
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		text, _ := json.Marshal(seen)
		asked, blocks = append(asked, string(text)), append(blocks, b)
	}
	for i, b := range blocks {
		if asked[i] != asked[0] {
			t.Errorf("%d shards asked otherwise than one", i+1)
		}
		if b.Planned != blocks[0].Planned || b.Planned < 50 || b.Sent != b.Planned || b.Answers["200"] != b.Planned ||
			b.Latency.Count() != b.Planned ||
			b.GeneratorRSS == 0 {
			t.Errorf("%d shards: planned %d, sent %d, answers %v", i+1, b.Planned, b.Sent, b.Answers)
		}
	}
}

// TestSends checks that some requests of a block can be sent alone, each by the shard of its agent, and that the block
// ends soon after the last.
func TestSends(t *testing.T) {
	g, err := Start(t.Context(), program, jobs(t, 2, func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	o := order()
	o.Sends = []pacer.Send{{At: 0, Agent: 1}, {At: time.Millisecond, Agent: 4, Kind: 1}, {At: 2 * time.Millisecond, Agent: 1}}
	b, err := g.Block(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if list, get := b.Kinds["list"], b.Kinds["get"]; b.Sent != 3 || list.Count() != 2 || get.Count() != 1 {
		t.Errorf("sent %d: %d lists, %d gets", b.Sent, list.Count(), get.Count())
	}
}

// TestMerge checks that merging adds up exactly, in any order.
func TestMerge(t *testing.T) {
	part := func(i int64) *run.Block {
		b := &run.Block{Planned: i, Sent: i, Answers: map[string]int64{"200": i, fmt.Sprint(i): 1}, Timeline: make([]run.Second, i)}
		for n := range i * 100 {
			b.Latency.Record(time.Duration(n*n) * time.Microsecond)
			b.Timeline[n%i].Done++
		}
		return b
	}
	var there, back run.Block
	for i := range int64(4) {
		there.Merge(part(i + 1))
		back.Merge(part(4 - i))
	}
	a, _ := json.Marshal(there)
	b, _ := json.Marshal(back)
	if !bytes.Equal(a, b) {
		t.Error("another order, another sum")
	}
	if there.Planned != 10 || there.Answers["200"] != 10 || there.Latency.Count() != 1000 || len(there.Timeline) != 4 {
		t.Errorf("planned %d, answers %v, %d latencies", there.Planned, there.Answers, there.Latency.Count())
	}
}

func TestLostShard(t *testing.T) {
	g, err := Start(t.Context(), program, jobs(t, 2, func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, g.members[1].link.Kill)
	b, err := g.Block(t.Context(), order())
	if err == nil || !strings.Contains(err.Error(), "shard 1 of 2 was lost") {
		t.Errorf("a lost shard is no error: %v", err)
	}
	if b == nil || b.Planned == 0 {
		t.Error("what the other counted is lost as well")
	}
	if err := g.Close(); err == nil {
		t.Error("a killed shard closes without an error")
	}
}

// TestToldToEnd checks that a shard that is ended by somebody else does not return what it has as a whole block.
func TestToldToEnd(t *testing.T) {
	g, err := Start(t.Context(), program, jobs(t, 2, func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { _ = g.members[0].link.process.Signal(syscall.SIGTERM) })
	b, err := g.Block(t.Context(), order())
	if err == nil || err.Error() != "shard 0 of 2: it was told to end while the block ran" || b == nil {
		t.Errorf("%v, %+v", err, b)
	}
	_ = g.Close()
}

// TestSilentShard checks that a shard that no longer answers is lost, too.
func TestSilentShard(t *testing.T) {
	g, err := Start(t.Context(), program, jobs(t, 2, func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	g.timeout, g.length = time.Second, time.Second
	silent := g.members[1].link.process
	time.AfterFunc(500*time.Millisecond, func() { _ = silent.Signal(syscall.SIGSTOP) })
	begin := time.Now()
	b, err := g.Block(t.Context(), order())
	if err == nil || !strings.Contains(err.Error(), "shard 1 of 2 was lost: it has not handed over its block") || b == nil ||
		b.Planned == 0 {
		t.Errorf("%v, %+v", err, b)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	_ = silent.Kill() // Close does this after its timeout
	_ = g.Close()
}

// TestClocks checks that the clocks of processes of one machine are the same clock.
func TestClocks(t *testing.T) {
	g, err := Start(t.Context(), program, jobs(t, 2, func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	all, err := g.Clocks(t.Context())
	if err != nil || len(all) != 2 || all[1].Shard != "shard 1 of 2" {
		t.Errorf("%v, %+v", err, all)
	}
	for _, c := range all {
		if time.Duration(c.Offset).Abs() > time.Duration(c.Uncertainty) || c.Uncertainty <= 0 {
			t.Errorf("a clock differs from itself: %+v", c)
		}
	}
	g.members[0].link.Kill()
	if _, err := g.Clocks(t.Context()); err == nil || !strings.Contains(err.Error(), "shard 0 of 2 was lost") {
		t.Errorf("a shard that is gone: %v", err)
	}
	_ = g.Close()
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		offset, uncertainty time.Duration
		want                string
	}{
		{0, time.Millisecond, ""},
		{5 * time.Millisecond, 0, ""},
		{-6 * time.Millisecond, time.Millisecond, ""},
		{7 * time.Millisecond, time.Millisecond, "the clock of a differs from the coordinator's by 7ms ± 1ms"},
		{-7 * time.Millisecond, time.Millisecond, "the clock of a differs from the coordinator's by -7ms ± 1ms"},
		{time.Hour, time.Second, "the clock of a cannot be compared"},
	} {
		err := Judge(run.Clock{Shard: "a", Offset: run.Duration(c.offset), Uncertainty: run.Duration(c.uncertainty)})
		if (err == nil) != (c.want == "") ||
			err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s ± %s: %v", c.offset, c.uncertainty, err)
		}
	}
}

// off is a link to a shard whose clock is wrong.
type off struct{ by, slow time.Duration }

func (o off) Launch(context.Context, int, int) (*Link, error) {
	in, orders := io.Pipe()
	replies, out := io.Pipe()
	server := rpc.NewServer()
	_ = server.RegisterName(serviceName, &wrongClock{o})
	go server.ServeCodec(jsonrpc.NewServerCodec(&stream{in, out, func() { _ = out.Close() }}))
	return &Link{In: orders, Out: replies, Kill: func() { _ = out.Close() }, Wait: func() error { return nil }}, nil
}

func (off) Close() error { return nil }

// wrongClock is the service of such a shard.
type wrongClock struct{ off off }

func (*wrongClock) Open(Job, *none) error { return nil }

func (w *wrongClock) Now(_ none, out *time.Time) error {
	time.Sleep(w.off.slow / 2)
	*out = time.Now().Add(w.off.by).Round(0)
	time.Sleep(w.off.slow / 2)
	return nil
}

func TestClockOff(t *testing.T) {
	for _, c := range []struct {
		shard off
		want  string
	}{
		{off{0, 0}, ""},
		{off{time.Second, 0}, "differs from the coordinator's by 1s ±"},
		{off{-time.Second, 20 * time.Millisecond}, "differs from the coordinator's by -1s ±"},
		{off{0, 120 * time.Millisecond}, "cannot be compared"},
	} {
		g, err := Start(t.Context(), c.shard, []Job{{Count: 1}})
		if err != nil {
			t.Fatal(err)
		}
		all, err := g.Clocks(t.Context())
		text := fmt.Sprint(err)
		if len(all) == 1 {
			text = strings.ReplaceAll(
				text,
				time.Duration(all[0].Offset).Round(time.Microsecond).String(),
				time.Duration(all[0].Offset).Round(100*time.Millisecond).String(),
			)
		}
		if (err == nil) != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %v", c.shard, err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStop(t *testing.T) {
	list := jobs(t, 2, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for i := range list {
		list[i].Profile.Block = time.Minute
	}
	g, err := Start(t.Context(), program, list)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begin := time.Now()
	b, err := g.Block(ctx, order())
	if err != nil || b.Answers["canceled"] != b.Sent || b.Sent == 0 {
		t.Errorf("%v, %+v", err, b)
	}
	if took := time.Since(begin); took > list[0].Profile.Block/2 {
		t.Errorf("it took %s to stop", took)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	list := jobs(t, 1, func(http.ResponseWriter, *http.Request) {})
	if _, err := Start(t.Context(), Processes{"/nonexistent/program"}, list); err == nil {
		t.Error("a program that is not there")
	}
	if _, err := Start(t.Context(), Processes{"/bin/true"}, list); err == nil {
		t.Error("a program that is not a shard is accepted")
	}
	list[0].Servers = map[profile.Server]Endpoint{
		profile.GateOffServer: {Hosts: []string{"https://127.0.0.1:1"}, CA: list[0].Servers[profile.GateOffServer].CA},
	}
	if _, err := Start(t.Context(), program, list); err == nil || !strings.Contains(err.Error(), "connecting to gate-off") {
		t.Errorf("a server that is not there: %v", err)
	}
}
