package load

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/wait"

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

func openMetrics(r *run.Run) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range families(groupVariants(r)) {
		if _, err := expfmt.MetricFamilyToOpenMetrics(&out, f); err != nil {
			return nil, err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(&out)
	return out.Bytes(), err
}

// families are the metrics of groups of blocks. One of which there is nothing is left out.
func families(groups []variantBlocks, more ...*dto.LabelPair) (all []*dto.MetricFamily) {
	add := func(name, help string, kind dto.MetricType, each func(g variantBlocks, one func(m *dto.Metric, labels ...*dto.LabelPair))) {
		f := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		if kind == dto.MetricType_HISTOGRAM {
			f.Unit = new("seconds") // all that are
		}
		for _, g := range groups {
			each(g, func(m *dto.Metric, labels ...*dto.LabelPair) {
				m.Label = slices.Concat(labelsOf(g), labels, more)
				f.Metric = append(f.Metric, m)
			})
		}
		if len(f.Metric) > 0 {
			all = append(all, f)
		}
	}
	for _, h := range []struct {
		name, help string
		of         func(*run.Block) *histogram.Histogram
	}{
		{"latency", "From the intended send of a request to the end of its answer.", latencyOf},
		{"service", "From the actual send of a request to the end of its answer.", func(b *run.Block) *histogram.Histogram { return &b.Service }},
		{"lag", "From the intended to the actual send of a request.", func(b *run.Block) *histogram.Histogram { return &b.Lag }},
		{"webhook", "Latency of the authorization webhook, from receipt to answer.", webhookOf},
	} {
		add("authzconf_load_"+h.name+"_seconds", h.help, dto.MetricType_HISTOGRAM, func(g variantBlocks, one func(*dto.Metric, ...*dto.LabelPair)) {
			m := merged(g.blocks, h.of)
			one(&dto.Metric{Histogram: histogramOf(&m)})
		})
	}
	add("authzconf_load_requests_total", "Requests by what became of them at the generator.", dto.MetricType_COUNTER, func(g variantBlocks, one func(*dto.Metric, ...*dto.LabelPair)) {
		v := measureVariant(g)
		one(counter(v.Sent), label("state", "sent"))
		one(counter(v.Late), label("state", "late"))
		one(counter(v.Dropped), label("state", "dropped"))
		one(counter(v.Errors), label("state", "failed"))
	})
	add("authzconf_load_answers_total", "Answers by HTTP status, or class of error where there is none.", dto.MetricType_COUNTER, func(g variantBlocks, one func(*dto.Metric, ...*dto.LabelPair)) {
		statuses := measureVariant(g).Statuses
		for _, s := range slices.Sorted(maps.Keys(statuses)) {
			one(counter(statuses[s]), label("status", s))
		}
	})
	add("authzconf_load_access_reviews_total", "Access reviews that the authorizer received.", dto.MetricType_COUNTER, func(g variantBlocks, one func(*dto.Metric, ...*dto.LabelPair)) {
		counts := checkCounts(g.blocks)
		for _, c := range slices.SortedFunc(maps.Keys(counts), run.ReviewKind.Compare) {
			one(counter(counts[c]), label("mode", c.Mode), label("verb", c.Verb), label("decision", c.Decision))
		}
	})
	add("authzconf_load_cpu_seconds", "Processor time above idle.", dto.MetricType_GAUGE, func(g variantBlocks, one func(*dto.Metric, ...*dto.LabelPair)) {
		used := map[string]run.Duration{}
		for _, b := range g.blocks {
			for program, c := range b.Cost {
				used[program] += c.CPU - c.Idle
			}
		}
		for _, program := range slices.Sorted(maps.Keys(used)) {
			one(&dto.Metric{Gauge: &dto.Gauge{Value: new(time.Duration(used[program]).Seconds())}}, label("program", program))
		}
	})
	return all
}

// Streams are the metrics of each block at its end, and what happened in each of its seconds, for a time series database.
func Streams(r *run.Run) (streams []*model.SampleStream, err error) {
	name := r.Profile + " " + r.Started.UTC().Format(time.RFC3339)
	for i := range r.Blocks {
		b := &r.Blocks[i]
		g := variantBlocks{key: keyOf(b), blocks: []*run.Block{b}}
		more := []*dto.LabelPair{label("run", name), label("block", strconv.Itoa(i)), label("comparison", b.Comparison)}
		end := model.TimeFromUnixNano(b.Started.Add(time.Duration(b.Length)).UnixNano())
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: end}, families([]variantBlocks{g}, more...)...)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			streams = append(streams, &model.SampleStream{Metric: s.Metric, Values: []model.SamplePair{{Timestamp: s.Timestamp, Value: s.Value}}})
		}
		for _, second := range []struct {
			what string
			of   func(run.Second) int64
		}{
			{"sent", func(s run.Second) int64 { return s.Sent }},
			{"answered", func(s run.Second) int64 { return s.Done }},
			{"errors", func(s run.Second) int64 { return s.Errors }},
			{"reviews", func(s run.Second) int64 { return s.Reviews }},
		} {
			m := model.Metric{model.MetricNameLabel: "authzconf_load_per_second", "what": model.LabelValue(second.what)}
			for _, l := range append(labelsOf(g), more...) {
				m[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
			}
			stream := &model.SampleStream{Metric: m}
			at := model.TimeFromUnixNano(b.Started.UnixNano())
			for _, s := range b.Timeline {
				at = at.Add(time.Second)
				stream.Values = append(stream.Values, model.SamplePair{Timestamp: at, Value: model.SampleValue(second.of(s))})
			}
			if len(b.Timeline) > 0 { // a graph is not to go on with the last second
				stream.Values = append(stream.Values, model.SamplePair{Timestamp: at.Add(time.Second), Value: model.SampleValue(math.Float64frombits(staleNaN))})
				streams = append(streams, stream)
			}
		}
	}
	return streams, nil
}

// staleNaN is the value by which Prometheus knows that a series has ended (its package model/value).
const staleNaN = 0x7ff0000000000002

func counter(n int64) *dto.Metric { return &dto.Metric{Counter: &dto.Counter{Value: new(float64(n))}} }

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func labelsOf(g variantBlocks) []*dto.LabelPair {
	return []*dto.LabelPair{
		label("variant", g.key.variant), label("server", g.key.server), label("agents", strconv.Itoa(g.blocks[0].Agents)),
	}
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

// PerfData is the form that the performance dashboards of Kubernetes read, from k8s.io/kubernetes/test/e2e/perftype.
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
		all, webhook := together(g.blocks), merged(g.blocks, webhookOf)
		latencies("request_latency", "all", &all.Latency)
		for _, kind := range slices.Sorted(maps.Keys(all.Kinds)) {
			latencies("request_latency", kind, new(all.Kinds[kind]))
		}
		latencies("webhook_latency", "all", &webhook)
		if a := measureVariant(g); a.Sent > 0 {
			p.DataItems = append(p.DataItems, PerfDataItem{
				Data: map[string]float64{"PerRequest": a.Reviews.PerRequest.Estimate}, Unit: "reviews", Labels: labels("access_reviews", "all", a.Sent),
			})
		}
	}
	return p
}

func merged(blocks []*run.Block, of func(*run.Block) *histogram.Histogram) (m histogram.Histogram) {
	for _, b := range blocks {
		m.Merge(of(b))
	}
	return m
}

func webhookOf(b *run.Block) *histogram.Histogram { return &b.WebhookLatency }

// Receiver takes time series by Prometheus' protocol for remote write, version 1.0, which whatever stores metrics
// understands (https://prometheus.io/docs/specs/prw/remote_write_spec/).
type Receiver struct {
	URL *url.URL
	// Token is a bearer token, empty for none. A user and password may be in URL.
	Token string
	// Pause is how long to wait before sending again after 429 or 5xx, each time twice as long. The default is a second.
	Pause time.Duration
}

// ParseReceiver reads the URL of a receiver.
func ParseReceiver(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL to write to: expected such as http://localhost:9090/api/v1/write", text)
	}
	return u, nil
}

const (
	pushed = 2000
	pushes = 5
)

// Push sends series.
func (to *Receiver) Push(ctx context.Context, streams []*model.SampleStream) error {
	done := 0
	for some := range slices.Chunk(streams, pushed) {
		var failed error
		_ = wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: cmp.Or(to.Pause, time.Second), Factor: 2, Steps: pushes}, func(ctx context.Context) (bool, error) {
			var again bool
			again, failed = to.post(ctx, some)
			return !again, nil
		})
		if failed = cmp.Or(failed, ctx.Err()); failed != nil {
			return fmt.Errorf("%s: %w (%d of %d series were taken before)", to.URL.Redacted(), failed, done, len(streams))
		}
		done += len(some)
	}
	return nil
}

func (to *Receiver) post(ctx context.Context, streams []*model.SampleStream) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL.String(), bytes.NewReader(s2.EncodeSnappy(nil, encodeWrite(streams))))
	if err != nil {
		return false, err
	}
	req.Header = http.Header{
		"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}, "X-Prometheus-Remote-Write-Version": {"0.1.0"}, "User-Agent": {"authzconf"},
	}
	if to.Token != "" {
		req.Header.Set("Authorization", "Bearer "+to.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf("it cannot be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // for the message alone
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	said := strings.TrimSpace(string(body))
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError,
		fmt.Errorf("it answers %s: %s%s", resp.Status, said, pushAdvice(resp.StatusCode, said))
}

func pushAdvice(status int, said string) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ": give a token that it accepts (--bearer-token-file), or user and password in the URL"
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return ": Prometheus takes what is written at /api/v1/write if it was started with --web.enable-remote-write-receiver"
	case status == http.StatusBadRequest && strings.Contains(said, "out of"):
		return ": it has this run already, or newer samples; older ones it takes only within storage.tsdb.out_of_order_time_window of its configuration"
	}
	return ""
}

// encodeWrite is a prometheus.WriteRequest: series (1), of labels (1) in order of their names and samples (2).
func encodeWrite(streams []*model.SampleStream) (request []byte) {
	message := func(to []byte, field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), content)
	}
	for _, s := range streams {
		var series []byte
		for _, name := range slices.Sorted(maps.Keys(s.Metric)) {
			series = message(series, 1, message(message(nil, 1, []byte(name)), 2, []byte(s.Metric[name])))
		}
		for _, v := range s.Values {
			sample := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(float64(v.Value)))
			sample = protowire.AppendVarint(protowire.AppendTag(sample, 2, protowire.VarintType), uint64(v.Timestamp))
			series = message(series, 2, sample)
		}
		request = message(request, 1, series)
	}
	return request
}
