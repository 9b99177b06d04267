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
	families = append(families, answersFamily(r), reviewsFamily(r))

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

func answersFamily(r *run.Run) *dto.MetricFamily {
	f := counterFamily("authzconf_load_answers", "Answers by HTTP status, or class of error where there is none.")
	for _, g := range groupVariants(r) {
		statuses := measureVariant(g).Statuses
		for _, s := range slices.Sorted(maps.Keys(statuses)) {
			f.Metric = append(f.Metric, counter(labelsOf(g, label("status", s)), statuses[s]))
		}
	}
	return f
}

func reviewsFamily(r *run.Run) *dto.MetricFamily {
	f := counterFamily("authzconf_load_access_reviews", "Access reviews that the authorizer received.")
	for _, g := range groupVariants(r) {
		for _, c := range checkCounts(g.blocks) {
			f.Metric = append(f.Metric, counter(labelsOf(g, label("mode", c.Mode), label("verb", c.Verb), label("decision", c.Decision)), c.Count))
		}
	}
	return f
}

func counterFamily(name, help string) *dto.MetricFamily {
	name += "_total"
	return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum()}
}

func counter(labels []*dto.LabelPair, n int64) *dto.Metric {
	return &dto.Metric{Label: labels, Counter: &dto.Counter{Value: new(float64(n))}}
}
