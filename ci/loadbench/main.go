// Command loadbench measures what authzconf's load generator itself costs, beside
// fortio, vegeta and h2load: processor time per request at the same rate against
// the same TLS HTTP/2 stub, in turns, and what each reports of a stall of 1 s.
// Peers that are not installed are left out. ci/bench-loadgen installs them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
)

// Work is what every generator is asked for.
type Work struct {
	URL         string
	CA          []byte
	Rate        int
	Connections int
	Seconds     int
	Burst       bool
}

func main() {
	repeats := flag.Int("repeats", 10, "how often each generator runs")
	bin := flag.String("bin", "", "folder of the peers' programs, beside PATH")
	w := Work{}
	flag.IntVar(&w.Rate, "rate", 1000, "requests per second")
	flag.IntVar(&w.Connections, "connections", 100, "connections")
	flag.IntVar(&w.Seconds, "seconds", 10, "length of a run")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "stub":
		err = stub()
	case "ours":
		err = ours()
	default:
		err = compare(w, *repeats, *bin)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// stub serves until its standard input ends. A GET of /stall?in=1s makes it stand
// still for a second from then on.
func stub() error {
	var from atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			in, _ := time.ParseDuration(r.URL.Query().Get("in"))
			from.Store(time.Now().Add(in).UnixNano())
			return
		}
		if begin := from.Load(); begin != 0 {
			if left := time.Until(time.Unix(0, begin).Add(time.Second)); left > 0 && left <= time.Second {
				time.Sleep(left)
			}
		}
		_, _ = w.Write([]byte("ok"))
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := json.NewEncoder(os.Stdout).Encode(Work{URL: s.URL, CA: ca}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Result is what one run reports of itself; CPU is measured by who started it.
type Result struct {
	Requests int64
	P99      time.Duration
	LagP1    time.Duration
	LagP50   time.Duration
	LagP99   time.Duration
	// Memory is what heap and stacks take when all connections are open and idle.
	Memory int64
	CPU    time.Duration `json:"-"`
}

// ours is authzconf's own engine: the work on stdin, the result on stdout.
func ours() error {
	var w Work
	if err := json.NewDecoder(os.Stdin).Decode(&w); err != nil {
		return err
	}
	pool, err := agent.NewPool(&rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}}, w.Connections, 1, 0, 1)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := pool.Open(ctx); err != nil {
		return err
	}
	defer pool.Close()
	header := http.Header{}
	s := &agent.Storm{
		Pool: pool, Shards: 1, Kinds: []string{"get"}, Expect: http.StatusOK, Tolerance: 10 * time.Millisecond, Timeout: 10 * time.Second,
		Plan:    pacer.Plan{Arrivals: pacer.Constant, Agents: w.Connections, Rate: float64(w.Rate), Length: time.Duration(w.Seconds) * time.Second},
		Request: func(int, int, int) agent.Request { return agent.Request{Path: "/", Header: header} },
		Start:   time.Now().Add(100 * time.Millisecond),
	}
	if w.Burst {
		s.Plan.Arrivals, s.Plan.Rate = pacer.Burst, 0
	}
	schedule, err := s.Prepare()
	if err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b := s.Run(ctx, schedule)
	return json.NewEncoder(os.Stdout).Encode(Result{
		Requests: b.Answers["200"], P99: b.Latency.Quantile(0.99), Memory: int64(m.HeapInuse + m.StackInuse),
		LagP1: b.Lag.Quantile(0.01), LagP50: b.Lag.Quantile(0.5), LagP99: b.Lag.Quantile(0.99),
	})
}

// generator starts one of the programs. parse reads its result from its output.
type generator struct {
	name  string
	args  func(w Work) []string
	input bool
	// spread tells fortio -uniform from fortio.
	spread bool
	parse  func(out []byte) (Result, error)
}

func (g generator) title() string {
	if g.spread {
		return g.name + " -uniform"
	}
	return g.name
}

func generators() []generator {
	return []generator{
		{name: "authzconf", input: true, parse: func(out []byte) (r Result, err error) { return r, json.Unmarshal(out, &r) }},
		{name: "fortio", args: func(w Work) []string {
			return []string{"load", "-h2", "-k", "-quiet", "-json", "-", "-qps", strconv.Itoa(w.Rate), "-c", strconv.Itoa(w.Connections), "-t", fmt.Sprintf("%ds", w.Seconds), "-p", "50,99", w.URL + "/"}
		}, parse: parseFortio},
		// By default all connections of fortio send at the same moment, which costs less
		// than a constant rate does.
		{name: "fortio", spread: true, args: func(w Work) []string {
			return []string{"load", "-h2", "-k", "-quiet", "-uniform", "-json", "-", "-qps", strconv.Itoa(w.Rate), "-c", strconv.Itoa(w.Connections), "-t", fmt.Sprintf("%ds", w.Seconds), "-p", "50,99", w.URL + "/"}
		}, parse: parseFortio},
		{name: "vegeta", args: func(w Work) []string {
			return []string{"-c", fmt.Sprintf(`echo "GET %s/" | vegeta attack -insecure -http2 -rate %d/1s -duration %ds | vegeta report -type json`, w.URL, w.Rate, w.Seconds)}
		}, parse: parseVegeta},
		{name: "h2load", args: func(w Work) []string {
			return []string{"-c", strconv.Itoa(w.Connections), "--rps", strconv.Itoa(w.Rate / w.Connections), "-D", strconv.Itoa(w.Seconds), w.URL + "/"}
		}, parse: parseH2load},
	}
}

// runOne runs a generator once against a stub of its own.
func runOne(g generator, w Work, stall bool) (r Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	server := exec.CommandContext(context.Background(), self, "stub")
	in, err := server.StdinPipe()
	if err != nil {
		return r, err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := server.Start(); err != nil {
		return r, err
	}
	defer func() { _ = in.Close(); _ = server.Wait() }()
	var up Work
	if err := json.NewDecoder(out).Decode(&up); err != nil {
		return r, err
	}
	w.URL, w.CA = up.URL, up.CA
	program := g.name
	var args []string
	switch g.name {
	case "authzconf":
		program, args = self, []string{"ours"}
	case "vegeta":
		program, args = "/bin/sh", g.args(w)
	default:
		args = g.args(w)
	}
	cmd := exec.CommandContext(context.Background(), program, args...)
	if g.input {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return r, err
		}
		go func() { _ = json.NewEncoder(stdin).Encode(w); _ = stdin.Close() }()
	}
	if stall {
		time.AfterFunc(time.Duration(w.Seconds)*time.Second/3, func() { askStall(w) })
	}
	text, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w", g.name, err)
	}
	if r, err = g.parse(text); err != nil {
		return r, fmt.Errorf("%s: %w", g.name, err)
	}
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// askStall makes the stub stand still, from a connection of its own.
func askStall(w Work) {
	client, err := rest.HTTPClientFor(&rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}})
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, w.URL+"/stall?in=0s", nil)
	if err != nil {
		return
	}
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// compare runs all that are installed, in turns, and prints medians.
func compare(w Work, repeats int, bin string) error {
	if bin != "" {
		if err := os.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
			return err
		}
	}
	var list []generator
	for _, g := range generators() {
		if _, err := exec.LookPath(g.name); err != nil && !g.input {
			fmt.Printf("%s is not installed: left out\n", g.name)
			continue
		}
		list = append(list, g)
	}
	cpu, achieved := map[string][]float64{}, map[string][]float64{}
	for range repeats {
		for _, g := range list {
			r, err := runOne(g, w, false)
			if err != nil {
				return err
			}
			cpu[g.title()] = append(cpu[g.title()], float64(r.CPU.Microseconds())/float64(max(r.Requests, 1)))
			achieved[g.title()] = append(achieved[g.title()], float64(r.Requests)/float64(w.Rate*w.Seconds))
		}
	}
	fmt.Printf("%d requests/s for %d s, %d connections, %d processors, medians of %d runs in turns\n", w.Rate, w.Seconds, w.Connections, runtime.NumCPU(), repeats)
	for _, g := range list {
		fmt.Printf("%-15s CPU per request %6.1f µs, part of the requests answered %.4f\n", g.title(), median(cpu[g.title()]), median(achieved[g.title()]))
	}
	analytic := time.Second - time.Duration(float64(w.Seconds)*0.01*float64(time.Second))
	fmt.Printf("a stall of 1 s: the analytic p99 is %.3f s\n", analytic.Seconds())
	for _, g := range list {
		r, err := runOne(g, w, true)
		if err != nil {
			return err
		}
		fmt.Printf("%-15s reports a p99 of %.3f s (%+.1f %%)\n", g.title(), r.P99.Seconds(), 100*(r.P99-analytic).Seconds()/analytic.Seconds())
	}
	burst := w
	burst.Burst, burst.Connections, burst.Seconds = true, 1000, 2
	r, err := runOne(list[0], burst, false)
	if err != nil {
		return err
	}
	fmt.Printf("authzconf: a burst of %d leaves within %s (p1 to p99 of the lag)\n", r.Requests, r.LagP99-r.LagP1)
	fmt.Printf("authzconf: %.1f KiB of heap and stacks for each idle agent with a connection\n", float64(r.Memory)/1024/float64(burst.Connections))
	return nil
}

func median(list []float64) float64 {
	slices.SortFunc(list, cmp.Compare)
	if n := len(list); n%2 == 0 {
		return (list[n/2-1] + list[n/2]) / 2
	}
	return list[len(list)/2]
}
