package auditlog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/engine/auditlog"
)

const (
	plain   = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"p","stage":"ResponseComplete","requestURI":"/version","verb":"get","user":{"username":"u"}}`
	as      = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","stage":"ResponseComplete","requestURI":"/version","verb":"get","user":{"username":"u"},"impersonatedUser":{"username":"alice"}}`
	started = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","stage":"ResponseStarted","requestURI":"/version","verb":"get","user":{"username":"u"},"impersonatedUser":{"username":"alice"}}`
	other   = `{"auditID":"b","impersonatedUser":{"username":"bob"},"user":{"username":"u"},"verb":"get","requestURI":"/version","stage":"Panic","apiVersion":"audit.k8s.io/v1","kind":"Event"}`
	refused = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"r","stage":"ResponseComplete","requestURI":"/version","verb":"get","user":{"username":"u"},"responseStatus":{"code":403,"message":"users \"alice\" is forbidden: User \"u\" cannot impersonate resource"}}`
	// says has the word in a field of the client's own.
	says = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"s","stage":"ResponseComplete","requestURI":"/version","verb":"get","user":{"username":"u"},"userAgent":"impersonatedUser cannot impersonate"}`
)

// item is an event within a list, which may go without kind.
func item(line string) string {
	return strings.Replace(line, `"kind":"Event","apiVersion":"audit.k8s.io/v1",`, "", 1)
}

type reading struct {
	stats auditlog.Stats
	users []string // who was impersonated, once a request
}

func read(t *testing.T, in io.Reader) reading {
	t.Helper()
	var got reading
	r := &auditlog.Reader{Each: func(e *auditv1.Event, again bool) error {
		if !again {
			got.users = append(got.users, e.ImpersonatedUser.Username)
		}
		return nil
	}}
	if err := r.Read("log", in); err != nil {
		t.Fatal(err)
	}
	got.stats = r.Stats()
	return got
}

func TestRead(t *testing.T) {
	list := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + item(plain) + "," + item(as) + "," + other + `]}`
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(list), "", "  "); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, log                     string
		events, again, refused, spoil int64
		users, bad                    []string
	}{
		{name: "nothing"},
		{name: "empty lines", log: "\n\r\n  \n"},
		{name: "nobody impersonates", log: plain + "\n" + says + "\n", events: 2},
		{name: "impersonations, the last line without end", log: plain + "\n" + as + "\n" + other, events: 3, users: []string{"alice", "bob"}},
		{name: "carriage returns", log: plain + "\r\n" + as + "\r\n", events: 2, users: []string{"alice"}},
		{name: "another stage, and the same again", log: started + "\n" + as + "\n" + as + "\n", events: 3, again: 2, users: []string{"alice"}},
		{
			name: "a client that repeats the ID of its request hides nothing",
			log:  as + "\n" + strings.ReplaceAll(as, "/version", "/healthz") + "\n", events: 2, users: []string{"alice", "alice"},
		},
		{name: "refused", log: refused + "\n" + refused + "\n" + as, events: 3, refused: 1, users: []string{"alice"}},
		{name: "cut off", log: plain + "\n" + as[:90] + "\n" + as, events: 2, users: []string{"alice"}, bad: []string{"log:2 cut off: the line does not end with }"}},
		{name: "foreign", log: "I0102 klog\n{\"a\":1}\n[]\n" + as, events: 1, users: []string{"alice"}, bad: []string{
			"log:1 not a JSON object", "log:2 JSON, but not an event of audit.k8s.io", "log:3 not a JSON object",
		}},
		{name: "another API", log: strings.ReplaceAll(as, "audit.k8s.io", "events.example"), bad: []string{`log:1 not an audit event but kind "Event" of "events.example/v1"`}},
		{name: "broken within", log: strings.Replace(as, `"verb":`, `"verb"`, 1), bad: []string{"log:1 not JSON: invalid character '\"' after object key"}},
		{name: "without a stage", log: strings.Replace(as, `"stage":"ResponseComplete",`, "", 1), bad: []string{"log:1 an audit event without stage, verb, requestURI or user"}},
		{name: "a list on a line", log: plain + "\n" + list + "\n" + refused, events: 5, refused: 1, users: []string{"alice", "bob"}},
		{name: "a list on many lines, and another", log: pretty.String() + "\n" + strings.ReplaceAll(pretty.String(), "alice", "carol"), events: 6, again: 2, users: []string{"alice", "bob"}},
		{name: "a list that is cut off", log: pretty.String()[:pretty.Len()-40], events: 2, users: []string{"alice"}, bad: []string{"log:1#3 an EventList that is cut off or not JSON: unexpected EOF"}},
		{name: "a list with something else", log: strings.Replace(pretty.String(), `"kind": "Event"`, `"kind": "Pod"`, 1), events: 2, users: []string{"alice"}, bad: []string{`log:1#3 not an audit event but kind "Pod" of "audit.k8s.io/v1"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(c.log), iotest.HalfReader(strings.NewReader(c.log))} {
				got := read(t, in)
				var bad []string
				for _, b := range got.stats.FirstBad {
					at := fmt.Sprintf("%s:%d", b.File, b.Line)
					if b.Item > 0 {
						at += fmt.Sprintf("#%d", b.Item)
					}
					bad = append(bad, at+" "+b.Why)
				}
				if got.stats.Events != c.events || got.stats.Repeated != c.again || got.stats.Refused != c.refused ||
					got.stats.Bad != int64(len(c.bad)) ||
					got.stats.Bytes != int64(len(c.log)) {
					t.Errorf("got %+v", got.stats)
				}
				if diff := cmp.Diff(c.users, got.users); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(c.bad, bad); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// Lines that lie across the ends of chunks are found like others, and the counts are those of decoding every line.
func TestReadLikeDecodingEveryLine(t *testing.T) {
	var log bytes.Buffer
	want, err := sample{size: 5 << 20, perMille: 30, seed: 7}.write(&log)
	if err != nil {
		t.Fatal(err)
	}
	lines, impersonated := int64(0), 0
	for line := range bytes.Lines(log.Bytes()) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if lines++; e.ImpersonatedUser != nil {
			impersonated++
		}
	}
	got := read(t, bytes.NewReader(log.Bytes()))
	if got.stats.Events != lines || len(got.users) != want || want != impersonated || got.stats.Bad != 0 {
		t.Errorf(
			"%d events, %d impersonate; decoded %d and %d, written %d; %d bad",
			got.stats.Events,
			len(got.users),
			lines,
			impersonated,
			want,
			got.stats.Bad,
		)
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", 17<<20)
	got := read(t, strings.NewReader(as+"\n"+long+"\n"+other+"\n"))
	if len(got.users) != 2 || got.stats.Bad != 1 || got.stats.FirstBad[0].Line != 2 {
		t.Errorf("%v, %+v", got.users, got.stats)
	}
	// What is behind it on the same line is not taken for a line.
	got = read(t, strings.NewReader(long+as+"\n"+other+"\n"))
	if !slices.Equal(got.users, []string{"bob"}) || got.stats.Bad != 1 {
		t.Errorf("%v, %+v", got.users, got.stats)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, as+"\n"+strings.Repeat(plain+"\n", 1000))
	_ = z.Close()
	zs, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"audit.log":                         []byte(plain + "\n"),
		"audit.log.1.gz":                    zipped.Bytes(),
		"audit-2026-01-02T15-04-05.000.log": []byte(other + "\n"),
		"part.jsonl.zst":                    zs.EncodeAll([]byte(plain+"\n"), nil),
		"cut.log.gz":                        zipped.Bytes()[:zipped.Len()-20],
		"broken.log.gz":                     {0x1f, 0x8b, 1},
		"empty.log":                         nil,
		"notes.txt":                         []byte("no log"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	logs, leftOut, err := auditlog.Files(dir)
	if err != nil || len(logs) != 7 || len(leftOut) != 1 || filepath.Base(leftOut[0]) != "notes.txt" {
		t.Fatalf("%v, %v, %v", logs, leftOut, err)
	}
	seen := 0
	r := &auditlog.Reader{Each: func(*auditv1.Event, bool) error { seen++; return nil }}
	for _, f := range logs {
		if err := r.ReadFile(context.Background(), f); err != nil {
			t.Error(err)
		}
	}
	if s := r.Stats(); s.Files != 7 || s.Bad != 2 || seen != 3 { // cut.log.gz has its first lines
		t.Errorf("%d seen, %+v", seen, s)
	}
	if _, _, err := auditlog.Files(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that is not there is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.ReadFile(ctx, logs[0]); err == nil {
		t.Error("an interrupted reading is no error")
	}
}

// FuzzRead holds that no log breaks the reader, however it is cut into chunks.
func FuzzRead(f *testing.F) {
	for _, s := range []string{plain, as + "\n" + started, refused, `{"kind":"EventList","items":[` + as + "]}", "{\n\"kind\":\"EventList\",\n\"items\":[{}]}\n", "\x1f\x8b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, log string) {
		whole, halves := read(t, strings.NewReader(log)), read(t, iotest.HalfReader(strings.NewReader(log)))
		if diff := cmp.Diff(whole.users, halves.users); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, perMille := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("%d-per-mille", perMille), func(b *testing.B) {
			var log bytes.Buffer
			if _, err := (sample{size: 16 << 20, perMille: perMille, seed: 1}).write(&log); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(log.Len()))
			for b.Loop() {
				r := &auditlog.Reader{Each: func(*auditv1.Event, bool) error { return nil }}
				if err := r.Read("log", bytes.NewReader(log.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless gives one letter for ever, as something that was compressed to nothing does.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// An item of a list that has no end is given up, wherever it stands, and does not fill the memory.
func TestEndlessItem(t *testing.T) {
	for _, head := range []string{
		"{\"kind\":\"EventList\",\n\"items\":[\n" + plain + ",\n{\"auditID\":\"",
		"{\"kind\":\"EventList\",\n\"metadata\":{\"x\":\"",
		"{\"kind\":\"EventList\",\n\"",
	} {
		got := read(t, io.MultiReader(strings.NewReader(head), endless{}))
		if n := len(got.stats.FirstBad); n != 1 || !strings.Contains(got.stats.FirstBad[0].Why, "longer than 16 MiB") {
			t.Errorf("%.60q: %+v", head, got.stats.FirstBad)
		}
	}
}
