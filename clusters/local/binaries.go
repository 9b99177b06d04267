package local

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/modfile"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/internal/usage"
)

// CacheVariable names the environment variable that moves the cache of programs.
const CacheVariable = "AUTHZCONF_CACHE"

// Binaries finds etcd and kube-apiserver. In order: the program named by TEST_ASSET_KUBE_APISERVER or TEST_ASSET_ETCD;
// the one in the folder KUBEBUILDER_ASSETS; one downloaded or built before, in the cache; the one that the project has
// published, whose digest is checked; a build from the pinned module, with the Go toolchain. A variable that is set but
// names no program is a [*usage.Error]: silently running another one would make every result wrong.
//
// Programs named by variables may be of any version, whatever release was asked for: only the running server tells.
//
// The zero value is ready for use.
type Binaries struct {
	// Source says where programs come from that do not exist yet. If it is empty, AUTHZCONF_BINARIES decides, or else
	// [Auto].
	Source string
	// Mirror is the URL below which there are copies of what is published, by host and path. If it is empty,
	// AUTHZCONF_BINARIES_MIRROR decides, or else there is none.
	Mirror string
	// CacheDir is the folder in which programs are kept. If it is empty, AUTHZCONF_CACHE decides, or else it is
	// authzconf in the user's cache folder. A kube-apiserver takes about 110 MB for each release.
	CacheDir string
	// Progress receives lines while a program is downloaded or built, one every few seconds. Each line is one Write,
	// and there are never two at the same time. It receives nothing if the program exists already. If it is nil,
	// nothing is reported.
	Progress io.Writer

	apiServers apiServers     // those of RegisterAPIServers
	flags      *pflag.FlagSet // the flags of RegisterSource
	sourceDir  string         // the flag --source
	tree       SourceTree     // the content of that folder, once Resolve has read it
	// goCommand is the go command, published says what can be downloaded, and hostAnswers is what the run knows about hosts.
	// Tests set others.
	goCommand   string
	published   map[string]publication
	hostAnswers *hostAnswers
	reporting   sync.Mutex // locked while a line is written
}

// Program is a program that was found.
type Program struct {
	Name    string
	Version string // the pinned version; empty if somebody else chose the program
	Path    string
	// Origin says where the program came from. Source says from which text it was built, if that is neither a release
	// nor pinned.
	Origin, Source string
}

type program struct {
	name     string // its file's name
	version  string
	pin      string // its module file under versions/; empty for a version that is not pinned
	pkg      string // its main package
	ldflags  string
	variable string // names a program to use instead
}

func kubeAPIServer(r Release) program {
	p := program{
		name:    "kube-apiserver",
		version: r.Version,
		pkg:     kubeAPIServerPackage,
		// A program that is built from a module does not know its version. The numbers of /version come from elsewhere.
		ldflags:  "-s -w -X k8s.io/component-base/version.gitVersion=v" + r.Version,
		variable: "TEST_ASSET_KUBE_APISERVER",
	}
	if r.IsPinned() {
		p.pin = kubernetesPin + r.Minor
	}
	return p
}

func etcd() program {
	version := readPin("etcd").version(etcdModule)
	return program{name: "etcd", version: version, pin: "etcd", pkg: etcdModule, ldflags: "-s -w", variable: "TEST_ASSET_ETCD"}
}

// kubectlPin returns the name of the module files of the kubectl of a minor, or of the newest one if it is empty.
func kubectlPin(minor string) string {
	if minor == "" {
		return "kubectl"
	}
	return "kubectl-" + minor
}

// KubectlMinors returns the minors for which there is a kubectl in addition to the newest one, beginning with the
// oldest.
func KubectlMinors() (minors []string) {
	for _, entry := range must(pins.ReadDir("versions")) {
		if minor, ok := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".mod"), "kubectl-"); ok && path.Ext(entry.Name()) == ".mod" {
			minors = append(minors, minor)
		}
	}
	return minors
}

// kubectl returns the kubectl of the pinned release of a minor, as for kube-apiserver, or the newest one if minor is
// empty.
func kubectl(minor string) program {
	name := kubectlPin(minor)
	version := readPin(name).version(kubernetesModule)
	variable := "TEST_ASSET_KUBECTL"
	if minor != "" {
		variable += "_" + strings.ReplaceAll(minor, ".", "_")
	}
	return program{
		name:     "kubectl",
		version:  version,
		pin:      name,
		pkg:      kubernetesModule + "/cmd/kubectl",
		variable: variable,
		// The second is what the user agent contains, as in a released kubectl.
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v" + version + " -X k8s.io/client-go/pkg/version.gitVersion=v" + version,
	}
}

// KubeAPIServer returns the path of a kube-apiserver of this release, downloading or building it if need be.
func (b *Binaries) KubeAPIServer(ctx context.Context, r Release) (string, error) {
	found, err := b.findAPIServer(ctx, r)
	return found.Path, err
}

// findAPIServer finds the kube-apiserver of a release, or builds that of the source tree that has this version.
func (b *Binaries) findAPIServer(ctx context.Context, r Release) (Program, error) {
	p := kubeAPIServer(r)
	isOfTree := b.tree.Version != "" && b.tree.Version == r.Version
	if !isOfTree {
		return b.find(ctx, p)
	}
	if path, err := namedProgram(p, os.Getenv); path != "" || err != nil {
		return Program{}, &usage.Error{
			Problem: "--source names a tree, and " + p.variable + " or KUBEBUILDER_ASSETS a program",
			Hint:    "leave one of them out",
			Err:     err,
		}
	}
	return b.buildTree(ctx, p)
}

// Etcd returns the path of an etcd, downloading or building it if need be.
func (b *Binaries) Etcd(ctx context.Context) (string, error) {
	found, err := b.find(ctx, etcd())
	return found.Path, err
}

// Kubectl returns the path of the kubectl of a minor, or of the newest one if minor is empty. It is the program that
// TEST_ASSET_KUBECTL names (TEST_ASSET_KUBECTL_1_34 for a minor), or else it is found as the other programs are. A
// minor without a kubectl is a [*usage.Error].
func (b *Binaries) Kubectl(ctx context.Context, minor string) (string, error) {
	if minor != "" && !slices.Contains(KubectlMinors(), minor) {
		return "", &usage.Error{
			Problem: fmt.Sprintf("there is no kubectl of the minor %q", minor),
			Hint:    "leave it out for the newest one, or name one of " + strings.Join(KubectlMinors(), ", "),
		}
	}
	found, err := b.find(ctx, kubectl(minor))
	return found.Path, err
}

// Kubectls returns the paths of the kubectls of several minors, by minor, or nil if there are none.
func (b *Binaries) Kubectls(ctx context.Context, minors []string) (programs map[string]string, err error) {
	for _, minor := range minors {
		if programs == nil {
			programs = map[string]string{}
		}
		if programs[minor], err = b.Kubectl(ctx, minor); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// HasKubectls reports whether the kubectls of several minors exist already, so that nothing has to be downloaded or
// built. One that Kubectls would refuse counts as existing.
func (b *Binaries) HasKubectls(ctx context.Context, minors []string) bool {
	return !slices.ContainsFunc(minors, func(minor string) bool {
		_, _, isThere, err := b.findThere(ctx, kubectl(minor))
		return err == nil && !isThere
	})
}

func (b *Binaries) find(ctx context.Context, p program) (Program, error) {
	found, o, isThere, err := b.findThere(ctx, p)
	if isThere || err != nil {
		return found, err
	}
	var refused error
	if source := b.source(); source != Build {
		done, err := b.download(ctx, p, o, source)
		if done {
			return found, err
		}
		refused = err
	}
	return b.build(ctx, p, refused)
}

// source returns where programs come from: as requested, or as the environment says.
func (b *Binaries) source() string {
	return cmp.Or(b.Source, os.Getenv(SourceVariable), Auto)
}

// findThere finds a program that exists already. If it does not exist, it returns the official one as it would be
// downloaded.
func (b *Binaries) findThere(ctx context.Context, p program) (found Program, o offer, isThere bool, err error) {
	source := b.source()
	if !slices.Contains([]string{Auto, Official, Build}, source) {
		return found, o, false, &usage.Error{
			Problem: fmt.Sprintf("programs cannot come from %q", source),
			Hint:    "--binaries and " + SourceVariable + " are auto, official or build",
		}
	}
	path, err := namedProgram(p, os.Getenv)
	if path != "" || err != nil {
		return Program{Name: p.name, Path: path, Origin: originEnvironment}, o, true, err
	}
	o, err = b.offer(p)
	official := Program{Name: p.name, Version: p.version, Path: o.target, Origin: o.origin}
	if err != nil {
		return official, o, false, err
	}
	if source != Build && o.cached() {
		return official, o, true, nil
	}
	if source != Official {
		if built, isBuilt := b.findBuilt(ctx, p); isBuilt {
			return built, o, true, nil
		}
	}
	return official, o, false, nil
}

// findBuilt finds a program that was built before.
func (b *Binaries) findBuilt(ctx context.Context, p program) (built Program, isThere bool) {
	if p.pin == "" && !b.hasModule(p) {
		return Program{}, false // making its module needs the network
	}
	_, built, err := b.place(ctx, p)
	return built, err == nil && isFile(built.Path)
}

// build builds a program from modules. refused says why it was not downloaded.
func (b *Binaries) build(ctx context.Context, p program, refused error) (Program, error) {
	if p.pin == "" {
		if err := b.makeModule(ctx, p, refused); err != nil {
			return Program{}, err
		}
	}
	module, built, err := b.place(ctx, p)
	if err != nil {
		return built, err
	}
	isPresent := func() bool { return isFile(built.Path) }
	return built, b.once(ctx, p, built.Path, isPresent, func() error { return b.compile(ctx, p, module, built.Path) })
}

// download downloads an official program. It reports whether nothing else can be done; if the program is not available,
// it may be built instead, and then the error says why.
func (b *Binaries) download(ctx context.Context, p program, o offer, source string) (done bool, err error) {
	err = b.fetch(ctx, p, o)
	switch {
	case err == nil, usage.Is(err), ctx.Err() != nil:
		return true, err
	case source == Official:
		return true, &usage.Error{
			Problem: fmt.Sprintf("there is no official %s %s: %v", p.name, p.version, err),
			Hint:    "let HTTPS_PROXY name a proxy or " + MirrorVariable + " a mirror, or allow a build with --binaries auto", Err: err,
		}
	}
	if err != errSilent { //nolint:errorlint // the wrapped error is reported only the first time
		b.report(
			"%s %s cannot be downloaded and is built instead; a host that does not answer is not asked again in this run: %v",
			p.name,
			p.version,
			err,
		)
	}
	return false, err
}

// namedProgram returns the program that variables name, or "" if none does.
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
	if err == nil && !isExecutable(info) {
		err = errors.New("not an executable file")
	}
	if err != nil {
		return "", &usage.Error{
			Problem: fmt.Sprintf("%s names no usable %s: %s: %v", variable, p.name, path, rootCause(err)),
			Hint:    "correct it, or unset it to have the program downloaded or built",
			Err:     err,
		}
	}
	// Children run in another folder.
	return filepath.Abs(path)
}

func isExecutable(f os.FileInfo) bool { return !f.IsDir() && f.Mode()&0o111 != 0 }

func (b *Binaries) cacheDir() (string, error) {
	if b.CacheDir != "" {
		return filepath.Abs(b.CacheDir)
	}
	return folderFor("no folder to cache programs in", CacheVariable, "")
}

func (b *Binaries) report(format string, args ...any) {
	if b.Progress == nil {
		return
	}
	b.reporting.Lock()
	defer b.reporting.Unlock()
	// A failure to show progress must not fail a build.
	_, _ = io.WriteString(b.Progress, strings.TrimRight(fmt.Sprintf(format, args...), "\n")+"\n")
}

// PinnedModule writes the module from which a release is built into the cache and returns its folder. There, go
// commands see exactly the packages of the built program.
func (b *Binaries) PinnedModule(ctx context.Context, r Release) (string, error) {
	module, _, err := b.place(ctx, kubeAPIServer(r))
	return module.dir, err
}

// GoOutput runs a go command in a folder, with the settings of builds, and returns what it prints.
func (b *Binaries) GoOutput(ctx context.Context, dir string, args ...string) (string, error) {
	return b.runGo(ctx, newModule(dir), args...)
}

// runGo runs a go command in a module. It returns what the command has printed even with an error, because some
// commands print there what is wrong.
func (b *Binaries) runGo(ctx context.Context, m module, args ...string) (string, error) {
	cmd := b.goCmd(ctx, m, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := RunChild(cmd)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", &usage.Error{Problem: "there is no go command", Hint: "install Go", Err: err}
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return stdout.String(), fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// pins holds one module file and its checksums for each program that can be built. They are not
// called go.mod and go.sum because go:embed takes nothing from a folder that is another module.
//
//go:embed versions/*.mod versions/*.sum
var pins embed.FS

const (
	kubernetesModule     = "k8s.io/kubernetes"
	kubeAPIServerPackage = kubernetesModule + "/cmd/kube-apiserver"
	etcdModule           = "go.etcd.io/etcd/server/v3"
	// kubernetesPin is the beginning of the names of kube-apiserver's module files.
	kubernetesPin = "kubernetes-"
)

type pin struct {
	name     string
	mod, sum []byte
}

func readPin(name string) pin {
	read := func(ext string) []byte { return must(pins.ReadFile("versions/" + name + ext)) }
	return pin{name: name, mod: read(".mod"), sum: read(".sum")}
}

func (p pin) version(module string) string {
	file := must(modfile.ParseLax(p.name+".mod", p.mod, nil))
	i := slices.IndexFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == module })
	return strings.TrimPrefix(file.Require[i].Mod.Version, "v")
}
