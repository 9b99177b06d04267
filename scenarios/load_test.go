package scenarios_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

var loadEmbedded = sync.OnceValues(func() (*scenarios.Set, error) {
	return scenarios.Load(scenarios.FS, fixtures.FS)
})

// embedded returns the scenarios that come with authzconf. Tests must not change them.
func embedded(t testing.TB) *scenarios.Set {
	t.Helper()
	set, err := loadEmbedded()
	if err != nil {
		t.Fatalf("the embedded scenarios are wrong:\n%v", err)
	}
	return set
}

// example loads only two of the embedded scenarios, a denial and its twin, and returns the denial.
func example(t testing.TB) *scenarios.Scenario {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range []string{"list-pods-allowed", "list-pods-without-action-grant"} {
		path := "kep-5284/user-info/" + name + ".yaml"
		raw, err := fs.ReadFile(scenarios.FS, path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = file(string(raw))
	}
	s, _ := mustLoad(t, files, nil).Get("kep-5284/user-info/list-pods-without-action-grant")
	return s
}

func TestLoadEmbedded(t *testing.T) {
	if set := embedded(t); set.Len() < 60 {
		t.Errorf("%d scenarios are embedded", set.Len())
	}
}

func TestLoadExample(t *testing.T) {
	s := example(t)
	if s.File != s.ID+".yaml" || s.Requires.Gate != scenarios.GateOn || s.Twin != "kep-5284/user-info/list-pods-allowed" {
		t.Errorf("file %q, gate %q, twin %q", s.File, s.Requires.Gate, s.Twin)
	}
	e := s.Steps[0].Expect
	if e.Outcome != scenarios.ImpersonationForbidden || len(e.Reviews) != 2 || e.User != nil {
		t.Errorf("expectation: %+v", e)
	}
	if e.Audit == nil || e.Audit.Constraint == nil || *e.Audit.Constraint != "" || *e.Audit.ImpersonatedUser {
		t.Errorf("audit: %+v; empty and false are statements and must be kept", e.Audit)
	}
}

func TestLoadKeepsEmptyLists(t *testing.T) {
	set := mustLoad(t, fstest.MapFS{"a/x.yaml": file(strings.Replace(valid, "      code: 200\n", "      reviews: []\n", 1))}, nil)
	s := set.All()[0]
	if r := s.Steps[0].Expect.Reviews; r == nil || len(r) != 0 {
		t.Errorf("reviews: [] became %#v; it states that there are none", r)
	}
	bound, _ := s.Bind("abc123")
	if bound.Steps[0].Expect.Reviews == nil {
		t.Error("Bind lost the difference between none and not judged")
	}
}

func TestJSON(t *testing.T) {
	s := mustLoad(t, fstest.MapFS{"a/x.yaml": file(strings.Replace(valid, "code: 200", "reviews: []", 1))}, nil).All()[0]
	if s.Waits() != 10*time.Second {
		t.Errorf("the scenario waits %s", s.Waits())
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"wait":"10s"`, `"reviews":[]`, `"gate":"on"`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("the JSON has no %s: %s", part, raw)
		}
	}
	if strings.Contains(string(raw), `"message"`) || strings.Contains(string(raw), `"wait":"0s"`) {
		t.Errorf("the JSON has what was left out: %s", raw)
	}
}

func TestDigest(t *testing.T) {
	scenario := valid + "fixtures: [f.yaml]\n"
	fixture := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	digest := func(scenario, fixture string) string {
		return mustLoad(t, fstest.MapFS{"a/x.yaml": file(scenario)}, fstest.MapFS{"f.yaml": file(fixture)}).All()[0].Digest
	}
	base := digest(scenario, fixture)
	if raw, err := hex.DecodeString(base); err != nil || len(raw) != sha256.Size {
		t.Errorf("digest %q is no SHA-256", base)
	}
	if base != digest(scenario, fixture) {
		t.Error("the digest is not stable")
	}
	if base == digest(scenario+"# x\n", fixture) || base == digest(scenario, fixture+"# x\n") {
		t.Error("the digest does not depend on every byte of scenario and fixtures")
	}
}

func TestManifestsAreNotShared(t *testing.T) {
	fx := fstest.MapFS{
		"f.yaml": file(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: other}\n",
		),
	}
	set := mustLoad(t, fstest.MapFS{"a/x.yaml": file(valid + "fixtures: [f.yaml]\n"), "a/y.yaml": file(valid + "fixtures: [f.yaml]\n")}, fx)
	x, _ := set.Get("a/x")
	y, _ := set.Get("a/y")
	if len(x.Manifests) != 2 || x.Manifests[1]["kind"] != "Secret" {
		t.Fatalf("manifests: %v", x.Manifests)
	}
	x.Manifests[0]["data"].(map[string]any)["a"] = "changed"
	if got := y.Manifests[0]["data"].(map[string]any)["a"]; got != "b" {
		t.Errorf("a change to one scenario's manifests is seen in the other: %v", got)
	}
}

func TestLoadOrderAndFilter(t *testing.T) {
	files := fstest.MapFS{
		"b/y.yaml":              file(valid),
		"a/z.yaml":              file(valid),
		"a/b/c.yaml":            file(strings.Replace(valid, "level: core", "level: extended", 1)),
		"a/testdata/wrong.yaml": file("nonsense"),
		".hidden/wrong.yaml":    file("nonsense"),
		"_old/wrong.yaml":       file("nonsense"),
		"README.md":             file("text"),
	}
	set := mustLoad(t, files, nil)
	ids := func(list []*scenarios.Scenario) string {
		var out []string
		for _, s := range list {
			out = append(out, s.ID)
		}
		return strings.Join(out, " ")
	}
	if got := ids(set.All()); got != "a/b/c a/z b/y" {
		t.Errorf("all: %q", got)
	}
	if got := ids(set.Only(func(s *scenarios.Scenario) bool { return s.Level == scenarios.Extended }).All()); got != "a/b/c" {
		t.Errorf("one level: %q", got)
	}
	if _, ok := set.Get("nothing"); ok {
		t.Error("Get found a scenario that does not exist")
	}
}

// file returns a file for a test's file system.
func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func mustLoad(t testing.TB, files, fx fs.FS) *scenarios.Set {
	t.Helper()
	set, err := scenarios.Load(files, fx)
	if err != nil {
		t.Fatalf("cannot load:\n%v", err)
	}
	return set
}

// notes returns what scenarios.Notes says of files without errors.
func notes(t testing.TB, files, fx fs.FS) scenarios.Errors {
	t.Helper()
	noted, err := scenarios.Notes(files, fx)
	if err != nil {
		t.Fatalf("cannot load:\n%v", err)
	}
	return noted
}

// BenchmarkLoad loads the catalogue, which happens before nearly every command. The goal is less than 300 ms on two cores.
func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scenarios.Load(scenarios.FS, fixtures.FS); err != nil {
			b.Fatal(err)
		}
	}
}
