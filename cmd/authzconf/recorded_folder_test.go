package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// folder is a copy of a recorded run that somebody edits.
type folder struct {
	t           *testing.T
	dir, marker string
}

func recordedFolder(t *testing.T, name string) folder {
	t.Helper()
	from, run1 := filepath.Join("testdata", "recorded", name), recordedRuns[name]
	f := folder{t, filepath.Join(t.TempDir(), "out"), run1.marker}
	if strings.HasPrefix(run1.args, "conditions") { // which needs no server
		f.run(exitPassed, append(strings.Fields(run1.args), "--report-dir", f.dir)...)
		return f
	}
	if err := os.CopyFS(f.dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f folder) run(code int, args ...string) string {
	f.t.Helper()
	var out bytes.Buffer
	if got := run(args, &out, &out); got != code {
		f.t.Fatalf("%q: exit %d, want %d: %s", args, got, code, out.String())
	}
	return out.String()
}

// edit changes a file as JSON, and the digest of a piece of evidence with it.
func (f folder) edit(name string, change func(map[string]any)) {
	f.t.Helper()
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	packed := strings.HasSuffix(name, ".gz")
	if packed {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(r)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
	var v map[string]any
	if err := yaml.Unmarshal(data, &v); err != nil {
		f.t.Fatal(err)
	}
	change(v)
	if data, err = json.Marshal(v); err != nil {
		f.t.Fatal(err)
	}
	if packed {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(data)
		_ = w.Close()
		data = b.Bytes()
	}
	f.put(name, data)
}

// put writes a file, and its digest into the report; nil removes both.
func (f folder) put(name string, data []byte) {
	f.t.Helper()
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	err := os.WriteFile(path, data, 0o644)
	if data == nil {
		err = os.Remove(path)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if name == f.marker {
		return
	}
	f.edit(f.marker, func(r map[string]any) {
		files, _ := r["files"].(map[string]any)
		sum := sha256.Sum256(data)
		files[name] = hex.EncodeToString(sum[:])
		if data == nil {
			delete(files, name)
		}
	})
}

// at goes down into decoded JSON by fields and indexes.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

func object(v any, path ...any) map[string]any { return at(v, path...).(map[string]any) }

// swap exchanges two elements of a list.
func swap(list any, i, j int) { l := list.([]any); l[i], l[j] = l[j], l[i] }

// command changes a word of the recorded command line.
func command(from, to string) func(folder) {
	return func(f folder) {
		f.edit(f.marker, func(r map[string]any) {
			for i, word := range at(r, "command").([]any) {
				if word == from {
					at(r, "command").([]any)[i] = to
				}
			}
		})
	}
}

// drop takes the first impersonation header of a kind out of the requests that a piece of evidence has.
func drop(v any, header string) bool {
	switch v := v.(type) {
	case map[string]any:
		if headers, ok := v["headers"].(map[string]any); ok && headers[header] != nil {
			delete(headers, header)
			return true
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if drop(v[k], header) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return drop(e, header) })
	}
	return false
}

// resent changes what an attack sent.
func resent(e any, from, to string, path ...any) {
	sent := at(object(e, path...), "sent").([]any)
	sent[0] = strings.Replace(sent[0].(string), from, to, 1)
}
