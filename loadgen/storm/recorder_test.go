package storm

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// TestServeRecorder asks a recorder as its process is asked, until whoever asks goes away.
func TestServeRecorder(t *testing.T) {
	in, orders := io.Pipe()
	replies, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeRecorder(t.Context(), in, out) }()
	p := &recorderProcess{
		link: &shard.Link{In: orders, Out: replies, Kill: func() {}, Wait: func() error { return <-ended }}, timeout: time.Minute,
		encoder: json.NewEncoder(orders), decoder: json.NewDecoder(replies),
	}
	if got := p.Kubeconfig(recorder.Front); len(got) == 0 {
		t.Error("no kubeconfig")
	}
	if got := p.Since(p.Mark()); len(got) != 0 {
		t.Errorf("%d records of nobody", len(got))
	}
	p.ask(question{Count: &countingOptions{Start: time.Now(), Delay: time.Millisecond, Sigma: 1, Concurrency: 2}})
	if a := p.ask(question{Read: true}); a.Counted.total() != 0 || len(a.Counted.Arrived) != 2 || p.Err() != nil {
		t.Errorf("counted %+v, %v", a.Counted, p.Err())
	}
	p.ask(question{Profile: true})
	if _, err := sumFunctions(bytes.NewReader(p.ask(question{Profiled: true}).Profile)); err != nil || p.Err() != nil {
		t.Errorf("its CPU profile: %v, %v", err, p.Err())
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = out.Close() })
	if err := p.close(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if p.Mark() != 0 || p.Err() == nil {
		t.Error("a process that has ended is not reported")
	}
}

// TestNoRecorder starts programs that are not the recorder. One that hangs is killed, and the error says what happened.
func TestNoRecorder(t *testing.T) {
	for name, tc := range map[string]struct {
		command []string
		timeout time.Duration
		problem string
	}{
		"hangs":         {[]string{"sleep", "60"}, 100 * time.Millisecond, "did not answer within 100ms"},
		"ends":          {[]string{"true"}, recorderTimeout, "its process is gone"},
		"says nonsense": {[]string{"sh", "-c", "echo PASS; cat >/dev/null"}, recorderTimeout, "invalid character 'P'"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := startRecorder(t.Context(), tc.command, tc.timeout)
			if err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%v, want %q", err, tc.problem)
			}
			if took := time.Since(begin); took > 9*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestCounts checks that there are decisions only if both ends of the chain are asked each time.
func TestCounts(t *testing.T) {
	r := newReviews(time.Now(), 0)
	for _, p := range []recorder.Point{recorder.Front, recorder.Front, recorder.Back} {
		r.arrive(p, "list")
	}
	got := countReviews(r.soFar().Arrived, false)
	if len(got) != 2 || got[0].Decision != "Allow" || got[0].Count != 1 || got[1].Decision != "NoOpinion" {
		t.Errorf("%+v", got)
	}
	if got := countReviews(r.soFar().Arrived, true); len(got) != 1 || got[0].Decision != "unseen" || got[0].Count != 2 {
		t.Errorf("of a webhook whose answers are remembered: %+v", got)
	}
}

// TestSettledReviews checks that what arrives when a block is settled is also counted separately.
func TestSettledReviews(t *testing.T) {
	for begun, want := range map[time.Duration]int64{time.Hour: 1, time.Second: 0} {
		r, b := newReviews(time.Now().Add(-begun), time.Minute), &run.Block{Settled: &run.SettledPart{}}
		r.arrive(recorder.Front, "list")
		r.soFar().fill(b, false)
		var settled int64
		for _, c := range b.Settled.Reviews {
			settled += c.Count
		}
		if settled != want || len(b.Reviews) != 1 {
			t.Errorf("%s after the block began: %d settled reviews of %d, want %d", begun, settled, len(b.Reviews), want)
		}
	}
}

// TestChecked checks that what the API server reports counts if there is no recorder.
func TestChecked(t *testing.T) {
	b := &run.Block{
		Attempts: []run.AttemptCount{
			{Mode: "legacy", Decision: "allowed", Count: 3},
			{Mode: "associated-node", Decision: "denied", Count: 2},
		},
	}
	got, fewer := countChecks(
		b,
		[]sample{
			{family: decisions, labels: model.Metric{"decision": "allowed"}, value: 10},
			{family: decisions, labels: model.Metric{"decision": "denied"}, value: 4},
		},
		2,
	)
	if len(got) != 3 || got[0].Count != 3 || got[1].Decision != "NoOpinion" ||
		got[2] != (run.ReviewCount{ReviewKind: run.ReviewKind{Mode: "request", Decision: "Allow"}, Count: 5}) ||
		b.Background != 2 ||
		fewer != 0 {
		t.Errorf("%+v, %d fewer", got, fewer)
	}
	b.Reviews, fewer = countChecks(b, nil, 2)
	if b.Reviews[2].Count != 0 || fewer != 5 {
		t.Errorf("less than the background: %+v, %d fewer", b.Reviews, fewer)
	}
	blocks := []run.Block{*b}
	if (&run.Run{Blocks: blocks, OwnUnknown: true}).DropOwn(); len(blocks[0].Reviews) != 2 || blocks[0].Background != 0 {
		t.Errorf("impersonation alone: %+v", blocks[0].Reviews)
	}
}

// TestRuntimeCost checks that the processor time is read from the metrics only if no process is known.
func TestRuntimeCost(t *testing.T) {
	increased := []sample{
		{family: "process_cpu_seconds_total", value: 0.5},
		{family: "go_memstats_alloc_bytes_total", value: 1024},
		{family: "go_gc_duration_seconds_count", value: 2},
	}
	for _, known := range []bool{false, true} {
		b := &run.Block{Cost: map[string]run.Cost{}}
		want := run.Duration(500 * time.Millisecond)
		if known {
			want = run.Duration(time.Second)
			b.Cost[run.APIServer] = run.Cost{CPU: want}
		}
		addRuntimeCost(b, increased, 7)
		if c := b.Cost[run.APIServer]; c.CPU != want || c.Allocated != 1024 || c.GCs != 2 || (c.Idle == 7) == known {
			t.Errorf("known %t: %+v", known, c)
		}
	}
}

// TestReadCounters checks that counters and gauges are read, and of histograms and summaries their counts and sums.
func TestReadCounters(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE process_start_time_seconds gauge
process_start_time_seconds 100
# TYPE apiserver_authorization_decisions_total counter
apiserver_authorization_decisions_total{decision="allowed"} 3
# TYPE go_gc_duration_seconds summary
go_gc_duration_seconds{quantile="0.5"} NaN
go_gc_duration_seconds_sum 0.5
go_gc_duration_seconds_count 2
# TYPE apiserver_flowcontrol_request_wait_duration_seconds histogram
apiserver_flowcontrol_request_wait_duration_seconds_bucket{priority_level="a",le="1"} 4
apiserver_flowcontrol_request_wait_duration_seconds_bucket{priority_level="a",le="+Inf"} 4
apiserver_flowcontrol_request_wait_duration_seconds_sum{priority_level="a"} 0.25
apiserver_flowcontrol_request_wait_duration_seconds_count{priority_level="a"} 4
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := readCounters(families)
	if _, there := c.find(decisions); err != nil || !c.began().Equal(time.Unix(100, 0)) || !there {
		t.Fatalf("%v, %v", c, err)
	}
	c.add(c)
	got := map[string]float64{}
	for _, s := range c.since(counters{}) {
		got[s.family+string(s.labels["decision"]+s.labels["priority_level"])] = s.value
	}
	for name, want := range map[string]float64{decisions + "allowed": 6, "go_gc_duration_seconds_count": 4, flowControl + "request_wait_duration_seconds_suma": 0.5, server.ProcessStartMetric: 100} {
		if got[name] != want {
			t.Errorf("%s: %v, expected %v, of %v", name, got[name], want, got)
		}
	}
}
