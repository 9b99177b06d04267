package agent_test

import (
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/reports/statistics"
)

// These are flags of TestBenchPeers, which ci/bench-loadgen passes on.
var (
	repeats     = flag.Int("repeats", 10, "how often each generator runs")
	rate        = flag.Int("rate", 1000, "requests per second")
	connections = flag.Int("connections", 100, "connections")
	seconds     = flag.Int("seconds", 5, "length of a run")
	idle        = flag.Int("idle", 2000, "idle agents whose memory is measured")
	only        = flag.String("only", "", "one part of it: cost, pairs, stall, bursts, rates or memory")
	also        = flag.String("also", "", "another build of this program, measured beside it as NAME=PATH")
	many        = flag.Int("many", 10_000, "agents of a large storm whose memory is measured, 0 for none")
)

// work is what a generator has to do.
type work struct {
	URL         string
	CA          []byte
	Rate        int
	Connections int
	Seconds     int
	// Together means that all connections send at the same moment, Rate/Connections times a second.
	Together bool
	// Path and Header are what peers ask, which is the request of the first of our agents.
	Path   string
	Header http.Header
	// Dir is a folder for files of a run, and Log one for what h2load writes about single requests.
	Dir, Log string
}

func (w work) address() string { return w.URL + w.Path }

func (w work) caFile() string { return filepath.Join(w.Dir, "ca.pem") }

// headers are the flags that give a peer the headers.
func (w work) headers(flag string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(w.Header)) {
		list = append(list, flag, name+":"+w.Header.Get(name))
	}
	return list
}

// These are the programs as which the test binary starts itself. The variable programEnv names one of them.
const (
	programEnv = "AUTHZCONF_BENCH_PROGRAM"

	asStub   = "stub"
	asAgents = "agents"
	asIdle   = "idle"
	asBare   = "bare"
)

// TestMain also runs the programs of TestBenchPeers.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(programEnv) {
	case asStub:
		err = stub()
	case asAgents:
		err = agents(false)
	case asIdle:
		err = agents(true)
	case asBare:
		err = bareConnections()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// TestBenchPeers measures what the load generator itself costs and how exact it is. It compares it in turns with
// fortio, h2load and k6 on a TLS HTTP/2 stub, with the same headers, and prints tables in Markdown. Peers that are not
// installed are left out. It takes minutes, and make bench-loadgen runs it.
func TestBenchPeers(t *testing.T) {
	if os.Getenv("AUTHZCONF_BENCH") == "" {
		t.Skip("a measurement of minutes: make bench-loadgen")
	}
	b := &bench{
		work:    work{Rate: *rate, Connections: *connections, Seconds: *seconds},
		repeats: *repeats,
		idle:    *idle,
		many:    *many,
		out:     os.Stdout,
	}
	if err := b.askAll(); err != nil {
		t.Fatal(err)
	}
}

// bench runs everything in turns, and keeps the results of each run.
type bench struct {
	work       work
	repeats    int
	idle, many int
	out        io.Writer

	list []generator
}

// stallSeconds is the length of a run with a stall. The requests that a stall of 1 s has delayed are not answered at
// once: with 1,000 requests/s that takes two processors some 100 ms. In a short run fewer of the slowest 1 % of the
// requests are among these.
const stallSeconds = 3

// burst is the number of agents that send at the same moment.
const burst = 1000

func (b *bench) askAll() error {
	asker, err := b.work.asker()
	if err != nil {
		return err
	}
	asked := asker(0, 0, 0)
	b.work.Path, b.work.Header = (&url.URL{Path: asked.Path, RawQuery: asked.Query}).String(), asked.Header
	var missing []string
	b.list, missing = installed()
	for _, title := range missing {
		b.say("%s is not installed: left out", title)
	}
	b.print(
		"%d requests/s, %d connections, runs of 1 s and of %d s, %d processors, %s, %s; %d turns, each beginning with another; load average %.1f at the beginning.",
		b.work.Rate,
		b.work.Connections,
		1+b.work.Seconds,
		runtime.NumCPU(),
		runtime.Version(),
		time.Now().Format(time.DateOnly),
		b.repeats,
		loadAverage(),
	)
	for _, part := range []struct {
		name string
		run  func() error
	}{{"cost", b.cost}, {"pairs", b.pairs}, {"stall", b.stall}, {"bursts", b.bursts}, {"rates", b.rates}, {"memory", b.memory}} {
		if *only != "" && *only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return err
		}
	}
	b.print("Load average %.1f at the end.", loadAverage())
	return nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() float64 {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if load, err := proc.LoadAvg(); err == nil {
			return load.Load1
		}
	}
	return 0
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func (b *bench) print(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format+"\n", args...) }

// series are the values of one generator, one a run.
type series map[string][]float64

func (s series) add(title string, value float64) { s[title] = append(s[title], value) }

func (s series) median(title string) float64 { return median(s[title]) }

// ratio returns the mean over turns of one generator's value divided by another's (of the logarithm), with its 95 %
// interval. The values of a turn were measured close to one another.
func (s series) ratio(title, by string) string {
	n := min(len(s[title]), len(s[by]))
	if title == by && n > 0 {
		return "1"
	}
	logs, err := statistics.LogRatios(s[by][:n], s[title][:n])
	if n == 0 || err != nil {
		return "–"
	}
	mean, bounded := statistics.MeanInterval(logs, 0.95)
	if mean = mean.Map(math.Exp); !bounded {
		return fmt.Sprintf("%.2f", mean.Estimate)
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", mean.Estimate, mean.Low, mean.High)
}

// cost compares the processor time of a request. It is computed from how much more a long run takes than one of a
// second, so that the time to start and connect is not in it.
func (b *bench) cost() error {
	cpu, begin, answered, lag50, lag99 := series{}, series{}, series{}, series{}, series{}
	long, short := b.work, b.work
	long.Seconds, short.Seconds = b.work.Seconds+1, 1
	for i := range b.repeats {
		for _, g := range rotated(b.list, i) {
			first, err := once(g, short, false)
			if err != nil {
				return err
			}
			r, err := once(g, long, false)
			if err != nil {
				return err
			}
			if first.Requests == 0 || r.Requests <= first.Requests {
				return fmt.Errorf(
					"%s: %d requests were answered in a second, %d in %d s",
					g.title,
					first.Requests,
					r.Requests,
					long.Seconds,
				)
			}
			us := float64((r.CPU - first.CPU).Microseconds()) / float64(r.Requests-first.Requests)
			b.say("cost %d/%d: %s %.1f µs", i+1, b.repeats, g.title, us)
			cpu.add(g.title, us)
			begin.add(g.title, float64(first.CPU.Milliseconds())-us*float64(first.Requests)/1000)
			answered.add(g.title, float64(r.Requests)/float64(b.work.Rate*long.Seconds))
			lag50.add(g.title, float64(r.LagP50.Microseconds()))
			lag99.add(g.title, float64(r.LagP99.Microseconds()))
		}
	}
	b.print(
		"\n| generator | arrivals | CPU per request | ÷ authzconf | ÷ fortio | ÷ h2load | ÷ k6 | start | answered | send lag p50, p99 |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
	)
	for _, g := range b.list {
		arrivals, lag, peers := "constant", "–", []string{"authzconf", "fortio -uniform", "h2load, timing script", "k6"}
		if g.together {
			arrivals, peers = "all at once", []string{"authzconf, at once", "fortio", "h2load", "–"}
		}
		if g.own {
			lag = fmt.Sprintf("%.2f ms, %.1f ms", lag50.median(g.title)/1000, lag99.median(g.title)/1000)
		}
		for i, peer := range peers {
			peers[i] = cpu.ratio(g.title, peer)
		}
		b.print(
			"| %s | %s | %.1f µs | %s | %.0f ms | %.4f | %s |",
			g.title,
			arrivals,
			cpu.median(g.title),
			strings.Join(peers, " | "),
			begin.median(g.title),
			answered.median(g.title),
			lag,
		)
	}
	return nil
}

// pairs compares variants of our own engine with the engine as it is, both at the same time, so that whatever else the
// machine does affects both.
func (b *bench) pairs() error {
	base, cpu := b.list[0], series{}
	for i := range b.repeats {
		for _, g := range rotated(b.list, i) {
			if !g.own || g.together || g.title == base.title {
				continue
			}
			var used [2][2]result // of g and base, in the short run and the long one
			for k, seconds := range []int{1, 1 + b.work.Seconds} {
				w := b.work
				w.Seconds = seconds
				var group errgroup.Group
				for j, one := range []generator{g, base} {
					group.Go(func() (err error) {
						used[j][k], err = once(one, w, false)
						return err
					})
				}
				if err := group.Wait(); err != nil {
					return err
				}
			}
			for j, name := range []string{g.title, "base of " + g.title} {
				cpu.add(name, float64((used[j][1].CPU-used[j][0].CPU).Microseconds())/float64(used[j][1].Requests-used[j][0].Requests))
			}
			b.say("pairs %d/%d: %s %s", i+1, b.repeats, g.title, cpu.ratio(g.title, "base of "+g.title))
		}
	}
	b.print("\n| at the same time as authzconf | CPU per request ÷ authzconf |\n|---|--:|")
	for _, g := range b.list {
		if len(cpu[g.title]) > 0 {
			b.print("| %s | %s |", g.title, cpu.ratio(g.title, "base of "+g.title))
		}
	}
	return nil
}

// stall compares what is reported about a stall of one second. At a constant rate, the slowest hundredth of a run's
// requests are those at the beginning of the stall.
func (b *bench) stall() error {
	folder, err := os.MkdirTemp("", "loadbench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	w := b.work
	w.Seconds, w.Log = stallSeconds, filepath.Join(folder, "h2load.log")
	analytic := 1 - 0.01*stallSeconds
	p99, server := series{}, series{}
	for i := range b.repeats {
		for _, g := range rotated(b.list, i) {
			if g.own && g.together {
				continue // the formula is for a constant rate
			}
			_ = os.Remove(w.Log)
			r, err := once(g, w, true)
			if err != nil {
				return err
			}
			b.say("stall %d/%d: %s %.4f s, the server %.4f s", i+1, b.repeats, g.title, r.P99.Seconds(), r.ServerP99.Seconds())
			p99.add(g.title, r.P99.Seconds())
			server.add(g.title, r.ServerP99.Seconds())
		}
	}
	b.print(
		"\nA stall of 1 s in a run of %d s; the analytic p99 is %.3f s.\n\n| generator | reported p99 | off the analytic one | p99 that the server saw | off it |\n|---|--:|--:|--:|--:|",
		stallSeconds,
		analytic,
	)
	for _, g := range b.list {
		if len(p99[g.title]) > 0 {
			reported, seen := p99.median(g.title), server.median(g.title)
			b.print(
				"| %s | %.4f s | %+.2f %% | %.4f s | %+.2f %% |",
				g.title,
				reported,
				100*(reported/analytic-1),
				seen,
				100*(reported/seen-1),
			)
		}
	}
	return nil
}

// bursts measures how far apart requests leave that are meant for one moment.
func (b *bench) bursts() error {
	w := b.work
	w.Rate, w.Connections, w.Seconds = burst, burst, 1
	spread := series{}
	for i := range b.repeats {
		r, err := once(own("authzconf", asAgents, true, oneProcessor), w, false)
		if err != nil {
			return err
		}
		if r.Requests != burst {
			return fmt.Errorf("a burst of %d had %d answers", burst, r.Requests)
		}
		b.say("burst %d/%d: %s", i+1, b.repeats, r.LagP99-r.LagP1)
		spread.add("", float64((r.LagP99-r.LagP1).Microseconds())/1000)
	}
	b.print("\nA burst of %d leaves within %.1f ms (p1 to p99 of intended to actual send).", burst, spread.median(""))
	return nil
}

// rates measures where one process saturates.
func (b *bench) rates() error {
	const seconds, repeats = 2, 3
	b.print("\n| asked | sent in time | answered | send lag p50 | CPU per request |\n|--:|--:|--:|--:|--:|")
	for _, rate := range []int{1000, 2000, 4000, 8000, 16_000} {
		w := b.work
		w.Rate, w.Seconds = rate, seconds
		s := series{}
		for range min(repeats, b.repeats) {
			r, err := once(own("authzconf", asAgents, false, oneProcessor), w, false)
			if err != nil {
				return err
			}
			asked := float64(rate * seconds)
			s.add("sent", float64(r.InTime)/asked)
			s.add("answered", float64(r.Requests)/asked)
			s.add("lag", float64(r.LagP50.Microseconds())/1000)
			s.add("cpu", float64(r.CPU.Microseconds())/float64(max(r.Requests, 1)))
		}
		b.say("%d requests/s: %.4f sent in time", rate, s.median("sent"))
		b.print(
			"| %d/s | %.4f | %.4f | %.2f ms | %.1f µs |",
			rate,
			s.median("sent"),
			s.median("answered"),
			s.median("lag"),
			s.median("cpu"),
		)
	}
	return nil
}

// memory measures what an idle agent keeps, compared with a connection that uses only crypto/tls and HTTP/2.
func (b *bench) memory() error {
	const repeats = 3
	const kib = 1024.0
	w := b.work
	w.Connections, w.Rate, w.Seconds = b.idle, b.idle, 1
	s := series{}
	for range min(repeats, b.repeats) {
		for _, program := range []string{asIdle, asBare} {
			r, err := once(own(program, program, false), w, false)
			if err != nil {
				return err
			}
			s.add(program, float64(r.After-r.Before)/float64(b.idle)/kib)
			b.say("memory, %s: %.1f KiB each", program, s[program][len(s[program])-1])
		}
	}
	b.print(
		"\n%d idle agents take %.1f KiB of resident memory each, bare connections %.1f KiB: %s ×.",
		b.idle,
		s.median(asIdle),
		s.median(asBare),
		s.ratio(asIdle, asBare),
	)
	if b.many == 0 {
		return nil
	}
	w.Connections, w.Rate, w.Seconds = b.many, 1000, b.many/1000
	r, err := once(own("many", asIdle, false), w, false)
	if err != nil {
		b.print("%d agents could not be measured: %v.", b.many, err)
		return nil
	}
	b.print(
		"%d agents, each of which has asked once at 1000 requests/s: %d MiB of resident memory, at most %d MiB.",
		b.many,
		r.After>>20,
		r.Peak>>20,
	)
	return nil
}
