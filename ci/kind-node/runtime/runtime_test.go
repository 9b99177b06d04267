package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// withoutResource is a bounding set that lacks CAP_SYS_RESOURCE only.
const withoutResource = 0x1fffeffffff

const complete = 0x1ffffffffff

func TestFileToRewrite(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		file string
		kind []string
	}{
		"as docker creates": {
			[]string{"--root", "/run/r", "--log", "/run/l", "--log-format", "json", "--systemd-cgroup", "create", "--bundle", "/run/b", "--pid-file", "/p", "id"},
			"/run/b/config.json", bundle,
		},
		"with equals signs":       {[]string{"--root=/r", "run", "--bundle=/run/b", "id"}, "/run/b/config.json", bundle},
		"short flag":              {[]string{"create", "-b", "/run/b", "id"}, "/run/b/config.json", bundle},
		"bundle here":             {[]string{"create", "id"}, "config.json", bundle},
		"exec with a file":        {[]string{"--root", "/r", "exec", "--process", "/tmp/p", "--detach", "id"}, "/tmp/p", processFile},
		"exec with a command":     {[]string{"exec", "id", "sh"}, "", nil},
		"a root named like this":  {[]string{"--root", "create", "state", "id"}, "", nil},
		"nothing to be rewritten": {[]string{"kill", "id", "9"}, "", nil},
		"no command":              {[]string{"--version"}, "", nil},
	} {
		file, kind := fileToRewrite(test.args)
		if file != test.file || !slices.Equal(kind, test.kind) {
			t.Errorf("%s: got %q, %q", name, file, kind)
		}
	}
}

func TestBoundingSet(t *testing.T) {
	got, err := boundingSet("Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n")
	if err != nil || got != withoutResource {
		t.Errorf("got %x, %v", got, err)
	}
	if available("CAP_SYS_RESOURCE", got) || !available("CAP_SYS_ADMIN", got) || !available("CAP_OF_TOMORROW", got) {
		t.Error("wrong capabilities are available")
	}
	if _, err := boundingSet("Name:\tx\n"); err == nil {
		t.Error("no error without CapBnd")
	}
}

func TestRewrite(t *testing.T) {
	process := `{"args":["sh"],"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"],"permitted":["CAP_CHOWN"]},"oomScoreAdj":12345678901234567890}`
	want := `{"args":["sh"],"capabilities":{"bounding":["CAP_CHOWN"],"effective":[],"permitted":["CAP_CHOWN"]},"oomScoreAdj":12345678901234567890}`
	for name, test := range map[string]struct {
		before, after string
		kind          []string
		bounding      uint64
	}{
		"process":                {process, want, processFile, withoutResource},
		"bundle":                 {`{"ociVersion":"1.0.2","process":` + process + `}`, `{"ociVersion":"1.0.2","process":` + want + `}`, bundle, withoutResource},
		"nothing is missing":     {process, process, processFile, complete},
		"without capabilities":   {`{"args": ["sh"]}`, `{"args": ["sh"]}`, processFile, withoutResource},
		"without a process":      {`{ "ociVersion": "1" }`, `{ "ociVersion": "1" }`, bundle, withoutResource},
		"without anything there": {`{"process":null}`, `{"process":null}`, bundle, withoutResource},
	} {
		got, err := rewrite([]byte(test.before), test.kind, test.bounding)
		if err != nil || string(got) != test.after {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"process":`} {
		if _, err := rewrite([]byte(bad), bundle, withoutResource); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestRewriteFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(`{"process":{"capabilities":{"bounding":["CAP_SYS_RESOURCE","CAP_KILL"]}}}`), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := rewriteFile(file, bundle, withoutResource); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Process struct{ Capabilities map[string][]string }
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := map[string][]string{"bounding": {"CAP_KILL"}}; !reflect.DeepEqual(got.Process.Capabilities, want) {
		t.Errorf("got %s", data)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	files, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(files) != 1 {
		t.Errorf("left %v, %v", files, err)
	}
	if err := rewriteFile(filepath.Join(t.TempDir(), "missing"), bundle, withoutResource); err == nil {
		t.Error("no error for a file that is missing")
	}
}
