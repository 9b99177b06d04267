package load

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
)

// The buckets in metrics are every 32nd bound of the histograms, four to an octave, from 65 µs to 69 s. They are
// bounds of the fixed layout, so that the counts are exact.
const (
	firstBound = 10 * 128 // index of 2^16 ns
	lastBound  = 30 * 128 // index of 2^36 ns
	boundStep  = 32
)

func openMetrics(r *run.Run) ([]byte, error) {
	var families []*dto.MetricFamily
	histograms := func(name, help string, of func(*run.Block) *histogram.Histogram) {
		f := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_HISTOGRAM.Enum(), Unit: new("seconds")}
		for _, g := range groupVariants(r) {
			h := merged(g.blocks, of)
			f.Metric = append(f.Metric, &dto.Metric{Label: labelsOf(g), Histogram: histogramOf(&h)})
		}
		families = append(families, f)
	}
	histograms("authzconf_load_latency_seconds", "From the intended send of a request to the end of its answer.", latencyOf)
	histograms("authzconf_load_service_seconds", "From the actual send of a request to the end of its answer.", func(b *run.Block) *histogram.Histogram { return &b.Service })
	histograms("authzconf_load_lag_seconds", "From the intended to the actual send of a request.", func(b *run.Block) *histogram.Histogram { return &b.Lag })
	histograms("authzconf_load_webhook_seconds", "Latency of the authorization webhook, from receipt to answer.", webhookOf)
	counters := func(name, help string, each func(g variantBlocks, count func(n int64, labels ...*dto.LabelPair))) {
		f := &dto.MetricFamily{Name: new(name + "_total"), Help: &help, Type: dto.MetricType_COUNTER.Enum()}
		for _, g := range groupVariants(r) {
			each(g, func(n int64, labels ...*dto.LabelPair) {
				f.Metric = append(f.Metric, &dto.Metric{Label: labelsOf(g, labels...), Counter: &dto.Counter{Value: new(float64(n))}})
			})
		}
		families = append(families, f)
	}
	counters("authzconf_load_answers", "Answers by HTTP status, or class of error where there is none.", func(g variantBlocks, count func(int64, ...*dto.LabelPair)) {
		statuses := measureVariant(g).Statuses
		for _, s := range slices.Sorted(maps.Keys(statuses)) {
			count(statuses[s], label("status", s))
		}
	})
	counters("authzconf_load_access_reviews", "Access reviews that the authorizer received.", func(g variantBlocks, count func(int64, ...*dto.LabelPair)) {
		for _, c := range checkCounts(g.blocks) {
			count(c.Count, label("mode", c.Mode), label("verb", c.Verb), label("decision", c.Decision))
		}
	})

	var out bytes.Buffer
	for _, f := range families {
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToOpenMetrics(&out, f); err != nil {
			return nil, err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(&out)
	return out.Bytes(), err
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func labelsOf(g variantBlocks, more ...*dto.LabelPair) []*dto.LabelPair {
	return append([]*dto.LabelPair{
		label("variant", g.key.variant), label("server", g.key.server), label("agents", strconv.Itoa(g.blocks[0].Agents)),
	}, more...)
}

func histogramOf(h *histogram.Histogram) *dto.Histogram {
	// below[i] is how many are in buckets up to i.
	below := make([]uint64, histogram.Buckets)
	h.Each(func(bucket int, count int64) { below[bucket] = uint64(count) })
	for i := 1; i < len(below); i++ {
		below[i] += below[i-1]
	}
	d := &dto.Histogram{SampleCount: new(uint64(h.Count())), SampleSum: new((h.Sum()).Seconds())}
	for i := firstBound; i <= lastBound; i += boundStep {
		// Durations are whole nanoseconds: below this bound is up to the last of them.
		from, _ := histogram.Bounds(i)
		d.Bucket = append(d.Bucket, &dto.Bucket{UpperBound: new((from - 1).Seconds()), CumulativeCount: new(below[i-1])})
	}
	return d
}

// PerfData is the form that the performance dashboards of Kubernetes read, from
// k8s.io/kubernetes/test/e2e/perftype.
type PerfData struct {
	Version   string            `json:"version"`
	DataItems []PerfDataItem    `json:"dataItems"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// PerfDataItem is one point in time of some curves.
type PerfDataItem struct {
	Data   map[string]float64 `json:"data"`
	Unit   string             `json:"unit"`
	Labels map[string]string  `json:"labels,omitempty"`
}

func perfData(r *run.Run) PerfData {
	p := PerfData{Version: "v1", DataItems: []PerfDataItem{}, Labels: map[string]string{"profile": r.Profile, "tool": r.Tool}}
	for _, g := range groupVariants(r) {
		labels := func(metric, kind string, count int64) map[string]string {
			return map[string]string{
				"Metric": metric, "Verb": kind, "Count": strconv.FormatInt(count, 10),
				"variant": g.key.variant, "server": g.key.server, "agents": strconv.Itoa(g.blocks[0].Agents),
			}
		}
		latencies := func(metric, kind string, h *histogram.Histogram) {
			if h.Count() == 0 {
				return
			}
			item := PerfDataItem{Data: map[string]float64{}, Unit: "ms", Labels: labels(metric, kind, h.Count())}
			for name, q := range map[string]float64{"Perc50": 0.5, "Perc90": 0.9, "Perc99": 0.99} {
				item.Data[name] = milliseconds(h.Quantile(q))
			}
			p.DataItems = append(p.DataItems, item)
		}
		all, webhook := merged(g.blocks, latencyOf), merged(g.blocks, webhookOf)
		latencies("request_latency", "all", &all)
		for _, kind := range kindsOf(g.blocks) {
			h := mergedKind(g.blocks, kind)
			latencies("request_latency", kind, &h)
		}
		latencies("webhook_latency", "all", &webhook)
		a := measureVariant(g)
		if a.Sent > 0 {
			p.DataItems = append(p.DataItems, PerfDataItem{
				Data: map[string]float64{"PerRequest": a.Reviews.PerRequest.Estimate}, Unit: "reviews", Labels: labels("access_reviews", "all", a.Sent),
			})
		}
	}
	return p
}

func merged(blocks []*run.Block, of func(*run.Block) *histogram.Histogram) histogram.Histogram {
	var m histogram.Histogram
	for _, b := range blocks {
		m.Merge(of(b))
	}
	return m
}

func webhookOf(b *run.Block) *histogram.Histogram { return &b.WebhookLatency }
