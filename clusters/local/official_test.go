package local

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// theProgram is a small program that runs and prints its name. What follows its last line makes it long.
var theProgram = []byte("#!/bin/sh\necho official; exit 0\n" + strings.Repeat("#0123456789abcde\n", 60_000))

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// packed is an archive with one member.
func packed(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	archive := tar.NewWriter(zip)
	for _, m := range []struct {
		name string
		data []byte
	}{{"README", []byte("read me")}, {name, data}} {
		if err := archive.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// mirror is a server that has a kube-apiserver of the first release.
type mirror struct {
	*httptest.Server
	asked   atomic.Int32
	handler http.HandlerFunc // serves instead of the file, if given
	file    []byte
	ranges  []string
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{file: theProgram}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		m.ranges = append(m.ranges, r.Header.Get("Range"))
		if m.handler != nil {
			m.handler(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.file))
	}))
	t.Cleanup(m.Close)
	return m
}

// with finds programs through the mirror, with a go command that builds something else.
func (m *mirror) with(t *testing.T, cache string, digest string) (*Binaries, *bytes.Buffer) {
	t.Helper()
	noPrograms(t)
	said := &bytes.Buffer{}
	p := publication{URL: "https://dl.example.com/v{version}/{arch}", Beside: "https://dl.example.com/SHA256SUMS"}
	if digest != "" {
		p.SHA256 = map[string]map[string]string{releases[0].Version: {runtime.GOARCH: digest}}
	}
	return &Binaries{
		Source:      Auto,
		Mirror:      m.URL,
		CacheDir:    cache,
		Progress:    said,
		goCommand:   fakeGo(t, `printf '#!/bin/sh\necho built\n' > $out; chmod +x $out`),
		published:   map[string]publication{"kube-apiserver": p},
		hostAnswers: &hostAnswers{},
	}, said
}

// says runs the program.
func says(t *testing.T, p Program, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestOfficial tries everything that a mirror can do to a download. The program must always be the published one, or a
// built one, and nothing else.
func TestOfficial(t *testing.T) {
	half := len(theProgram) / 2
	for _, test := range []struct {
		name    string
		digest  string
		handler func(m *mirror) http.HandlerFunc
		says    string
		origin  string
		asked   int32
		text    string
	}{
		{name: "whole", digest: sum(theProgram), says: "official", origin: originPinned, asked: 1, text: "downloaded kube-apiserver 1.33"},
		{name: "digest beside", says: "official", origin: originBeside, asked: 2, text: "published beside it", handler: func(m *mirror) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "SHA256SUMS") {
					_, _ = fmt.Fprintf(w, "%s  other\n%s  %s\n", sum(nil), sum(theProgram), runtime.GOARCH)
					return
				}
				_, _ = w.Write(m.file)
			}
		}},
		{name: "wrong digest", digest: sum([]byte("another")), says: "built", origin: originBuilt, asked: 1, text: "is not what was published: its SHA-256 is " + sum(theProgram)},
		{name: "wrong digest beside", says: "built", origin: originBuilt, asked: 1, text: "has no SHA-256 of"},
		{name: "breaks off", digest: sum(theProgram), says: "official", origin: originPinned, asked: 2, handler: func(m *mirror) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if m.asked.Load() == 1 {
					w.Header().Set("Content-Length", fmt.Sprint(len(m.file)))
					_, _ = w.Write(m.file[:half])
					return
				}
				if r.Header.Get("Range") != fmt.Sprintf("bytes=%d-", half) {
					t.Errorf("asked for %q, not for the rest", r.Header.Get("Range"))
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.file))
			}
		}},
		{name: "breaks off for good", digest: sum(theProgram), says: "built", origin: originBuilt, asked: 1 + retries, text: "broke off at", handler: func(m *mirror) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				if m.asked.Load() > 1 {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(m.file)))
				_, _ = w.Write(m.file[:half])
			}
		}},
		{name: "knows no ranges", digest: sum(theProgram), says: "official", origin: originPinned, asked: 2, handler: func(m *mirror) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(m.file)))
				_, _ = w.Write(m.file[:half*int(m.asked.Load())])
				if m.asked.Load() > 1 {
					_, _ = w.Write(m.file[2*half:])
				}
			}
		}},
		{name: "not there", digest: sum(theProgram), says: "built", origin: originBuilt, asked: 1, text: "404 Not Found", handler: func(*mirror) http.HandlerFunc {
			return http.NotFound
		}},
		{name: "a page instead", digest: sum(theProgram), says: "built", origin: originBuilt, asked: 1, text: "is not what was published", handler: func(*mirror) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in first</html>") }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, cache := newMirror(t), t.TempDir()
			if test.handler != nil {
				m.handler = test.handler(m)
			}
			b, said := m.with(t, cache, test.digest)
			found, err := b.find(t.Context(), kubeAPIServer(releases[0]))
			if got := says(t, found, err); got != test.says || found.Origin != test.origin {
				t.Errorf("the program says %q and is %q, want %q and %q", got, found.Origin, test.says, test.origin)
			}
			if m.asked.Load() != test.asked {
				t.Errorf("it was asked %d times, want %d", m.asked.Load(), test.asked)
			}
			if !strings.Contains(said.String(), test.text) {
				t.Errorf("%q is not in what was said:\n%s", test.text, said)
			}
			m.Close() // with a full cache no network is needed
			again, err := b.find(t.Context(), kubeAPIServer(releases[0]))
			if err != nil || again != found || m.asked.Load() != test.asked {
				t.Errorf("from the cache: %+v, %v, asked %d times", again, err, m.asked.Load())
			}
			b.Source = Official
			if again, err = b.find(t.Context(), kubeAPIServer(releases[0])); test.says == "official" {
				says(t, again, err)
			} else {
				wantUsageError(t, err, "there is no official kube-apiserver 1.33", MirrorVariable, "--binaries auto")
			}
		})
	}
}

// TestSilentMirror has hosts that do not answer. The run waits for them once, and no longer than it may.
func TestSilentMirror(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	m := newMirror(t)
	b, said := m.with(t, t.TempDir(), sum(theProgram))
	b.Mirror = "http://" + listener.Addr().String()
	b.hostAnswers.waited.Store(int64(answerTimeout - 300*time.Millisecond)) // of the 3 s
	begin := time.Now()
	found, err := b.find(t.Context(), kubeAPIServer(releases[0]))
	if got, took := says(t, found, err), time.Since(begin); got != "built" || took > time.Minute {
		t.Errorf("it says %q after %s", got, took)
	}
	p := b.published["kube-apiserver"]
	p.SHA256[releases[1].Version] = p.SHA256[releases[0].Version]
	_, err = b.find(t.Context(), kubeAPIServer(releases[1]))
	if n := strings.Count(said.String(), "nothing answers: "); err != nil || n != 1 {
		t.Errorf("%v; said %d times that nothing answers, want once:\n%s", err, n, said)
	}
	b.Source = Official
	_, err = b.find(t.Context(), kubeAPIServer(releases[2]))
	wantUsageError(t, err, "there is no official", "nothing answers")
	if m.asked.Load() > 0 {
		t.Error("the mirror was passed by")
	}
	t.Run("nobody listens", func(t *testing.T) {
		b, said := m.with(t, t.TempDir(), sum(theProgram))
		_ = listener.Close()
		b.Mirror = "http://" + listener.Addr().String()
		found, err := b.find(t.Context(), kubeAPIServer(releases[0]))
		if got := says(t, found, err); got != "built" || strings.Count(said.String(), "is not asked again in this run") != 1 {
			t.Errorf("it says %q:\n%s", got, said)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(found.Path), "*.partial*")); left != nil {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestOfficialFaults has faults of this machine. They end with an error, and no build begins.
func TestOfficialFaults(t *testing.T) {
	t.Run("no space", func(t *testing.T) {
		m, cache := newMirror(t), t.TempDir()
		b, _ := m.with(t, cache, sum(theProgram))
		o, err := b.offer(kubeAPIServer(releases[0]))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(o.target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/full", o.target+".partial"); err != nil {
			t.Fatal(err)
		}
		_, err = b.find(t.Context(), kubeAPIServer(releases[0]))
		wantUsageError(t, err, "no space to download kube-apiserver", cache, CacheVariable)
	})
	t.Run("damaged in the cache", func(t *testing.T) {
		m := newMirror(t)
		b, _ := m.with(t, t.TempDir(), sum(theProgram))
		found, err := b.find(t.Context(), kubeAPIServer(releases[0]))
		says(t, found, err)
		if err := os.WriteFile(found.Path, []byte("#!/bin/sh\necho other\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		found, err = b.find(t.Context(), kubeAPIServer(releases[0]))
		if got := says(t, found, err); got != "official" || m.asked.Load() != 2 {
			t.Errorf("it says %q, asked %d times", got, m.asked.Load())
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		m := newMirror(t)
		ctx, cancel := context.WithCancel(t.Context())
		b, said := m.with(t, t.TempDir(), sum(theProgram))
		o, err := b.offer(kubeAPIServer(releases[0]))
		if err != nil {
			t.Fatal(err)
		}
		m.handler = func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(m.file[:1000])
			w.(http.Flusher).Flush()
			for info, err := os.Stat(o.target + ".partial"); r.Context().Err() == nil && (err != nil || info.Size() < 1000); info, err = os.Stat(o.target + ".partial") {
				time.Sleep(time.Millisecond)
			}
			cancel()
			<-r.Context().Done()
		}
		if _, err := b.find(ctx, kubeAPIServer(releases[0])); err == nil || strings.Contains(said.String(), "building") {
			t.Errorf("%v, said %q", err, said)
		}
		m.handler = nil
		found, err := b.find(t.Context(), kubeAPIServer(releases[0]))
		if got := says(t, found, err); got != "official" || m.ranges[1] != "bytes=1000-" {
			t.Errorf("it says %q; asked for %q", got, m.ranges)
		}
	})
	t.Run("bad settings", func(t *testing.T) {
		m := newMirror(t)
		b, _ := m.with(t, t.TempDir(), "")
		b.Mirror = "mirror.example.com"
		_, err := b.find(t.Context(), kubeAPIServer(releases[0]))
		wantUsageError(t, err, `the mirror of programs "mirror.example.com" is not a URL`, "file:///")
		b.Mirror, b.Source = "", ""
		t.Setenv(SourceVariable, "offical")
		_, err = b.find(t.Context(), kubeAPIServer(releases[0]))
		wantUsageError(t, err, `programs cannot come from "offical"`, "auto, official or build")
	})
}

// TestOfficialOnce has several finders at the same time, as in several processes, with a slow mirror. Only one
// downloads.
func TestOfficialOnce(t *testing.T) {
	m, cache := newMirror(t), t.TempDir()
	m.handler = func(w http.ResponseWriter, _ *http.Request) {
		for piece := range bytes.Lines(m.file[:100]) { // slow, but it gets on
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
		_, _ = w.Write(m.file[100:])
	}
	b, _ := m.with(t, cache, sum(theProgram))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			other := &Binaries{Source: Official, Mirror: m.URL, CacheDir: cache, published: b.published, hostAnswers: b.hostAnswers}
			if found, err := other.find(t.Context(), kubeAPIServer(releases[0])); err != nil || found.Origin != originPinned {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
	all.Wait()
	if m.asked.Load() != 1 {
		t.Errorf("it was downloaded %d times", m.asked.Load())
	}
}

// TestMirrorFolder takes an archive from a folder, in which it is found by host and path.
func TestMirrorFolder(t *testing.T) {
	noPrograms(t)
	pinned := etcd()
	folder := t.TempDir()
	b := &Binaries{Source: Official, CacheDir: t.TempDir(), Mirror: "file://" + folder + "/", hostAnswers: &hostAnswers{}}
	o, err := b.offer(pinned)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(
		folder,
		"github.com",
		"etcd-io",
		"etcd",
		"releases",
		"download",
		"v"+pinned.version,
		"etcd-v"+pinned.version+"-linux-"+runtime.GOARCH+".tar.gz",
	)
	archive := packed(t, o.member, theProgram)
	if err := WriteFile(file, archive); err != nil {
		t.Fatal(err)
	}
	err = WriteFile(
		filepath.Join(filepath.Dir(file), "SHA256SUMS"),
		fmt.Appendf(nil, "%s  %s\n", sum(archive), filepath.Base(file)),
	)
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.find(t.Context(), pinned)
	if got := says(t, found, err); got != "official" || found.Origin != originBeside {
		t.Errorf("%+v says %q", found, got)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(found.Path), "*.partial*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if digest, err := Digest(found.Path); err != nil || digest != sum(theProgram) {
		t.Errorf("digest %s, %v", digest, err)
	}
}
