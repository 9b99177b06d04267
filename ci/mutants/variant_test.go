package mutants

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// variant is a kube-apiserver built from changed copies of modules.
type variant struct {
	// name is part of the program's file name: a word for people.
	name string
	// modules are the paths of the modules to build from changed copies.
	modules []string
	// key stands for what change does, in the name of the built program: the same key is the same program.
	key string
	// change changes the copy of a module in dir, just before the build. Tests are not in the copy.
	change func(module, dir string) error
}

// build builds a variant of a release as local.Binaries builds the release, or returns it from the cache.
func (v variant) build(ctx context.Context, b *local.Binaries, r local.Release) (string, error) {
	base, err := b.PinnedModule(ctx, r)
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(base, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(base, "go.sum"))
	if err != nil {
		return "", err
	}
	for _, module := range v.modules {
		mod = fmt.Appendf(mod, "\nreplace %s => ./%s\n", module, replaced(module))
	}
	mod = append(mod, "// "+v.key+"\n"...)
	goVersion, err := b.GoOutput(ctx, base, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	const pkg = "k8s.io/kubernetes/cmd/kube-apiserver"
	args := []string{
		"build",
		"-v",
		"-mod=readonly",
		"-trimpath",
		"-ldflags",
		"-s -w -X k8s.io/component-base/version.gitVersion=v" + r.Version,
	}
	hash := sha256.New()
	for _, s := range append(append(local.BuildEnv(), args...), pkg, strings.TrimSpace(goVersion), string(mod), string(sum)) {
		_, _ = fmt.Fprintf(hash, "%d:%s\n", len(s), s)
	}
	bin := filepath.Join(filepath.Dir(filepath.Dir(base)), "bin")
	target := filepath.Join(bin, fmt.Sprintf("kube-apiserver-%s-%s-%s", r.Version, v.name, hex.EncodeToString(hash.Sum(nil))[:16]))
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := local.WaitLock(ctx, target+".lock", nil)
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	source, err := os.MkdirTemp(filepath.Dir(base), filepath.Base(base)+"-"+v.name+"-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(source) }()
	if err := v.place(ctx, b, base, source, mod, sum); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", target+".partial", pkg)...)
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, &output, &output
	cmd.Env = append(os.Environ(), append(local.BuildEnv(), "PWD="+source)...)
	if err := local.RunChild(cmd); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", v.name, err, output.Bytes()[max(0, output.Len()-4<<10):])
	}
	return target, os.Rename(target+".partial", target)
}

// place writes the variant's module, and the changed copies, into a folder.
func (v variant) place(ctx context.Context, b *local.Binaries, base, source string, mod, sum []byte) error {
	err := errors.Join(os.WriteFile(filepath.Join(source, "go.mod"), mod, 0o644), os.WriteFile(filepath.Join(source, "go.sum"), sum, 0o644))
	for _, module := range v.modules {
		if err != nil {
			return err
		}
		var from string
		if from, err = b.GoOutput(ctx, base, "list", "-m", "-f", "{{.Dir}}", module); err != nil {
			return err
		}
		to := filepath.Join(source, replaced(module))
		if err = copyModule(strings.TrimSpace(from), to); err == nil {
			err = v.change(module, to)
		}
	}
	return err
}

// replaced is the folder of the copy of a module.
func replaced(module string) string { return "replaced-" + path.Base(module) }

// copyModule copies a module without its tests. Files of the module cache cannot be written to; the copies can.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && entry.Name() == "testdata":
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		case strings.HasSuffix(relative, "_test.go") || !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), data, 0o644)
	})
}

// TestCopyModule copies what is built, and makes it writable.
func TestCopyModule(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, mode := range map[string]os.FileMode{
		"go.mod": 0o444, "a/a.go": 0o444, "a/a_test.go": 0o444, "a/testdata/x.go": 0o444, "a/embedded.txt": 0o444,
	} {
		path := filepath.Join(from, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyModule(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"go.mod": true, "a/a.go": true, "a/embedded.txt": true, "a/a_test.go": false, "a/testdata/x.go": false} {
		path := filepath.Join(to, filepath.FromSlash(name))
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is copied: %v, want %v", name, !want, want)
		}
		if want {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Errorf("%s cannot be changed: %v", name, err)
			}
		}
	}
}

// TestVariantThatCannotBeChanged leaves nothing behind.
func TestVariantThatCannotBeChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command for a module")
	}
	cache := t.TempDir()
	b := &local.Binaries{CacheDir: cache}
	broken := errors.New("broken")
	_, err := variant{
		"test",
		[]string{"sigs.k8s.io/yaml"},
		"k",
		func(_, _ string) error { return broken },
	}.build(
		t.Context(),
		b,
		local.Newest(),
	)
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want that of the change", err)
	}
	left, globErr := filepath.Glob(filepath.Join(cache, "modules", "*-test-*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, globErr)
	}
}
