package local

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestOfficialControlPlane starts real programs, which come from a mirror into an empty cache.
func TestOfficialControlPlane(t *testing.T) {
	found := programs(t)
	noPrograms(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(
			w,
			r,
			map[string]string{"etcd": found.Etcd.Path, "kube-apiserver": found.KubeAPIServer.Path}[filepath.Base(r.URL.Path)],
		)
	}))
	defer server.Close()
	b := &Binaries{
		Source:      Official,
		Mirror:      server.URL,
		CacheDir:    t.TempDir(),
		published:   map[string]publication{},
		hostAnswers: &hostAnswers{},
	}
	for p, path := range map[program]string{etcd(): found.Etcd.Path, kubeAPIServer(Newest()): found.KubeAPIServer.Path} {
		digest, err := Digest(path)
		if err != nil {
			t.Fatal(err)
		}
		b.published[p.name] = publication{
			URL:    "https://dl.example.com/" + p.name,
			SHA256: map[string]map[string]string{p.version: {runtime.GOARCH: digest}},
		}
	}
	begin := time.Now()
	c := startPlane(t, Options{Binaries: b})
	t.Logf("ready %s after nothing was there", time.Since(begin).Round(time.Millisecond))
	for _, p := range []Program{c.Programs().Etcd, c.Programs().KubeAPIServer} {
		if p.Origin != originPinned || !strings.HasPrefix(p.Path, b.CacheDir) {
			t.Errorf("runs %+v", p)
		}
	}
}

// TestPublications checks that every program that can be built is published, and that those of Kubernetes have a pinned
// digest.
func TestPublications(t *testing.T) {
	all := []program{}
	for _, r := range releases {
		all = append(all, kubeAPIServer(r))
	}
	for _, p := range append(all, etcd(), kubectl("")) {
		o, err := (&Binaries{CacheDir: t.TempDir()}).offer(p)
		if err != nil || !strings.HasPrefix(o.url, "https://") || !strings.HasPrefix(o.beside, "https://") ||
			!strings.Contains(o.url, "v"+p.version+"/") {
			t.Errorf("%s: %+v, %v", p.name, o, err)
		}
		for _, arch := range []string{"amd64", "arm64"} {
			digest := publications[p.name].SHA256[p.version][arch]
			if p.name != "etcd" && !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(digest) {
				t.Errorf("%s %s for %s has the digest %q", p.name, p.version, arch, digest)
			}
		}
	}
}

// TestProgress checks the prediction of the remaining time at the rate so far.
func TestProgress(t *testing.T) {
	for _, test := range []struct {
		done, total int64
		took        time.Duration
		want        string
	}{
		{0, 10, time.Second, "nothing yet"},
		{5, 0, time.Second, "nothing yet"},
		{62, 100, 5 * time.Minute, "62 %, about 4 min"},
		{50, 100, 20 * time.Second, "50 %, about 20 s"},
		{120, 100, 100 * time.Second, "99 %, about 2 s"},
	} {
		if got := progress(test.done, test.total, test.took); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// FuzzDigestOf checks that, whatever a server sends, only a digest is accepted as one.
func FuzzDigestOf(f *testing.F) {
	f.Add(sum(nil)+"  kube-apiserver\n", "kube-apiserver")
	f.Add(sum(nil), "kube-apiserver")
	f.Add(sum(nil)+" *a\n"+sum([]byte("b"))+"  b\n", "b")
	f.Add("<html>", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		if got := digestOf(text, name); got != "" &&
			(len(got) != 64 || !strings.Contains(text, got)) {
			t.Errorf("%q of %q", got, text)
		}
	})
}
