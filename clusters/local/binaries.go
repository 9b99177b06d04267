package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// CacheVariable names the environment variable that moves the cache of built programs.
const CacheVariable = "AUTHZCONF_CACHE"

// Binaries finds etcd and kube-apiserver. In order: the program named by TEST_ASSET_KUBE_APISERVER or
// TEST_ASSET_ETCD; the one in the folder KUBEBUILDER_ASSETS; one built before, in the cache; a build from the
// pinned module, with the Go toolchain. A variable that is set but names no program is a [*UsageError]: silently
// running another one would make every result wrong.
//
// Programs named by variables may be of any version, whatever release was asked for: whoever
// needs to know has to ask the running server.
//
// The zero value is ready for use.
type Binaries struct {
	// CacheDir is where built programs are kept. If unset, AUTHZCONF_CACHE or authzconf in the
	// user's cache folder. kube-apiserver takes about 110 MB a release.
	CacheDir string
	// Progress receives lines while a program is being built, one every few seconds, each in one Write and never
	// two at a time; nothing when it need not be built. If nil, nothing is reported.
	Progress io.Writer

	// goCommand is the go command; tests name others.
	goCommand string
	// reporting is held while a line is written.
	reporting sync.Mutex
}

// program is one of the two programs, at a version.
type program struct {
	name     string // its file's name
	version  string
	pin      string // its module file under versions/
	pkg      string // its main package
	ldflags  string
	variable string // names one to use instead
}

func kubeAPIServer(r Release) program {
	return program{
		name:    "kube-apiserver",
		version: r.Version,
		pin:     "kubernetes-" + r.Minor,
		pkg:     kubernetesModule + "/cmd/kube-apiserver",
		// Built from a module it does not know its version. The major and minor numbers of
		// /version come from elsewhere.
		ldflags:  "-s -w -X k8s.io/component-base/version.gitVersion=v" + r.Version,
		variable: "TEST_ASSET_KUBE_APISERVER",
	}
}

func etcd() (program, error) {
	return program{name: "etcd", pin: "etcd", pkg: etcdModule, ldflags: "-s -w", variable: "TEST_ASSET_ETCD"}.pinned(etcdModule)
}

// kubectl is built from the pinned release's own source, as kube-apiserver is.
func kubectl() (program, error) {
	p, err := program{name: "kubectl", pin: "kubectl", pkg: kubernetesModule + "/cmd/kubectl", variable: "TEST_ASSET_KUBECTL"}.pinned(kubernetesModule)
	// The second is what the user agent says, as in a released kubectl.
	p.ldflags = "-s -w -X k8s.io/component-base/version.gitVersion=v" + p.version +
		" -X k8s.io/client-go/pkg/version.gitVersion=v" + p.version
	return p, err
}

// pinned is the program at the version that its module file requires of a module.
func (p program) pinned(module string) (program, error) {
	pin, err := readPin(p.pin)
	if err != nil {
		return p, err
	}
	p.version, err = pin.version(module)
	return p, err
}

// KubeAPIServer returns the path of a kube-apiserver of this release, building it if need be,
// which takes minutes the first time.
func (b *Binaries) KubeAPIServer(ctx context.Context, r Release) (string, error) {
	return b.find(ctx, kubeAPIServer(r))
}

// Etcd returns the path of an etcd, building it if need be, which takes about a minute the first time.
func (b *Binaries) Etcd(ctx context.Context) (string, error) { return b.findPinned(ctx, etcd) }

// Kubectl returns the path of a kubectl: the one TEST_ASSET_KUBECTL names, or else found as the
// other programs are. It is one version, whatever the control planes are.
func (b *Binaries) Kubectl(ctx context.Context) (string, error) { return b.findPinned(ctx, kubectl) }

func (b *Binaries) findPinned(ctx context.Context, of func() (program, error)) (string, error) {
	program, err := of()
	if err != nil {
		return "", err
	}
	return b.find(ctx, program)
}

func (b *Binaries) find(ctx context.Context, p program) (string, error) {
	path, err := namedProgram(p, os.Getenv)
	if path != "" || err != nil {
		return path, err
	}
	return b.build(ctx, p)
}

// namedProgram looks for a program that variables name; "" if none does.
func namedProgram(p program, getenv func(string) string) (string, error) {
	variable, path := p.variable, getenv(p.variable)
	if path == "" {
		dir := getenv("KUBEBUILDER_ASSETS")
		if dir == "" {
			return "", nil
		}
		variable, path = "KUBEBUILDER_ASSETS", filepath.Join(dir, p.name)
	}
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = errors.New("not an executable file")
	}
	if err != nil {
		return "", &UsageError{
			Problem: fmt.Sprintf("%s names no usable %s: %s: %v", variable, p.name, path, rootCause(err)),
			Hint:    "correct it, or unset it to have the program built",
			Err:     err,
		}
	}
	// Children run in another folder.
	return filepath.Abs(path)
}

// cacheDir is the folder of built programs.
func (b *Binaries) cacheDir() (string, error) {
	if b.CacheDir != "" {
		return filepath.Abs(b.CacheDir)
	}
	return folderFor("no folder to cache programs in", CacheVariable, "")
}

// report writes a line of progress.
func (b *Binaries) report(format string, args ...any) {
	if b.Progress == nil {
		return
	}
	b.reporting.Lock()
	defer b.reporting.Unlock()
	// Progress that cannot be shown must not fail a build.
	_, _ = io.WriteString(b.Progress, strings.TrimRight(fmt.Sprintf(format, args...), "\n")+"\n")
}

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
