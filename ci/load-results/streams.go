package main

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
)

// makeStreams returns the metrics of each block at its end, and what happened in each of its seconds, for a time series
// database.
func makeStreams(r *run.Run) (streams []*model.SampleStream, err error) {
	name := r.Profile + " " + r.Started.UTC().Format(time.RFC3339)
	for i := range r.Blocks {
		b := &r.Blocks[i]
		g := judge.VariantBlocks{Key: judge.KeyOf(b), Blocks: []*run.Block{b}}
		more := []*dto.LabelPair{
			label("run", name),
			label("block", strconv.Itoa(i)),
			label("comparison", strings.Join(seq.Map(b.Uses, func(u run.Use) string { return u.Comparison }), ",")),
		}
		end := model.TimeFromUnixNano(b.Started.Add(time.Duration(b.Length)).UnixNano())
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: end}, families([]judge.VariantBlocks{g}, more...)...)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			streams = append(streams,
				&model.SampleStream{Metric: s.Metric, Values: []model.SamplePair{{Timestamp: s.Timestamp, Value: s.Value}}},
			)
		}
		streams = append(streams, secondsOf(b, append(labelsOf(g), more...))...)
	}
	return streams, nil
}

// secondsOf returns what happened in each second of a block.
func secondsOf(b *run.Block, labels []*dto.LabelPair) (streams []*model.SampleStream) {
	if len(b.Timeline) == 0 {
		return nil
	}
	for _, second := range []struct {
		what  string
		count func(run.Second) int64
	}{
		{"sent", func(s run.Second) int64 { return s.Sent }},
		{"answered", func(s run.Second) int64 { return s.Done }},
		{"errors", func(s run.Second) int64 { return s.Errors }},
		{"reviews", func(s run.Second) int64 { return s.Reviews }},
	} {
		m := model.Metric{model.MetricNameLabel: "authzconf_load_per_second", "what": model.LabelValue(second.what)}
		for _, l := range labels {
			m[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
		}
		stream := &model.SampleStream{Metric: m}
		at := model.TimeFromUnixNano(b.Started.UnixNano())
		for _, s := range b.Timeline {
			at = at.Add(time.Second)
			stream.Values = append(stream.Values, model.SamplePair{Timestamp: at, Value: model.SampleValue(second.count(s))})
		}
		// A graph is not to go on with the last second.
		stream.Values = append(stream.Values,
			model.SamplePair{Timestamp: at.Add(time.Second), Value: model.SampleValue(math.Float64frombits(staleNaN))},
		)
		streams = append(streams, stream)
	}
	return streams
}

// staleNaN is the value by which Prometheus knows that a series has ended (its package model/value).
const staleNaN = 0x7ff0000000000002
