package main

import (
	"bytes"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// The buckets in metrics are every 32nd bound of the histograms, four to an octave, from 65 µs to 69 s. They are
// bounds of the fixed layout, so that the counts are exact.
const (
	firstBound = 10 * 128 // index of 2^16 ns
	lastBound  = 30 * 128 // index of 2^36 ns
	boundStep  = 32
)

// makeOpenMetrics returns the metrics of a run in OpenMetrics.
func makeOpenMetrics(r *run.Run) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range families(judge.GroupVariants(r)) {
		if _, err := expfmt.MetricFamilyToOpenMetrics(&out, f); err != nil {
			return nil, err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(&out)
	return out.Bytes(), err
}

// familyMaker makes the metrics of groups of blocks. One of which there is nothing is left out.
type familyMaker struct {
	groups []judge.VariantBlocks
	more   []*dto.LabelPair
	all    []*dto.MetricFamily
}

// addMetric adds a metric with its labels to a family.
type addMetric func(m *dto.Metric, labels ...*dto.LabelPair)

// add makes a family of what collect adds for each group.
func (f *familyMaker) add(name, help string, kind dto.MetricType, collect func(g judge.VariantBlocks, add addMetric)) {
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
	if kind == dto.MetricType_HISTOGRAM {
		family.Unit = new("seconds") // all that are
	}
	for _, g := range f.groups {
		collect(g, func(m *dto.Metric, labels ...*dto.LabelPair) {
			m.Label = slices.Concat(labelsOf(g), labels, f.more)
			family.Metric = append(family.Metric, m)
		})
	}
	if len(family.Metric) > 0 {
		f.all = append(f.all, family)
	}
}

// families returns the metrics of groups of blocks, each with some more labels.
func families(groups []judge.VariantBlocks, more ...*dto.LabelPair) []*dto.MetricFamily {
	f := &familyMaker{groups: groups, more: more}
	for _, h := range []struct {
		name, help  string
		histogramOf func(*run.Block) *histogram.Histogram
	}{
		{"latency", "From the intended send of a request to the end of its answer.", func(b *run.Block) *histogram.Histogram { return &b.Latency }},
		{"service", "From the actual send of a request to the end of its answer.", func(b *run.Block) *histogram.Histogram { return &b.Service }},
		{"lag", "From the intended to the actual send of a request.", func(b *run.Block) *histogram.Histogram { return &b.Lag }},
		{"webhook", "Latency of the authorization webhook, from receipt to answer.", webhookOf},
	} {
		f.add("authzconf_load_"+h.name+"_seconds", h.help, dto.MetricType_HISTOGRAM, func(g judge.VariantBlocks, add addMetric) {
			m := judge.MergeHistograms(g.Blocks, h.histogramOf)
			add(&dto.Metric{Histogram: histogramOf(&m)})
		})
	}
	f.add("authzconf_load_requests_total", "Requests by what became of them at the generator.", dto.MetricType_COUNTER, collectRequests)
	f.add(
		"authzconf_load_answers_total",
		"Answers by HTTP status, or class of error where there is none.",
		dto.MetricType_COUNTER,
		collectAnswers,
	)
	f.add("authzconf_load_access_reviews_total", "Access reviews that the authorizer received.", dto.MetricType_COUNTER, collectReviews)
	f.add("authzconf_load_cpu_seconds", "Processor time above idle.", dto.MetricType_GAUGE, collectCPU)
	return f.all
}

func collectRequests(g judge.VariantBlocks, add addMetric) {
	v := judge.MeasureVariant(g, false)
	add(counter(v.Sent), label("state", "sent"))
	add(counter(v.Late), label("state", "late"))
	add(counter(v.Dropped), label("state", "dropped"))
	add(counter(v.Errors), label("state", "failed"))
}

func collectAnswers(g judge.VariantBlocks, add addMetric) {
	statuses := judge.MeasureVariant(g, false).Statuses
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		add(counter(statuses[s]), label("status", s))
	}
}

func collectReviews(g judge.VariantBlocks, add addMetric) {
	counts := judge.CountChecks(g.Blocks)
	for _, c := range slices.SortedFunc(maps.Keys(counts), run.ReviewKind.Compare) {
		add(counter(counts[c]), label("mode", c.Mode), label("verb", c.Verb), label("decision", c.Decision))
	}
}

func collectCPU(g judge.VariantBlocks, add addMetric) {
	usage := map[string]run.Duration{}
	for _, b := range g.Blocks {
		for program, c := range b.Cost {
			usage[program] += c.CPU - c.Idle
		}
	}
	for _, program := range slices.Sorted(maps.Keys(usage)) {
		add(&dto.Metric{Gauge: &dto.Gauge{Value: new(time.Duration(usage[program]).Seconds())}}, label("program", program))
	}
}

func webhookOf(b *run.Block) *histogram.Histogram { return &b.WebhookLatency }

func counter(n int64) *dto.Metric { return &dto.Metric{Counter: &dto.Counter{Value: new(float64(n))}} }

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func labelsOf(g judge.VariantBlocks) []*dto.LabelPair {
	return []*dto.LabelPair{
		label("variant", g.Key.Variant), label("server", g.Key.Server), label("agents", strconv.Itoa(g.Blocks[0].Agents)),
	}
}

func histogramOf(h *histogram.Histogram) *dto.Histogram {
	// counts[i] is how many are in buckets up to i.
	counts := make([]uint64, histogram.Buckets)
	h.Each(func(bucket int, count int64) { counts[bucket] = uint64(count) })
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	d := &dto.Histogram{SampleCount: new(uint64(h.Count())), SampleSum: new((h.Sum()).Seconds())}
	for i := firstBound; i <= lastBound; i += boundStep {
		// Durations are whole nanoseconds: below this bound is up to the last of them.
		from, _ := histogram.Bounds(i)
		d.Bucket = append(d.Bucket, &dto.Bucket{UpperBound: new((from - 1).Seconds()), CumulativeCount: new(counts[i-1])})
	}
	return d
}
