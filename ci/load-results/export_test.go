package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

var update = flag.Bool("update", false, "write the golden file anew")

// smallRun is enough for everything that is exported.
func smallRun() run.Run {
	return simulated.Storm{Seed: 4, Pairs: 10, AAPairs: 10, Requests: 400, Noise: 0.02, Agents: 10}.Run()
}

func soundThresholds() judge.Thresholds {
	return judge.Thresholds{
		Limits: judge.Limits{ReviewsPerRequest: 2.5, P99: run.Duration(time.Second), SLOHeld: true, ErrorRate: new(0.001)},
		Margin: 0.05, MarginP99: 0.10,
	}
}

func countReviews(b *run.Block) (n int64) {
	for _, r := range b.Reviews {
		n += r.Count
	}
	return n
}

func TestPerfDataGolden(t *testing.T) {
	r := smallRun()
	got, err := filing.EncodeJSON(makePerfData(&r, "v0.0.0-test"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "perfdata.json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test ./ci/load-results -update): %s", path, diff)
	}
}

func TestPerfData(t *testing.T) {
	r := smallRun()
	data, err := filing.EncodeJSON(makePerfData(&r, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	// As k8s.io/kubernetes/test/e2e/perftype has it.
	var p struct {
		Version   string `json:"version"`
		DataItems []struct {
			Data   map[string]float64 `json:"data"`
			Unit   string             `json:"unit"`
			Labels map[string]string  `json:"labels"`
		} `json:"dataItems"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Version != "v1" || len(p.DataItems) == 0 {
		t.Fatalf("%+v", p)
	}
	for _, i := range p.DataItems {
		if i.Unit == "ms" &&
			(i.Data["Perc50"] <= 0 || i.Data["Perc50"] > i.Data["Perc90"] || i.Data["Perc90"] > i.Data["Perc99"] || i.Labels["Count"] == "") {
			t.Errorf("%+v", i)
		}
	}
}

// The text format's parser reads what is common to both formats.
func TestOpenMetrics(t *testing.T) {
	r := smallRun()
	r.Blocks[0].Variant = "a \"quoted\"\nvariant"
	text, err := makeOpenMetrics(&r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(text, []byte("# EOF\n")) || !bytes.Contains(text, []byte("# TYPE authzconf_load_answers counter\n")) {
		t.Error("this is not OpenMetrics")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	f := families["authzconf_load_latency_seconds"]
	if f == nil {
		t.Fatal("there is no latency")
	}
	var requests uint64
	for _, m := range f.Metric {
		requests += m.Histogram.GetSampleCount()
		var last uint64
		for _, b := range m.Histogram.Bucket {
			if want := upTo(&r, m.Label, b.GetUpperBound()); b.GetCumulativeCount() != want {
				t.Errorf("bucket %g has %d, counted %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
			}
			if b.GetCumulativeCount() < last {
				t.Errorf("bucket %g has %d, the one before %d", b.GetUpperBound(), b.GetCumulativeCount(), last)
			}
			last = b.GetCumulativeCount()
		}
		if last != m.Histogram.GetSampleCount() {
			t.Errorf("the last bucket has %d of %d", last, m.Histogram.GetSampleCount())
		}
	}
	var sent uint64
	for _, b := range r.Blocks {
		sent += uint64(b.Sent)
	}
	if requests != sent {
		t.Errorf("%d latencies of %d requests", requests, sent)
	}
}

// upTo counts the latencies of a variant up to a number of seconds, from the buckets
// of its blocks.
func upTo(r *run.Run, labels []*dto.LabelPair, seconds float64) (n uint64) {
	of := map[string]string{}
	for _, l := range labels {
		of[l.GetName()] = l.GetValue()
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Variant != of["variant"] || b.Server != of["server"] || strconv.Itoa(b.Agents) != of["agents"] {
			continue
		}
		b.Latency.Each(func(bucket int, count int64) {
			if _, to := histogram.Bounds(bucket); (to - 1).Seconds() <= seconds {
				n += uint64(count)
			}
		})
	}
	return n
}
