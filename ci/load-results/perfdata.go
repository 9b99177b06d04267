package main

import (
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

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

// makePerfData returns the latencies and reviews of a run. tool is the version of authzconf.
func makePerfData(r *run.Run, tool string) PerfData {
	p := PerfData{Version: "v1", DataItems: []PerfDataItem{}, Labels: map[string]string{"profile": r.Profile, "tool": tool}}
	for _, g := range judge.GroupVariants(r) {
		labels := func(metric, kind string, count int64) map[string]string {
			return map[string]string{
				"Metric": metric, "Verb": kind, "Count": strconv.FormatInt(count, 10),
				"variant": g.Key.Variant, "server": g.Key.Server, "agents": strconv.Itoa(g.Blocks[0].Agents),
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
		all, webhook := judge.MergeBlocks(g.Blocks), judge.MergeHistograms(g.Blocks, webhookOf)
		latencies("request_latency", "all", &all.Latency)
		for _, kind := range slices.Sorted(maps.Keys(all.Kinds)) {
			latencies("request_latency", kind, new(all.Kinds[kind]))
		}
		latencies("webhook_latency", "all", &webhook)
		if a := judge.MeasureVariant(g, false); a.Sent > 0 {
			p.DataItems = append(p.DataItems, PerfDataItem{
				Data:   map[string]float64{"PerRequest": a.Reviews.PerRequest.Estimate},
				Unit:   "reviews",
				Labels: labels("access_reviews", "all", a.Sent),
			})
		}
	}
	return p
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
