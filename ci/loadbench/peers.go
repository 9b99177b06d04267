package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func parseFortio(_ Work, out []byte) (r Result, err error) {
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

var h2loadDone = regexp.MustCompile(`(\d+) succeeded`)

// parseH2load reads how many requests there were. h2load has no percentiles: the p99 is computed from its log, a
// line for each request with its duration in µs.
func parseH2load(w Work, out []byte) (r Result, err error) {
	m := h2loadDone.FindSubmatch(out)
	if m == nil {
		return r, errors.New("its output has no number of requests")
	}
	if r.Requests, err = strconv.ParseInt(string(m[1]), 10, 64); err != nil {
		return r, fmt.Errorf("its output: %w", err)
	}
	if w.Log == "" {
		return r, nil
	}
	data, err := os.ReadFile(w.Log)
	if err != nil {
		return r, err
	}
	var took []int64
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return r, fmt.Errorf("its log: %q, expected a start, a status and a duration", line)
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return r, fmt.Errorf("its log: %w", err)
		}
		took = append(took, us)
	}
	if len(took) == 0 {
		return r, errors.New("its log is empty")
	}
	slices.Sort(took)
	r.P99 = time.Duration(took[(99*len(took)+99)/100-1]) * time.Microsecond
	return r, nil
}
