package recorder

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// post sends reviews of a user and fails the test unless all are answered.
func post(t *testing.T, c *http.Client, url, user string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		if code, _, err := send(c, http.MethodPost, url, strings.NewReader(numbered(user, n))); err != nil || code != http.StatusOK {
			t.Errorf("%d, %v", code, err)
		}
	}
}

// summarize returns number, point, user and path of each record.
func summarize(records []Record) string {
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%d %s %s %s", r.Seq, r.Point, r.Spec.User, r.Spec.NonResourceAttributes.Path))
	}
	return strings.Join(out, ", ")
}

func TestSince(t *testing.T) {
	r := startRecorder(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	post(t, c, r.URL(Front), "a", 1)
	post(t, c, r.URL(Back), "a", 1)
	probe := spec(asV1, question+`,"user":"a","extra":{"authzconf.dev/probe":[""]}`)
	if code, _, err := send(c, http.MethodPost, r.URL(Front), strings.NewReader(probe)); err != nil || code != http.StatusOK {
		t.Fatalf("%d, %v", code, err)
	}
	mark := r.Mark()
	post(t, c, r.URL(Front), "b", 2)
	if _, _, err := send(c, http.MethodPost, r.URL(Front), strings.NewReader("{")); err != nil {
		t.Fatal(err)
	}
	post(t, c, r.URL(Front), "c", 3)
	for _, tc := range []struct {
		mark  uint64
		users []string
		want  string
	}{
		{0, nil, "1 front a /1, 2 back a /1, 4 front b /2, 6 front c /3"},
		{1, nil, "2 back a /1, 4 front b /2, 6 front c /3"},
		{mark, nil, "4 front b /2, 6 front c /3"},
		{mark, []string{"a"}, ""},
		{0, []string{"c", "a"}, "1 front a /1, 2 back a /1, 6 front c /3"},
		{r.Mark(), nil, ""},
		{1000, nil, ""},
	} {
		if got := summarize(r.Since(tc.mark, tc.users...)); got != tc.want {
			t.Errorf("Since(%d, %q): %s; want %s", tc.mark, tc.users, got, tc.want)
		}
	}
	if mark != 3 || r.Mark() != 6 {
		t.Errorf("marks %d and %d", mark, r.Mark())
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "cannot be read: 1, the first because unexpected end") {
		t.Errorf("what it received that is not a review: %v", err)
	}

	r.Reset()
	if len(r.Since(0)) != 0 {
		t.Error("Reset left something")
	}
	post(t, c, r.URL(Back), "d", 4)
	if got := summarize(r.Since(0)); got != "7 back d /4" {
		t.Errorf("after Reset: %s", got)
	}
}

// TestFlood sends reviews as fast as they are answered and accounts for each:
// none is lost, none is told twice, those of a connection stay in the order in
// which they were sent, and readers at the same time disturb nothing.
func TestFlood(t *testing.T) {
	const conns = 8
	each := 2500
	if testing.Short() {
		each = 250
	}
	r := startRecorder(t, Options{})
	var readers, senders sync.WaitGroup
	var over atomic.Bool
	readers.Go(func() {
		for mark := uint64(0); !over.Load(); {
			for _, rec := range r.Since(mark, "conn-0", "conn-1") {
				mark = rec.Seq
			}
			_ = r.Mark()
			time.Sleep(time.Millisecond) // two cores have to do for everybody
		}
	})
	points := []Point{Front, Back}
	for i := range conns {
		c := peer(t, r.Kubeconfig(Front), i%2 == 0)
		senders.Go(func() {
			for n := range each {
				post(t, c, r.URL(points[n%2]), fmt.Sprintf("conn-%d", i), n)
			}
		})
	}
	senders.Wait()
	over.Store(true)
	readers.Wait()

	all := r.Since(0)
	if len(all) != conns*each || r.Mark() != uint64(len(all)) {
		t.Fatalf("%d records, mark %d; %d were sent", len(all), r.Mark(), conns*each)
	}
	next := map[string]int{}
	for i, rec := range all {
		if rec.Seq != uint64(i+1) ||
			i > 0 && rec.At.Before(all[i-1].At) {
			t.Fatalf("record %d has seq %d, at %v after %v", i, rec.Seq, rec.At, all[max(i-1, 0)].At)
		}
		user := rec.Spec.User
		n := next[user]
		if want := fmt.Sprint("/", n); rec.Spec.NonResourceAttributes.Path != want || rec.Point != points[n%2] {
			t.Fatalf("of %s came %s at %s, want %s", user, rec.Spec.NonResourceAttributes.Path, rec.Point, want)
		}
		next[user]++
	}
	for i := range conns {
		if got := len(r.Since(0, fmt.Sprintf("conn-%d", i))); got != each {
			t.Errorf("%d records of connection %d, %d were sent", got, i, each)
		}
	}
}

// TestStreams sends over one connection many reviews at a time, as a kube-apiserver
// does, more of them than the streams that a connection may have.
func TestStreams(t *testing.T) {
	r := startRecorder(t, Options{})
	c := peer(t, r.Kubeconfig(Front), true)
	post(t, c, r.URL(Front), "first", 0)
	const users, each = 300, 5
	var senders sync.WaitGroup
	for u := range users {
		senders.Go(func() {
			for n := range each {
				post(t, c, r.URL(Front), fmt.Sprintf("user-%d", u), n)
			}
		})
	}
	senders.Wait()
	for u := range users {
		got := r.Since(1, fmt.Sprintf("user-%d", u))
		if len(got) != each {
			t.Fatalf("%d records of user %d", len(got), u)
		}
		for n, rec := range got {
			if got := rec.Spec.NonResourceAttributes.Path; got != fmt.Sprint("/", n) {
				t.Errorf("record %d of user %d is %s", n, u, got)
			}
		}
	}
}
