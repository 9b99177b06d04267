package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
)

// noPrograms unsets the variables that would name programs, so that they are built.
func noPrograms(t *testing.T) {
	t.Helper()
	t.Setenv(SourceVariable, Build)
	for _, variable := range []string{"TEST_ASSET_KUBE_APISERVER", "TEST_ASSET_ETCD", "KUBEBUILDER_ASSETS"} {
		t.Setenv(variable, "")
	}
}

func TestNamedProgram(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"kube-apiserver": 0o755, "other": 0o755, "text": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, asset, assets string
		want                string // the name of a file, "" for none, or a part of an error after "!"
	}{
		{"none", "", "", ""},
		{"asset", dir + "/other", "", "other"},
		{"asset before folder", dir + "/other", dir, "other"},
		{"folder", "", dir, "kube-apiserver"},
		{"asset missing", dir + "/nowhere", dir, "!TEST_ASSET_KUBE_APISERVER"},
		{"asset is a folder", dir, "", "!not an executable"},
		{"asset is a text", dir + "/text", "", "!not an executable"},
		{"folder without", "", dir + "/nowhere", "!KUBEBUILDER_ASSETS"},
	} {
		env := map[string]string{"TEST_ASSET_KUBE_APISERVER": test.asset, "KUBEBUILDER_ASSETS": test.assets}
		got, err := namedProgram(kubeAPIServer(releases[0]), func(name string) string { return env[name] })
		if part, bad := strings.CutPrefix(test.want, "!"); bad {
			wantUsageError(t, err, part, "unset it")
			continue
		}
		if err != nil ||
			(got != "" || test.want != "") &&
				got != filepath.Join(dir, test.want) {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func TestCacheKey(t *testing.T) {
	p := kubeAPIServer(releases[len(releases)-1])
	base := newModule("", "m", "s").cacheKey(p, "go1")
	if again := newModule("", "m", "s").cacheKey(p, "go1"); again != base {
		t.Error("the key is not stable")
	}
	other := p
	other.ldflags += " -X a=b"
	for name, key := range map[string]string{
		"module":   newModule("", "M", "s").cacheKey(p, "go1"),
		"sums":     newModule("", "m", "S").cacheKey(p, "go1"),
		"boundary": newModule("", "ms", "").cacheKey(p, "go1"),
		"go":       newModule("", "m", "s").cacheKey(p, "go2"),
		"flags":    newModule("", "m", "s").cacheKey(other, "go1"),
		"release":  newModule("", "m", "s").cacheKey(kubeAPIServer(releases[0]), "go1"),
	} {
		if key == base {
			t.Errorf("another %s has the same key", name)
		}
	}
}

func TestBuildOutput(t *testing.T) {
	o := &buildOutput{}
	w := &lineWriter{to: o}
	for _, piece := range []string{"go: downloading k8s.io/api v0.37.1\ngo: down", "loading x v1\n"} {
		_, _ = w.Write([]byte(piece))
	}
	if got := o.progress(0); got != "2 modules downloaded" {
		t.Error(got)
	}
	_, _ = w.Write([]byte("unicode/utf8\nk8s.io/api/core/v1\ninternal/cp"))
	_, _ = w.Write([]byte("u\n# k8s.io/x\nx.go:1:2: undefined: y\n"))
	if got := o.progress(0); got != "3 packages compiled" {
		t.Error(got)
	}
	o.total = 12
	if got := o.progress(time.Minute); got != "25 %, about 3 min" {
		t.Error(got)
	}
	if got := strings.Join(o.last, "|"); got != "# k8s.io/x|x.go:1:2: undefined: y" {
		t.Error(got)
	}
}

// fakeGo is a go command that knows its version, and builds by running a script with $out set.
func fakeGo(t *testing.T, build string) string {
	t.Helper()
	return script(t, `
case "$1" in
env) echo go1.fake; exit 0;;
build)
  while [ $# -gt 0 ]; do [ "$1" = -o ] && out="$2"; shift; done
  [ -f go.mod ] && [ -f go.sum ] || { echo "no module here"; exit 9; }
  `+build+`;;
esac`)
}

func TestBuildFaults(t *testing.T) {
	noPrograms(t)
	release := releases[0]
	t.Run("disk is full", func(t *testing.T) {
		cache := t.TempDir()
		b := &Binaries{CacheDir: cache, goCommand: fakeGo(t, `echo half > $out; echo "write /x: no space left on device" >&2; exit 1`)}
		_, err := b.KubeAPIServer(t.Context(), release)
		wantUsageError(t, err, "no space", cache, CacheVariable, "free some")
		if left, _ := filepath.Glob(filepath.Join(cache, "bin", "*.partial")); left != nil {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("cache cannot be written", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Binaries{CacheDir: file}).Etcd(t.Context())
		wantUsageError(t, err, file, CacheVariable)
		t.Setenv(CacheVariable, file)
		_, err = Start(t.Context(), Options{})
		wantUsageError(t, err, file, CacheVariable)
	})
	t.Run("no go command", func(t *testing.T) {
		_, err := (&Binaries{CacheDir: t.TempDir(), goCommand: "no-such-go-command"}).Etcd(t.Context())
		wantUsageError(t, err, "install Go", "TEST_ASSET_ETCD")
	})
	t.Run("it does not compile", func(t *testing.T) {
		b := &Binaries{CacheDir: t.TempDir(), goCommand: fakeGo(t, `echo "x.go:1:1: undefined: y" >&2; exit 1`)}
		_, err := b.Etcd(t.Context())
		if err == nil || usage.Is(err) {
			t.Fatalf("got %v", err)
		}
		wantText(t, err, "undefined: y", "exit status 1")
	})
	t.Run("canceled", func(t *testing.T) {
		b := &Binaries{CacheDir: t.TempDir(), goCommand: fakeGo(t, `sleep 60`)}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := b.Etcd(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 30*time.Second { // half as long as the build would have taken
			t.Errorf("it took %s", took)
		}
	})
}

func TestBuildIsSharedAndCached(t *testing.T) {
	noPrograms(t)
	cache := t.TempDir()
	count := filepath.Join(t.TempDir(), "count")
	goCommand := fakeGo(t, fmt.Sprintf(`echo built >> %s; sleep 0.3; echo program > $out; chmod +x $out`, count))
	var wg sync.WaitGroup
	var paths [4]string
	var errs [4]error
	for i := range paths {
		wg.Go(func() {
			b := &Binaries{CacheDir: cache, goCommand: goCommand}
			paths[i], errs[i] = b.KubeAPIServer(t.Context(), releases[0])
		})
	}
	wg.Wait()
	for i := range paths {
		if errs[i] != nil || paths[i] != paths[0] || !isFile(paths[i]) {
			t.Errorf("%q, %v", paths[i], errs[i])
		}
	}
	var progress bytes.Buffer
	b := &Binaries{CacheDir: cache, goCommand: goCommand, Progress: &progress}
	if again, err := b.KubeAPIServer(t.Context(), releases[0]); err != nil || again != paths[0] || progress.Len() > 0 {
		t.Errorf("from the cache: %q, %v, said %q", again, err, progress.String())
	}
	if data, _ := os.ReadFile(count); string(data) != "built\n" {
		t.Errorf("built %d times", strings.Count(string(data), "\n"))
	}
	if other, err := b.KubeAPIServer(t.Context(), releases[1]); err != nil || other == paths[0] {
		t.Errorf("another release: %q, %v", other, err)
	}
	for _, want := range []string{"building kube-apiserver " + releases[1].Version, "built kube-apiserver"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("%q is not in the progress: %q", want, progress.String())
		}
	}
}

// TestBuildEtcd really builds etcd, from the embedded module, into an empty cache.
func TestBuildEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles etcd")
	}
	noPrograms(t)
	pinned := etcd()
	var progress bytes.Buffer
	path, err := (&Binaries{CacheDir: t.TempDir(), Progress: &progress}).Etcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(progress.String())
	out, err := exec.Command(path, "--version").Output()
	if err != nil || !strings.Contains(string(out), "etcd Version: "+pinned.version) {
		t.Errorf("%s: %v", out, err)
	}
}
