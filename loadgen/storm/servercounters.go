package storm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/verdicts"
)

var scraped = []string{
	server.ProcessStartMetric,
	authorizationAttempts,
	webhookEvaluations,
	flowControl + "rejected_requests_total",
	flowControl + "dispatched_requests_total",
	flowControl + "request_wait_duration_seconds",
	decisions,
	"go_memstats_alloc_bytes_total",
	heapSys,
	"go_gc_duration_seconds",
	cpuSeconds,
	server.ObjectivesMetric,
}

// These are the API server's own counters by which a block is measured. Access reviews are counted in reviews.go.
const (
	authorizationAttempts = verdicts.AuthorizationsMetric
	webhookEvaluations    = "apiserver_authorization_webhook_evaluations_total"
	flowControl           = "apiserver_flowcontrol_"
	decisions             = "apiserver_authorization_decisions_total"
)

type counters map[string]sample

type sample struct {
	family string
	labels model.Metric
	value  float64
}

// heapSys is also a gauge of every Go program. It is the largest size of the heap, because that is never given back.
const heapSys = "go_memstats_heap_sys_bytes"

// find returns a sample of a family. isThere reports whether the family has one.
func (c counters) find(family string) (found sample, isThere bool) {
	for _, s := range c {
		if s.family == family {
			return s, true
		}
	}
	return found, false
}

// began returns when the server's process began, or zero if it does not report it.
func (c counters) began() time.Time {
	if s, there := c.find(server.ProcessStartMetric); there {
		return time.UnixMilli(int64(1000 * s.value)).UTC()
	}
	return time.Time{}
}

// readCounters returns everything that was scraped, except for the buckets of histograms. It keeps the durations of the
// requests that agents send with their buckets.
func readCounters(families map[string]*dto.MetricFamily) (counters, error) {
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	out := counters{}
	for _, s := range samples {
		value := sample{string(s.Metric[model.MetricNameLabel]), s.Metric, float64(s.Value)}
		isOther := strings.HasPrefix(value.family, server.ObjectivesMetric) && !value.isServed()
		isBucket := strings.HasSuffix(value.family, "_bucket") && !value.isServed()
		if !isOther && !isBucket {
			out[s.Metric.String()] = value
		}
	}
	return out, err
}

func (c counters) add(other counters) {
	for key, s := range other {
		if before := c[key].value; s.family == server.ProcessStartMetric {
			s.value = max(s.value, before) // the newest process
		} else {
			s.value += before
		}
		c[key] = s
	}
}

func (c counters) since(before counters) (list []sample) {
	for key, s := range c {
		if s.family != heapSys {
			s.value -= before[key].value
		}
		if s.value != 0 {
			list = append(list, s)
		}
	}
	return list
}

// read returns what all API servers have counted so far. It also works when the run is over, because the last block has
// to be complete.
func (s *controlPlane) read() (counters, error) {
	all := counters{}
	all.add(s.countedBefore)
	for _, admin := range s.each {
		c, err := scrapeUnshared(context.Background(), admin, scraped...)
		if err != nil {
			return nil, err
		}
		all.add(c)
	}
	if len(s.each) > 0 {
		return all, nil
	}
	for _, t := range s.targets {
		c, err := read(t, scraped)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all.add(c)
	}
	return all, nil
}

// read returns what an API server has counted in some metric families; nothing in none.
func read(t *server.Server, metrics []string) (counters, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	families, err := t.Scrape(ctx, metrics...)
	if err != nil {
		return nil, err
	}
	return readCounters(families)
}
