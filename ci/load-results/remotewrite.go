package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/wait"
)

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
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
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
	for chunk := range slices.Chunk(streams, pushed) {
		var failed error
		_ = wait.ExponentialBackoffWithContext(
			ctx,
			wait.Backoff{Duration: cmp.Or(to.Pause, time.Second), Factor: 2, Steps: pushes},
			func(ctx context.Context) (bool, error) {
				var isRetryable bool
				isRetryable, failed = to.post(ctx, chunk)
				return !isRetryable, nil
			},
		)
		if failed = cmp.Or(failed, ctx.Err()); failed != nil {
			return fmt.Errorf("%s: %w (%d of %d series were taken before)", to.URL.Redacted(), failed, done, len(streams))
		}
		done += len(chunk)
	}
	return nil
}

func (to *Receiver) post(ctx context.Context, streams []*model.SampleStream) (isRetryable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		to.URL.String(),
		bytes.NewReader(s2.EncodeSnappy(nil, encodeWrite(streams))),
	)
	if err != nil {
		return false, err
	}
	req.Header = http.Header{
		"Content-Type":                      {"application/x-protobuf"},
		"Content-Encoding":                  {"snappy"},
		"X-Prometheus-Remote-Write-Version": {"0.1.0"},
		"User-Agent":                        {"authzconf"},
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
	answer := strings.TrimSpace(string(body))
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError,
		fmt.Errorf("it answers %s: %s%s", resp.Status, answer, pushAdvice(resp.StatusCode, answer))
}

func pushAdvice(status int, answer string) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ": give a token that it accepts (--bearer-token-file), or user and password in the URL"
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return ": Prometheus takes what is written at /api/v1/write if it was started with --web.enable-remote-write-receiver"
	case status == http.StatusBadRequest && strings.Contains(answer, "out of"):
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
