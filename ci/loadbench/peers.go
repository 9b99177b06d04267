package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

func parseFortio(out []byte) (r Result, err error) {
	var report struct {
		DurationHistogram struct {
			Count       int64
			Percentiles []struct{ Percentile, Value float64 }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return r, err
	}
	r.Requests = report.DurationHistogram.Count
	for _, p := range report.DurationHistogram.Percentiles {
		if p.Percentile == 99 {
			r.P99 = time.Duration(p.Value * float64(time.Second))
		}
	}
	return r, nil
}

func parseVegeta(out []byte) (r Result, err error) {
	var report struct {
		Requests  int64 `json:"requests"`
		Latencies struct {
			P99 int64 `json:"99th"`
		} `json:"latencies"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return r, err
	}
	return Result{Requests: report.Requests, P99: time.Duration(report.Latencies.P99)}, nil
}

var h2loadDone = regexp.MustCompile(`(\d+) succeeded`)

// parseH2load reads how many requests there were. It has no percentiles.
func parseH2load(out []byte) (r Result, err error) {
	m := h2loadDone.FindSubmatch(out)
	if m == nil {
		return r, errors.New("its output has no number of requests")
	}
	if r.Requests, err = strconv.ParseInt(string(m[1]), 10, 64); err != nil {
		return r, fmt.Errorf("its output: %w", err)
	}
	return r, nil
}
