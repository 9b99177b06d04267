package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Variant is a kube-apiserver built from changed copies of modules. It never takes the place of a release: [Binaries]
// builds it only when it is asked for by [Binaries.KubeAPIServerVariant].
type Variant struct {
	// Name is part of the program's file name: a word for people.
	Name string
	// Modules are the paths of the modules to build from changed copies.
	Modules []string
	// Key stands for what Change does, in the name of the built program: the same key is the same program.
	Key string
	// Change changes the copy of a module in dir, just before the build. Tests are not in the copy.
	Change func(module, dir string) error
}

// KubeAPIServerVariant builds a variant of a release, or returns it from the cache. The
// environment variables that name ready-made programs have no say here.
func (b *Binaries) KubeAPIServerVariant(ctx context.Context, r Release, v Variant) (_ string, err error) {
	p := kubeAPIServer(r)
	base, plain, err := b.place(ctx, p)
	if err != nil {
		return "", err
	}
	pin, err := readPin(p.pin)
	if err != nil {
		return "", err
	}
	for _, module := range v.Modules {
		pin.mod = fmt.Appendf(pin.mod, "\nreplace %s => ./%s\n", module, replaced(module))
	}
	pin.mod = append(pin.mod, "// "+v.Key+"\n"...)
	goVersion, err := b.goVersion(ctx, base)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%s-%s-%s", p.name, p.version, v.Name, cacheKey(p, pin, goVersion))
	target := filepath.Join(filepath.Dir(plain), name)
	return b.buildOnce(ctx, p, target, func() (source string, remove func(), err error) {
		return b.placeVariant(ctx, base, pin, v)
	})
}

// placeVariant writes the variant's module, and the changed copy, into a folder for one build.
func (b *Binaries) placeVariant(ctx context.Context, base string, pin pin, v Variant) (source string, remove func(), err error) {
	source, err = os.MkdirTemp(filepath.Dir(base), filepath.Base(base)+"-"+v.Name+"-")
	if err != nil {
		return "", nil, folderError("cache folder", filepath.Dir(base), CacheVariable, err)
	}
	folder := source
	remove = func() { _ = os.RemoveAll(folder) }
	defer func() {
		if err != nil {
			_ = os.RemoveAll(folder)
		}
	}()
	for name, data := range map[string][]byte{"go.mod": pin.mod, "go.sum": pin.sum} {
		if err := os.WriteFile(filepath.Join(source, name), data, 0o644); err != nil {
			return "", nil, folderError("cache folder", source, CacheVariable, err)
		}
	}
	for _, module := range v.Modules {
		out, err := b.GoOutput(ctx, base, "list", "-m", "-f", "{{.Dir}}", module)
		if err != nil {
			return "", nil, err
		}
		to := filepath.Join(source, replaced(module))
		if err := copyModule(strings.TrimSpace(out), to); err != nil {
			return "", nil, folderError("cache folder", source, CacheVariable, err)
		}
		if err := v.Change(module, to); err != nil {
			return "", nil, err
		}
	}
	return source, remove, nil
}

// replaced is the folder of the copy of a module.
func replaced(module string) string { return "replaced-" + path.Base(module) }

// PinnedModule writes the module a release is built from into the cache and returns its folder,
// in which go commands see exactly the packages of the built program.
func (b *Binaries) PinnedModule(ctx context.Context, r Release) (string, error) {
	source, _, err := b.place(ctx, kubeAPIServer(r))
	return source, err
}

// GoOutput runs a go command in a folder, with the settings of builds, and returns what it prints.
func (b *Binaries) GoOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := b.goCmd(ctx, dir, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := RunChild(cmd)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", &UsageError{Problem: "there is no go command", Hint: "install Go", Err: err}
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

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
