package storm

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// TestMain also runs the program of a shard.
func TestMain(m *testing.M) {
	if os.Getenv("AUTHZCONF_TEST_SHARD") != "" {
		if err := shard.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newest() local.Release { return local.Releases()[len(local.Releases())-1] }

func side(variant string, on profile.Server) profile.Side {
	return profile.Side{Variant: variant, Server: on}
}

// burst is a profile with blocks that are shorter than files may have.
func burst(comparisons ...profile.Comparison) *profile.Profile {
	p := profile.Defaults()
	p.Name, p.Nodes, p.PodsPerNode, p.Pairs, p.Block = "test", 20, 2, 1, time.Second
	p.Arrivals.Kind, p.Mix.List, p.LateTolerance = "burst", 1, time.Second
	p.Comparisons = comparisons
	return &p
}

func executeStorm(ctx context.Context, t *testing.T, p *profile.Profile, change func(*Options)) *run.Run {
	t.Helper()
	o := Options{Profile: p, Release: newest(), Binaries: &local.Binaries{}, Seed: 1, Shards: 1, Say: func(s string) { t.Log(s) }}
	if change != nil {
		change(&o)
	}
	out, err := Execute(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func total(b run.Block) (n int64) {
	for _, r := range b.Reviews {
		n += r.Count
	}
	return n
}

// TestExecute checks that every review of a burst of agents that nobody knows is predicted, in two processes, and at
// night in one.
func TestExecute(t *testing.T) { expectForetold(t, 2) }

func TestExecuteAlone(t *testing.T) { expectForetold(t, 1) }

func expectForetold(t *testing.T, shards int) {
	t.Helper()
	p := burst(
		profile.Comparison{
			Name: "cold",
			A:    side("legacy-gate-off", profile.GateOffServer),
			B:    side("associated-node-cold", profile.GateOnServer),
		},
		profile.Comparison{Name: "user-info", A: side("deputy-legacy", profile.GateOffServer), B: side("deputy", profile.GateOnServer)},
		profile.Comparison{Name: "denied", A: side("denied", profile.GateOffServer), B: side("denied", profile.GateOnServer)},
	)
	p.Arrivals.Every = 0
	out := executeStorm(t.Context(), t, p, func(o *Options) {
		o.Shards, o.Command = shards, []string{"/usr/bin/env", "AUTHZCONF_TEST_SHARD=1", os.Args[0]}
	})
	if len(out.Problems) > 0 || out.Interrupted || len(out.Blocks) != 6 {
		t.Errorf("%d shards: %d blocks, problems %v", shards, len(out.Blocks), out.Problems)
	}
	for _, b := range out.Blocks {
		if b.Planned != 20 || b.Sent != 20 || len(b.Wrong) > 0 || b.Latency.Count() != 20 {
			t.Errorf("%d shards, %s on %s: planned %d, sent %d, wrong %v", shards, b.Variant, b.Server, b.Planned, b.Sent, b.Wrong)
		}
		if list, why := b.ComparePrediction(); len(list) > 0 || why != "" {
			t.Errorf("%d shards, %s on %s: %v %s: %+v", shards, b.Variant, b.Server, list, why, b.Reviews)
		}
		if len(b.Unreconciled) > 0 || b.WebhookLatency.Count() != total(b) {
			t.Errorf("%d shards, %s on %s: %v, %d webhook latencies", shards, b.Variant, b.Server, b.Unreconciled, b.WebhookLatency.Count())
		}
		if gateOn := b.Server == string(profile.GateOnServer); gateOn != (len(b.Attempts) > 0) {
			t.Errorf("%s on %s: attempts %v", b.Variant, b.Server, b.Attempts)
		}
	}
}

// TestFinding checks that a server that asks something else than was predicted is a finding, with the fewest requests
// that show it. Here the prediction is wrong: it assumes that the server has the gate off.
func TestFinding(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("denied", profile.GateOnServer), B: side("denied", profile.GateOnServer)})
	p.Nodes = 2
	var r *runner
	r = newRunner(Options{Profile: p, Release: newest(), Binaries: &local.Binaries{}, Seed: 1, Shards: 1, Say: func(s string) {
		t.Log(s)
		if strings.HasPrefix(s, "created ") {
			wrong, err := population.NewHistory(p, profile.GateOffServer, "1.37")
			if err != nil {
				t.Error(err)
			}
			r.servers[profile.GateOnServer].history = wrong
		}
	}})
	out, err := r.execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Blocks) != 2 || len(out.Problems) > 0 {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	s := out.Blocks[0].Smallest
	if s == nil || s.Count != 1 || len(s.Requests) != 1 ||
		!strings.Contains(s.Text, "legacy impersonate NoOpinion: 1 reviews, predicted 1") &&
			!strings.Contains(s.Text, "arbitrary-node impersonate-on:arbitrary-node:list NoOpinion: 1 reviews, predicted none") {
		t.Errorf("the smallest schedule: %+v", s)
	}
	if list, why := out.Blocks[1].ComparePrediction(); len(list) == 0 || why != "" || out.Blocks[1].Smallest != nil {
		t.Errorf("the second block: %v %s", list, why)
	}
}

func TestStormInterrupted(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	p.Arrivals = profile.Arrivals{Kind: "constant", Every: time.Second} // nothing has to be forgotten between blocks
	p.Block, p.Pairs = 3*time.Second, 50
	p.WebhookDelay = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := time.Now()
	out := executeStorm(ctx, t, p, func(o *Options) {
		o.Progress = func(at Progress) {
			if at.Block == 2 {
				cancel()
			}
		}
	})
	if !out.Interrupted || len(out.Blocks) != 1 || len(out.Problems) != 1 {
		t.Errorf("interrupted %t, %d blocks, problems %v", out.Interrupted, len(out.Blocks), out.Problems)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if b := out.Blocks[0]; b.WebhookLatency.Min() < 20*time.Millisecond || b.Latency.Min() < 20*time.Millisecond {
		t.Errorf("with a delay of 20 ms the webhook took %s, the fastest request %s", b.WebhookLatency.Min(), b.Latency.Min())
	}
}

// TestServerDies checks that the death of the API server is counted and reported, and that the generator lives on.
func TestServerDies(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	p.Arrivals = profile.Arrivals{Kind: "constant", Every: time.Second}
	p.Block, p.Pairs = 4*time.Second, 2
	out := executeStorm(t.Context(), t, p, func(o *Options) {
		o.Progress = func(at Progress) {
			if at.Block == 2 && at.Elapsed < 3*time.Second {
				kill(t)
			}
		}
	})
	if len(out.Blocks) != 2 || len(out.Problems) == 0 || !strings.Contains(out.Problems[0].Text, "kube-apiserver") {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	if b := out.Blocks[1]; b.Planned != 80 || b.Answers["refused"] == 0 || b.Answers["200"] == 0 {
		t.Errorf("planned %d, answers %v", b.Planned, b.Answers)
	}
}

// TestTokensRevoked checks that invalid tokens are counted and reported.
func TestTokensRevoked(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	// Each agent asks once in a block. A valid token is believed for 10 s, and each was valid when the server was
	// warmed up, so it shows in the second block.
	p.Arrivals, p.Block = profile.Arrivals{Kind: "constant", Every: 5 * time.Second}, 5*time.Second
	var r *runner
	gone := false
	r = newRunner(Options{
		Profile: p, Release: newest(), Binaries: &local.Binaries{}, Seed: 1, Shards: 1, Say: func(s string) { t.Log(s) },
		Progress: func(at Progress) {
			if at.Block == 1 && !gone {
				gone = true
				admin, _ := r.servers[profile.GateOffServer].credentials()
				client, err := kubernetes.NewForConfig(admin)
				if err == nil {
					err = client.CoreV1().
						ServiceAccounts("storm-none").
						DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		},
	})
	out, err := r.execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Blocks) != 2 {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	b := out.Blocks[1]
	wrong := b.Wrong["401: expected 200"] + b.Wrong["401: expected 201"] // the second is of those that ask who they are
	if b.Planned != 20 || b.Answers["401"] == 0 || b.Answers["200"]+b.Answers["201"]+b.Answers["401"] != 20 || wrong != b.Answers["401"] {
		t.Errorf("planned %d, answers %v, wrong %v", b.Planned, b.Answers, b.Wrong)
	}
	if len(out.Problems) == 0 || !strings.Contains(out.Problems[len(out.Problems)-1].Text, "answered 401: their tokens have expired") {
		t.Errorf("problems %v", out.Problems)
	}
}

func TestUnaccepted(t *testing.T) {
	got := findUnaccepted(&run.Block{Answers: map[string]int64{"200": 5, "401": 2, "tls": 1, "403": 7}})
	if len(got) != 2 || !strings.HasPrefix(got[0], "2 requests were answered 401") ||
		!strings.HasPrefix(got[1], "1 requests failed in TLS") {
		t.Errorf("%q", got)
	}
	if got := findUnaccepted(&run.Block{Answers: map[string]int64{"200": 5, "403": 7}}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestCheck checks that what is impossible is reported before anything is started.
func TestCheck(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	if err := (&Options{Profile: p, Shards: 1, Engine: Pods, Provider: server.Local}).Check(); !usage.Is(err) {
		t.Errorf("pods of a local control plane: %v", err)
	}
	p.Nodes = 1 << 30
	err := (&Options{Profile: p, Shards: 1 << 20}).checkFiles()
	if !usage.Is(err) || !strings.Contains(err.Error(), "1073742024 open files, and this process may have") {
		t.Errorf("more agents than files, however many shards: %v", err)
	}
}

func TestOrder(t *testing.T) {
	p := burst(
		profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)},
		profile.Comparison{Name: "gate", A: side("denied", profile.GateOffServer), B: side("denied", profile.GateOnServer)},
	)
	p.Pairs, p.Starts = 12, 3
	blocks := orderBlocks(p, 3)
	if len(blocks) != 2*2*12 {
		t.Fatalf("%d blocks", len(blocks))
	}
	first := map[string]int{}
	pairs := map[int]bool{}
	for i := 0; i < len(blocks); i += 2 {
		a, b := blocks[i], blocks[i+1]
		if a.number != b.number || a.uses[0].Comparison != b.uses[0].Comparison || a.seed != b.seed || a.uses[0].Role == b.uses[0].Role {
			t.Errorf("%+v and %+v are no pair", a, b)
		}
		if pairs[a.number] {
			t.Errorf("pair %d twice", a.number)
		}
		pairs[a.number] = true
		if a.start != b.start || a.start != i/16 {
			t.Errorf("blocks %d and %d are of the starts %d and %d", i, i+1, a.start, b.start)
		}
		first[fmt.Sprint(a.start, a.uses[0].Comparison, a.uses[0].Role)]++
	}
	for name, n := range first {
		if n != 2 {
			t.Errorf("%s begins %d of 4 pairs", name, n)
		}
	}
	same, other := orderBlocks(p, 3), orderBlocks(p, 4)
	different := false
	for i := range blocks {
		if !reflect.DeepEqual(same[i], blocks[i]) {
			t.Fatal("the same seed, another order")
		}
		different = different || !reflect.DeepEqual(other[i], blocks[i])
	}
	if !different {
		t.Error("another seed, the same order")
	}
}

func TestUnreconciled(t *testing.T) {
	block := func() *run.Block {
		return &run.Block{
			Reviews: []run.ReviewCount{
				{ReviewKind: run.ReviewKind{Mode: "legacy", Verb: "impersonate", Decision: "Allow"}, Count: 3},
				{ReviewKind: run.ReviewKind{Mode: "associated-node", Verb: "impersonate:associated-node", Decision: "NoOpinion"}, Count: 2},
				{ReviewKind: run.ReviewKind{Mode: "request", Verb: "list", Decision: "Allow"}, Count: 3},
			},
			Attempts: []run.AttemptCount{
				{Mode: "legacy", Decision: "allowed", Count: 3},
				{Mode: "associated-node", Decision: "denied", Count: 2},
			},
		}
	}
	if got := reconcile(block(), 8, counterFacts{attempts: true}); len(got) != 0 {
		t.Errorf("what agrees: %v", got)
	}
	got := reconcile(block(), 9, counterFacts{attempts: true})
	if len(got) != 1 || got[0] != "the recorder received 8 reviews, the API server says it sent 9" {
		t.Errorf("one more sent: %v", got)
	}
	// A review that the server gave up may be in both counts, or in one of them.
	for evaluations := int64(7); evaluations <= 10; evaluations++ {
		b := block()
		b.GivenUp, b.Attempts[1].Count = 1, 3
		if got, want := reconcile(b, evaluations, counterFacts{attempts: true}), evaluations == 7 || evaluations == 10; (len(got) != 0) != want {
			t.Errorf("%d sent and one given up: %v", evaluations, got)
		}
	}
	b := block()
	b.Attempts[0].Count = 2
	got = reconcile(b, 8, counterFacts{attempts: true})
	if len(got) != 1 ||
		!strings.Contains(got[0], "mode legacy, allowed: the recorder received 3 reviews, the API server counted 2") {
		t.Errorf("one less counted: %v", got)
	}
	b = block()
	b.Attempts = append(b.Attempts, run.AttemptCount{Mode: "user-info", Decision: "denied", Count: 1})
	if got := reconcile(b, 8, counterFacts{attempts: true}); len(got) != 1 || !strings.Contains(got[0], "mode user-info, not allowed") {
		t.Errorf("one that nobody saw: %v", got)
	}
	if got := reconcile(block(), 9, counterFacts{attempts: true, components: true}); len(got) != 0 {
		t.Errorf("one more sent, of a component: %v", got)
	}
	if got := reconcile(block(), 7, counterFacts{attempts: true, components: true}); len(got) != 1 {
		t.Errorf("one less sent: %v", got)
	}
	if got := reconcile(block(), 7, counterFacts{restarted: true}); len(got) != 0 {
		t.Errorf("one less counted, by a server that was restarted: %v", got)
	}
	if got := reconcile(block(), 9, counterFacts{restarted: true}); len(got) != 1 {
		t.Errorf("one more sent, by a server that was restarted: %v", got)
	}
	b = block()
	b.Attempts = nil
	if got := reconcile(b, 8, counterFacts{}); len(got) != 0 {
		t.Errorf("a server that does not count: %v", got)
	}
}

// TestGivenUp reads from the server's metrics which of its reviews had no answer, at either end of the chain.
func TestGivenUp(t *testing.T) {
	evaluations := func(name, result model.LabelValue, n float64) sample {
		return sample{family: webhookEvaluations, labels: model.Metric{"name": name, "result": result}, value: n}
	}
	b := &run.Block{Reviews: []run.ReviewCount{{ReviewKind: run.ReviewKind{Mode: "request", Verb: "list", Decision: "Allow"}, Count: 4667}}}
	addMetrics(b, []sample{
		evaluations("recorder-front", "success", 4660),
		evaluations("recorder-front", "canceled", 28),
		evaluations("recorder-front", "timeout", 1),
		evaluations("recorder-back", "success", 7),
		evaluations("recorder-back", "error", 2),
		evaluations("another", "error", 9),
	}, counterFacts{})
	if b.GivenUp != 31 || len(b.Unreconciled) > 0 {
		t.Errorf("%d given up, %v", b.GivenUp, b.Unreconciled)
	}
	b.GivenUp, b.Reviews[0].Count = 0, 4657
	addMetrics(b, []sample{evaluations("recorder-front", "success", 4660), evaluations("recorder-front", "canceled", 2)}, counterFacts{})
	if want := "the recorder received 4657 reviews, the API server says it sent 4662, and gave up 2"; len(b.Unreconciled) != 1 ||
		b.Unreconciled[0] != want {
		t.Errorf("one less than had an answer: %v", b.Unreconciled)
	}
}

// TestFlowControlOfRestartedServer checks that the counters of priority and fairness, which begin again with a server, are
// not taken for what it did in a block in which it was restarted.
func TestFlowControlOfRestartedServer(t *testing.T) {
	dispatched := sample{family: flowControl + "dispatched_requests_total", labels: model.Metric{"priority_level": "system"}, value: 97}
	for isRestarted, want := range map[bool]int{false: 1, true: 0} {
		b := &run.Block{}
		addMetrics(b, []sample{dispatched}, counterFacts{restarted: isRestarted})
		if len(b.FlowControl) != want {
			t.Errorf("restarted is %t: %v, expected %d counters", isRestarted, b.FlowControl, want)
		}
	}
}

func TestMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	if m := inspectMachine(); m.CPUs < 1 || m.MemoryBytes < 1<<20 || m.Go == "" {
		t.Errorf("machine %+v", m)
	}
}
