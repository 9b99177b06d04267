package load

import (
	"strconv"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
)

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
