package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
)

// pushedRun has all that is pushed.
func pushedRun() run.Run {
	r := smallRun()
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Timeline = slices.Repeat([]run.Second{{Sent: b.Sent / 10, Done: b.Sent / 10, Reviews: countReviews(b) / 10}}, 10)
	}
	return r
}

func streamsOf(t *testing.T, r run.Run) []*model.SampleStream {
	t.Helper()
	streams, err := makeStreams(&r)
	if err != nil {
		t.Fatal(err)
	}
	return streams
}

func TestStreams(t *testing.T) {
	r := pushedRun()
	seen := map[string]bool{}
	var reviews, perSecond float64
	for _, s := range streamsOf(t, r) {
		if key := s.Metric.String(); seen[key] {
			t.Errorf("%s is there twice", key)
		} else {
			seen[key] = true
		}
		for _, name := range []model.LabelName{"run", "variant", "server", "block"} {
			if s.Metric[name] == "" {
				t.Errorf("%s has no %s", s.Metric, name)
			}
		}
		if s.Metric[model.MetricNameLabel] == "authzconf_load_access_reviews_total" {
			reviews += float64(s.Values[0].Value)
		}
		if s.Metric["what"] == "reviews" {
			last := len(s.Values) - 1
			if last != 10 || math.Float64bits(float64(s.Values[last].Value)) != staleNaN {
				t.Errorf("%s ends with %v, the %d. value", s.Metric, s.Values[last], last+1)
			}
			perSecond += float64(s.Values[0].Value)
		}
	}
	var want, second int64
	for i := range r.Blocks {
		want, second = want+countReviews(&r.Blocks[i]), second+countReviews(&r.Blocks[i])/10
	}
	if reviews != float64(want) || perSecond != float64(second) {
		t.Errorf("%g reviews, %g in first seconds, expected %d and %d", reviews, perSecond, want, second)
	}
}

func TestPushErrors(t *testing.T) {
	for _, c := range []struct {
		status     int
		says, want string
	}{
		{200, "", ""},
		{204, "", ""},
		{400, "out of bounds", "out_of_order_time_window"},
		{400, "label name is not good", "label name is not good"},
		{401, "who are you", "--bearer-token-file"},
		{404, "", "--web.enable-remote-write-receiver"},
		{503, "not now", "503 Service Unavailable: not now"},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			sent, _ := io.ReadAll(r.Body)
			plain, err := s2.Decode(nil, sent)
			if err != nil || !bytes.Contains(plain, []byte("authzconf_load_latency_seconds_bucket")) ||
				r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("received %d bytes, %v, %v", len(plain), err, r.Header)
			}
			http.Error(w, c.says, c.status)
		}))
		to, err := ParseReceiver(strings.Replace(server.URL, "//", "//me:hidden@", 1))
		if err != nil {
			t.Fatal(err)
		}
		r := &Receiver{URL: to, Token: "secret", Pause: time.Millisecond}
		err = r.Push(context.Background(), streamsOf(t, pushedRun())[:300])
		if (err == nil) != (c.want == "") ||
			err != nil &&
				(!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%d %s: %v", c.status, c.says, err)
		}
		if want := map[bool]int{true: pushes, false: 1}[c.status == 503]; asked != want {
			t.Errorf("%d was asked %d times, expected %d", c.status, asked, want)
		}
		server.Close()
		err = r.Push(context.Background(), streamsOf(t, pushedRun())[:1])
		if err == nil || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("nobody is there: %v", err)
		}
	}
	for _, text := range []string{"", "localhost:9090", "ftp://host/", "http://", "http://a b/"} {
		if u, err := ParseReceiver(text); err == nil {
			t.Errorf("%q is %v", text, u)
		}
	}
}

// panel is what a test needs of a panel of the dashboard.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "load-grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d.Panels
}

// What the dashboard asks for is written.
func TestDashboard(t *testing.T) {
	written := map[string]bool{}
	for _, s := range streamsOf(t, pushedRun()) {
		written[string(s.Metric[model.MetricNameLabel])] = true
	}
	panels := dashboard(t)
	if len(panels) < 5 {
		t.Fatalf("%d panels", len(panels))
	}
	for _, p := range panels {
		for _, target := range p.Targets {
			names := regexp.MustCompile(`authzconf_[a-z_]+`).FindAllString(target.Expr, -1)
			if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !written[name] }) {
				t.Errorf("%s: %s asks for %q", p.Title, target.Expr, names)
			}
		}
	}
}

// prometheus starts the real program, which is in Debian's package of that name; ci/prometheus fetches it for the night.
func prometheus(t *testing.T, settings string) *url.URL {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: put it into the PATH, PATH=$(ci/prometheus):$PATH")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(
		t.Context(),
		program,
		"--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address,
		"--web.enable-remote-write-receiver",
		"--web.console.templates="+dir,
		"--web.console.libraries="+dir,
	)
	said := &bytes.Buffer{}
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	base := &url.URL{Scheme: "http", Host: address}
	for range 600 {
		if resp, err := http.Get(base.String() + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return base
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("Prometheus is not ready: %s", said)
	return nil
}

// TestPrometheus writes to a real Prometheus, and asks it what the dashboard asks.
func TestPrometheus(t *testing.T) {
	base := prometheus(t, "")
	r := pushedRun()
	streams := streamsOf(t, r)
	to := &Receiver{URL: base.JoinPath("/api/v1/write")}
	if err := to.Push(t.Context(), streams); err != nil {
		t.Fatal(err)
	}
	last := &r.Blocks[len(r.Blocks)-1]
	from, until := r.Blocks[0].Started, last.Started.Add(time.Duration(last.Length))
	ask := func(expr string, instant bool) []*model.Sample {
		expr = strings.NewReplacer("$run", ".+", "$__range", "2h").Replace(expr)
		q := url.Values{"query": {expr}, "time": {unix(until)}}
		path := "/api/v1/query"
		if !instant {
			q, path = url.Values{"query": {expr}, "start": {unix(from)}, "end": {unix(until)}, "step": {"5"}}, "/api/v1/query_range"
		}
		return answerOf(t, base.JoinPath(path).String()+"?"+q.Encode())
	}
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			got := ask(target.Expr, p.Type != "timeseries")
			if len(got) < 2 ||
				slices.ContainsFunc(got, func(s *model.Sample) bool { return math.IsNaN(float64(s.Value)) }) {
				t.Errorf("%s: %s has %v", p.Title, target.Expr, got)
			}
		}
	}
	for _, g := range judge.GroupVariants(&r) {
		v, reviews := judge.MeasureVariant(g, false), int64(0)
		for _, b := range g.Blocks {
			reviews += countReviews(b)
		}
		of := fmt.Sprintf(`{variant=%q,server=%q}[2h]))`, v.Variant, v.Server)
		got := ask("sum(last_over_time(authzconf_load_access_reviews_total"+of, true)
		if len(got) != 1 || got[0].Value != model.SampleValue(reviews) {
			t.Errorf("%s: %v reviews, counted %d", v.Name, got, reviews)
		}
		// Buckets are four to an octave.
		got = ask("histogram_quantile(0.99, sum by (le) (last_over_time(authzconf_load_latency_seconds_bucket"+of+")", true)
		if len(got) != 1 || math.Abs(math.Log2(1000*float64(got[0].Value)/v.P99.Milliseconds)) > 0.26 {
			t.Errorf("%s: a p99 of %v, measured %g ms", v.Name, got, v.P99.Milliseconds)
		}
	}

	// What it has already, and what is older by a day, it takes if it was told to.
	before := pushedRun()
	for i := range before.Blocks {
		before.Blocks[i].Started = before.Blocks[i].Started.Add(-24 * time.Hour)
	}
	patient := &Receiver{URL: prometheus(t, "storage: {tsdb: {out_of_order_time_window: 48h}}").JoinPath("/api/v1/write")}
	for _, list := range [][]*model.SampleStream{streams, streams, streamsOf(t, before)} {
		if err := patient.Push(t.Context(), list); err != nil {
			t.Error(err)
		}
	}
	for _, list := range [][]*model.SampleStream{streams, streamsOf(t, before)} {
		if err := to.Push(t.Context(), list); err == nil || !strings.Contains(err.Error(), "out_of_order_time_window") {
			t.Errorf("what it has, and a run of the day before: %v", err)
		}
	}
	to.URL = base.JoinPath("/api/v1/wrong")
	if err := to.Push(t.Context(), streams); err == nil || !strings.Contains(err.Error(), "--web.enable-remote-write-receiver") {
		t.Errorf("a wrong path: %v", err)
	}
}

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// answerOf is what Prometheus answers: samples, or the first sample of each curve.
func answerOf(t *testing.T, address string) (samples []*model.Sample) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric model.Metric
				Value  *model.SamplePair
				Values []model.SamplePair
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %s, %v", address, body, err)
	}
	for _, one := range answer.Data.Result {
		if one.Value == nil {
			one.Value = &one.Values[0]
		}
		samples = append(samples, &model.Sample{Metric: one.Metric, Value: one.Value.Value})
	}
	return samples
}
