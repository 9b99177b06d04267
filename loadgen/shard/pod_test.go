package shard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/run"
)

// writeFolder writes Secrets as a pod finds them.
func writeFolder(t *testing.T, secrets []*corev1.Secret) string {
	t.Helper()
	folder := t.TempDir()
	for _, s := range secrets {
		for name, data := range s.Data {
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

// TestPlan checks that a pod reads from Secrets what was put into them, even if many are needed, and that each fits
// into an object of etcd.
func TestPlan(t *testing.T) {
	job := jobs(t, 1, func(http.ResponseWriter, *http.Request) {})[0]
	random := make([]string, 40_000) // which does not compress
	for i := range random {
		random[i] = rand.Text() + rand.Text()
	}
	job.Tokens["other"] = [][]string{random}
	secrets, err := writePlan(job, "n", "storm")
	if err != nil {
		t.Fatal(err)
	}
	if len(secrets) < 3 {
		t.Errorf("%d Secrets", len(secrets))
	}
	for _, s := range secrets {
		if data, _ := json.Marshal(s); len(data) > 1<<20 {
			t.Errorf("%s has %d bytes", s.Name, len(data))
		}
	}
	read, err := readPlan(writeFolder(t, secrets))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(job)
	if got, _ := json.Marshal(read); !bytes.Equal(got, want) {
		t.Error("the job that was read is another")
	}
	if _, err := readPlan(t.TempDir()); err == nil {
		t.Error("a folder without a job")
	}
}

// listenTo returns the messages of a shard's log.
func listenTo(log io.Reader) <-chan message {
	said := make(chan message, 2)
	go func() {
		defer close(said)
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 2*maxLogBytes)
		for lines.Scan() {
			var m message
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				said <- m
			}
		}
	}()
	return said
}

// startPod runs what a pod with an index does until ctx ends. Its log ends with it.
func startPod(ctx context.Context, o Order, index, folder string) (said <-chan message, ended <-chan error) {
	text, _ := json.Marshal(o)
	log, out := io.Pipe()
	end := make(chan error, 1)
	go func() {
		end <- runPod(ctx, string(text), index, folder, out)
		_ = out.Close()
	}()
	return listenTo(log), end
}

// TestPodsAreOne checks that pods that have their order from their environment together count what one process counts,
// report by how much their clocks differ, and stay until they are told to end.
func TestPodsAreOne(t *testing.T) {
	list := jobs(t, 2, func(http.ResponseWriter, *http.Request) {})
	secrets, err := writePlan(list[0], "n", "storm")
	if err != nil {
		t.Fatal(err)
	}
	folder := writeFolder(t, secrets)
	o := order()
	o.Start = time.Now().Add(3 * time.Second)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var blocks []*run.Block
	var ends []<-chan error
	for _, index := range []string{"0", "1"} {
		said, ended := startPod(ctx, o, index, folder)
		ready, counted := <-said, <-said
		if ready.Ready == nil || ready.Ready.Offset.Abs() > time.Second || ready.Ready.Uncertainty > MaxUncertainty {
			t.Fatalf("it says first %+v", ready)
		}
		b, err := readBlock(counted.Block)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
		select {
		case err := <-ended:
			t.Fatalf("it has ended by itself: %v", err)
		default:
		}
		ends = append(ends, ended)
		o.Start = time.Now().Add(3 * time.Second)
	}
	end()
	for _, ended := range ends {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	whole := merge(blocks)
	one, err := NewWorker(jobs(t, 1, func(http.ResponseWriter, *http.Request) {})[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Close() }()
	want, err := one.Block(t.Context(), order())
	if err != nil {
		t.Fatal(err)
	}
	if whole.Planned != want.Planned || whole.Sent != want.Planned || whole.Answers["200"] != want.Planned ||
		whole.Latency.Count() != want.Planned {
		t.Errorf("planned %d, sent %d, answers %v; one process plans %d", whole.Planned, whole.Sent, whole.Answers, want.Planned)
	}
}

// TestPodRefuses checks that a pod that cannot do its part says why, and never returns a part as the whole.
func TestPodRefuses(t *testing.T) {
	list := jobs(t, 1, func(http.ResponseWriter, *http.Request) {})
	secrets, err := writePlan(list[0], "n", "storm")
	if err != nil {
		t.Fatal(err)
	}
	folder := writeFolder(t, secrets)
	late := order()
	late.Start = time.Now().Add(-time.Second)
	_, ended := startPod(t.Context(), late, "0", folder)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "after the block was to start") {
		t.Errorf("too late: %v", err)
	}
	_, ended = startPod(t.Context(), order(), "", folder)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), IndexVariable) {
		t.Errorf("no index: %v", err)
	}
	told := order()
	told.Start = time.Now().Add(5 * time.Second)
	ctx, end := context.WithCancel(t.Context())
	said, ended := startPod(ctx, told, "0", folder)
	<-said
	end()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "told to end while the block ran") {
		t.Errorf("told to end: %v", err)
	}
	if m, isThere := <-said; isThere {
		t.Errorf("told to end, and it says %+v", m)
	}
}

// TestCompareClock checks that the end of a second is found, whatever is asked, and that a server whose clock stands is
// given up.
func TestCompareClock(t *testing.T) {
	ahead := 2500 * time.Millisecond
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	clock, err := compareClock(t.Context(), &rest.Config{Host: s.URL})
	if err != nil || clock.Uncertainty > MaxUncertainty || (clock.Offset+ahead).Abs() > clock.Uncertainty+MaxOffset {
		t.Errorf("%s ± %s, %v", clock.Offset, clock.Uncertainty, err)
	}
	stands := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
	}))
	defer stands.Close()
	_, err = compareClock(t.Context(), &rest.Config{Host: stands.URL})
	if err == nil || !strings.Contains(err.Error(), "has ended within") {
		t.Errorf("a clock that stands: %v", err)
	}
}
