package local

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestExactReleases(t *testing.T) {
	for _, test := range []struct{ in, minor, version, name, standing string }{
		{"1.37", "1.37", Newest().Version, "1.37", ""},
		{"v" + Newest().Version, "1.37", Newest().Version, "1.37", ""},
		{"1.37.99", "1.37", "1.37.99", "1.37.99", "Kubernetes 1.37.99 is not the pinned version of its minor, " + Newest().Version + ": what is expected of 1.37 holds for it"},
		{"v1.38.0-alpha.2", "1.38", "1.38.0-alpha.2", "1.38.0-alpha.2", "Kubernetes 1.38.0-alpha.2 is newer than all versions that are known here: what is expected of 1.37 and newer holds for it"},
		{"1.38.0-alpha.2.31+0123abc", "1.38", "1.38.0-alpha.2.31+0123abc", "1.38.0-alpha.2.31-0123abc", "newer than all versions"},
	} {
		r, err := ParseRelease(test.in)
		if err != nil || r.Minor != test.minor || r.Version != test.version || r.Name() != test.name {
			t.Errorf("ParseRelease(%q) = %+v, named %s, %v", test.in, r, r.Name(), err)
		}
		if got := r.Standing(); !strings.Contains(got, test.standing) {
			t.Errorf("%s: %q, want %q", test.in, got, test.standing)
		}
		if r.IsPinned() != (test.standing == "") {
			t.Errorf("%s: pinned %t", test.in, r.IsPinned())
		}
	}
	_, err := ParseRelease("1.32.1")
	wantUsageError(t, err, "Kubernetes 1.32.1 is older than 1.33", "a newer version")
}

// remembered is a Remember that finds everything out, and counts.
func remembered(asked *[]string) Remember {
	return func(name string, find func() (string, error)) (string, error) {
		*asked = append(*asked, name)
		return find()
	}
}

func TestMarkers(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/dl.k8s.io/release/latest-1.38.txt": "v1.38.0-alpha.2\n",
			"/dl.k8s.io/ci/latest.txt":           "v1.38.0-alpha.2.31+0123456789abcd",
			"/dl.k8s.io/release/stable.txt":      "<html>sorry</html>",
		}
		if answers[r.URL.Path] == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	}))
	t.Cleanup(host.Close)
	b := &Binaries{Mirror: host.URL, hostAnswers: &hostAnswers{}}
	var facts []string
	got, err := b.Resolve(t.Context(), remembered(&facts), "1.37", "release/latest-1.38", "ci/latest", "1.37.2")
	if err != nil || strings.Join(got, " ") != "1.37 v1.38.0-alpha.2 v1.38.0-alpha.2.31+0123456789abcd 1.37.2" {
		t.Errorf("%q, %v", got, err)
	}
	if strings.Join(facts, ", ") != "the version of release/latest-1.38, the version of ci/latest" {
		t.Errorf("facts %q", facts)
	}
	for marker, want := range map[string]string{
		"release/latest-9.99": "404",
		"release/stable":      "is not a version",
		SourceWord:            "no tree is named",
	} {
		_, err := b.Resolve(t.Context(), remembered(&facts), marker)
		wantUsageError(t, err, want)
		if strings.Count(err.Error(), "\n") > 1 {
			t.Errorf("%s: more than a line and a hint: %v", marker, err)
		}
	}
	host.Close()
	_, err = b.Resolve(t.Context(), remembered(&facts), "ci/latest")
	wantUsageError(t, err, "which version ci/latest is cannot be read", "nothing answers")
}

func TestCIBuildsHaveAPlaceOfTheirOwn(t *testing.T) {
	b := &Binaries{CacheDir: t.TempDir()}
	o, err := b.offer(kubeAPIServer(Release{"1.38", "1.38.0-alpha.2.31+0123abc"}))
	if err != nil || !strings.HasPrefix(o.url, "https://dl.k8s.io/ci/v1.38.0-alpha.2.31+0123abc/bin/linux/") || o.origin != originCI {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = b.offer(kubeAPIServer(Release{"1.38", "1.38.0-alpha.2"}))
	if err != nil || !strings.HasPrefix(o.url, "https://dl.k8s.io/release/v1.38.0-alpha.2/bin/linux/") || o.origin != originBeside {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestDeriveModule(t *testing.T) {
	theirs := `module k8s.io/kubernetes

go 1.27.0

godebug default=go1.27

require (
	github.com/other/thing v1.2.3
	k8s.io/api v0.0.0
	k8s.io/utils v0.0.0-20260626114624-be93311217bd
)

replace k8s.io/api => ./staging/src/k8s.io/api
`
	got, err := deriveModule("module m\n", []byte(theirs), "1.38.0-alpha.2")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"go 1.27.0", "godebug default=go1.27", "tool k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes v1.38.0-alpha.2",
		"k8s.io/api v0.38.0-alpha.2", "github.com/other/thing v1.2.3", "k8s.io/utils v0.0.0-20260626114624-be93311217bd",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "replace") {
		t.Errorf("it replaces something:\n%s", got)
	}
}

func TestWhatCannotBeHad(t *testing.T) {
	noPrograms(t)
	t.Setenv(SourceVariable, Auto)
	failing := filepath.Join(t.TempDir(), "go")
	script := "#!/bin/sh\necho '{\"Error\": \"k8s.io/kubernetes@v1.38.0-alpha.2: reading proxy: 403 Forbidden\"}'\nexit 1\n"
	if err := os.WriteFile(failing, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	host := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(host.Close)
	b := &Binaries{CacheDir: t.TempDir(), Mirror: host.URL, hostAnswers: &hostAnswers{}, goCommand: failing}
	_, err := b.KubeAPIServer(t.Context(), Release{"1.38", "1.38.0-alpha.2"})
	wantUsageError(
		t,
		err,
		"Kubernetes 1.38.0-alpha.2 cannot be had: it was not downloaded, because ",
		"404",
		"; it was not built, because ",
		"403 Forbidden",
		"--source",
	)
	_, err = b.KubeAPIServer(t.Context(), Release{"1.38", "1.38.0-alpha.2.31+0123abc"})
	wantUsageError(t, err, "builds of CI have no modules")
}

// writeCheckout writes the files by which a checkout of kubernetes/kubernetes is known.
func writeCheckout(t *testing.T, minor string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.26.0\n",
		"staging/src/k8s.io/component-base/version/base.go": "package version\n\nconst DefaultKubeBinaryVersion = \"" + minor + "\"\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSourceTree(t *testing.T) {
	dir := writeCheckout(t, "1.38")
	tree, err := ReadSourceTree(dir)
	if err != nil || !regexp.MustCompile(`^1\.38\.0\+source\.[0-9a-f]{12}$`).MatchString(tree.Version) || tree.Commit != "" ||
		len(tree.Files) != 64 {
		t.Fatalf("%+v, %v", tree, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if other, err := ReadSourceTree(dir); err != nil || other.Files == tree.Files || other.Version == tree.Version {
		t.Errorf("with another file: %+v, %v", other, err)
	}
}

func TestSourceTreeOfGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := writeCheckout(t, "1.38")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	read := func(version, name string) SourceTree {
		t.Helper()
		tree, err := ReadSourceTree(dir)
		if err != nil || !regexp.MustCompile(version).MatchString(tree.Version) || !strings.HasPrefix(tree.String(), name) {
			t.Errorf("%+v %s, %v, want version %s and %s", tree, tree, err, version, name)
		}
		return tree
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "one")
	if tree := read(`^1\.38\.0\+source\.[0-9a-f]{12}$`, "commit "); tree.Files != "" {
		t.Errorf("a clean tree has a digest: %+v", tree)
	}
	git("tag", "v1.38.0-alpha.2")
	read(`^1\.38\.0-alpha\.2\+source\.[0-9a-f]{12}$`, "commit ")
	git("commit", "--quiet", "--allow-empty", "-m", "two")
	read(`^1\.38\.0-alpha\.2\.1\+[0-9a-f]{14}$`, "commit ")
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if tree := read(`^1\.38\.0-alpha\.2\.1\+[0-9a-f]{14}\.changed\.[0-9a-f]{12}$`, "commit "); tree.Files == "" {
		t.Errorf("a changed tree has no digest: %+v", tree)
	}
}

func TestBadSourceTrees(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := t.TempDir()
	if err := os.WriteFile(filepath.Join(bare, "go.mod"), []byte("module k8s.io/kubernetes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(other, "nowhere"): "it has no go.mod: no such file or directory",
		other:                           "is not that of k8s.io/kubernetes, and does not require it",
		bare:                            "no such file or directory",
		writeCheckout(t, "1.12"):        "older than 1.33",
	} {
		_, err := ReadSourceTree(dir)
		wantUsageError(t, err, want)
	}
}

func TestTreesAreRemembered(t *testing.T) {
	recorded := func(string, func() (string, error)) (string, error) {
		return `{"version":"1.38.0+source.0","files":"0"}`, nil
	}
	b := &Binaries{sourceDir: filepath.Join(t.TempDir(), "gone")}
	version, err := b.ResolveOne(context.Background(), recorded, SourceWord)
	if err != nil || version != "1.38.0+source.0" {
		t.Errorf("%q, %v", version, err)
	}
	missing := func(string, func() (string, error)) (string, error) { return "", errors.New("the record has no tree") }
	if _, err := b.ResolveOne(context.Background(), missing, SourceWord); err == nil {
		t.Error("a record without the tree can be verified")
	}
}
