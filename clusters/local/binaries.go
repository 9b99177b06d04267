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
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
)

// CacheVariable names the environment variable that moves the cache of built programs.
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
	// Source is where programs come from that are not there yet. If unset, AUTHZCONF_BINARIES or [Auto].
	Source string
	// Mirror is the URL under which copies of what is published lie, by their host and path. If unset,
	// AUTHZCONF_BINARIES_MIRROR or none.
	Mirror string
	// CacheDir is where programs are kept. If unset, AUTHZCONF_CACHE or authzconf in the
	// user's cache folder. kube-apiserver takes about 110 MB a release.
	CacheDir string
	// Progress receives lines while a program is being downloaded or built, one every few seconds, each in one Write and never
	// two at a time; nothing when it is there. If nil, nothing is reported.
	Progress io.Writer

	apiServers apiServers // those of RegisterAPIServers
	// goCommand is the go command, published what can be downloaded, asked what the run knows of hosts; tests name others.
	goCommand string
	published map[string]publication
	asked     *asked
	reporting sync.Mutex // held while a line is written
}

// Program is a program that was found.
type Program struct {
	Name    string
	Version string // the pinned one; empty if somebody else chose the program
	Path    string
	// Origin says where it came from.
	Origin string
}

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
		// Built from a module it does not know its version. The numbers of /version come from elsewhere.
		ldflags:  "-s -w -X k8s.io/component-base/version.gitVersion=v" + r.Version,
		variable: "TEST_ASSET_KUBE_APISERVER",
	}
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

// KubectlMinors returns the minors of which there is a kubectl beside the newest one, the oldest first.
func KubectlMinors() (minors []string) {
	for _, entry := range must(pins.ReadDir("versions")) {
		if minor, ok := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".mod"), "kubectl-"); ok && path.Ext(entry.Name()) == ".mod" {
			minors = append(minors, minor)
		}
	}
	return minors
}

// kubectl is of the pinned release of a minor, as kube-apiserver is, or of the newest one if minor is empty.
func kubectl(minor string) program {
	name := kubectlPin(minor)
	version := readPin(name).version(kubernetesModule)
	variable := "TEST_ASSET_KUBECTL"
	if minor != "" {
		variable += "_" + strings.ReplaceAll(minor, ".", "_")
	}
	return program{
		name: "kubectl", version: version, pin: name, pkg: kubernetesModule + "/cmd/kubectl", variable: variable,
		// The second is what the user agent says, as in a released kubectl.
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v" + version + " -X k8s.io/client-go/pkg/version.gitVersion=v" + version,
	}
}

// KubeAPIServer returns the path of a kube-apiserver of this release, downloading or building it if need be.
func (b *Binaries) KubeAPIServer(ctx context.Context, r Release) (string, error) {
	found, err := b.find(ctx, kubeAPIServer(r))
	return found.Path, err
}

// Etcd returns the path of an etcd, downloading or building it if need be.
func (b *Binaries) Etcd(ctx context.Context) (string, error) {
	found, err := b.find(ctx, etcd())
	return found.Path, err
}

// Kubectl returns the path of the kubectl of a minor, or of the newest one if minor is empty: the one that TEST_ASSET_KUBECTL
// names (TEST_ASSET_KUBECTL_1_34 for a minor), or else found as the other programs are. A minor of which there is none is a
// [*usage.Error].
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

// Kubectls returns the paths of the kubectls of several minors, by minor; nil for none.
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

func (b *Binaries) find(ctx context.Context, p program) (Program, error) {
	source := cmp.Or(b.Source, os.Getenv(SourceVariable), Auto)
	if !slices.Contains([]string{Auto, Official, Build}, source) {
		return Program{}, &usage.Error{Problem: fmt.Sprintf("programs cannot come from %q", source), Hint: "--binaries and " + SourceVariable + " are auto, official or build"}
	}
	path, err := namedProgram(p, os.Getenv)
	if path != "" || err != nil {
		return Program{Name: p.name, Path: path, Origin: originEnvironment}, err
	}
	o, err := b.offer(p)
	official := Program{p.name, p.version, o.target, o.origin}
	if err != nil {
		return official, err
	}
	if source != Build && o.cached() {
		return official, nil
	}
	module, target, unbuildable := b.place(ctx, p)
	built := Program{p.name, p.version, target, originBuilt}
	there := func() bool { return isFile(target) }
	if source != Official && unbuildable == nil && there() {
		return built, nil
	}
	if source != Build {
		if done, err := b.download(ctx, p, o, source); done {
			return official, err
		}
	}
	if unbuildable != nil {
		return built, unbuildable
	}
	return built, b.once(ctx, p, target, there, func() error { return b.compile(ctx, p, module, target) })
}

// download fetches an official program, and reports whether that is all that can be done: it is not if the program cannot
// be had, and may be built instead.
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
	if err != errSilent { //nolint:errorlint // the first time, what is wrapped is said
		b.report("%s %s cannot be downloaded and is built instead; a host that does not answer is not asked again in this run: %v", p.name, p.version, err)
	}
	return false, nil
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
	// Progress that cannot be shown must not fail a build.
	_, _ = io.WriteString(b.Progress, strings.TrimRight(fmt.Sprintf(format, args...), "\n")+"\n")
}

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
		return "", &usage.Error{Problem: "there is no go command", Hint: "install Go", Err: err}
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// pins holds one module file and its checksums for each program that can be built. They are not
// called go.mod and go.sum because go:embed takes nothing from a folder that is another module.
//
//go:embed versions/*.mod versions/*.sum
var pins embed.FS

const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// Release is one Kubernetes minor this package can build, pinned to one patch version.
type Release struct {
	Minor   string // "1.37"
	Version string // the pinned patch version, "1.37.1", without a leading v
}

// String returns the patch version.
func (r Release) String() string { return r.Version }

// Releases returns the pinned releases, newest last.
func Releases() []Release { return slices.Clone(releases) }

// Newest is the last of the pinned releases.
func Newest() Release { return releases[len(releases)-1] }

// releases is read once; the embedded files cannot change, and a test reads them all.
var releases = func() (out []Release) {
	for _, entry := range must(pins.ReadDir("versions")) {
		if minor, ok := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".mod"), "kubernetes-"); ok && path.Ext(entry.Name()) == ".mod" {
			out = append(out, Release{Minor: minor, Version: readPin("kubernetes-" + minor).version(kubernetesModule)})
		}
	}
	slices.SortFunc(out, func(a, b Release) int { return must(version.MustParseGeneric(a.Version).Compare(b.Version)) })
	return out
}()

// must is for what is embedded, which can only be wrong at compile time.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// ParseRelease finds the pinned release of a minor ("1.37", "v1.37") or of exactly the pinned patch version
// ("1.37.1"). The empty string is the newest. Anything else is a [*usage.Error] that names the known releases.
func ParseRelease(s string) (Release, error) {
	wanted := strings.TrimPrefix(strings.TrimSpace(s), "v")
	if wanted == "" && s == "" {
		return Newest(), nil
	}
	for _, r := range releases {
		if wanted == r.Minor || wanted == r.Version {
			return r, nil
		}
	}
	return Release{}, &usage.Error{
		Problem: fmt.Sprintf("Kubernetes version %q is not one of those that can be run here", s),
		Hint:    "use one of " + knownReleases(),
	}
}

func knownReleases() string {
	names := seq.Map(releases, func(r Release) string { return fmt.Sprintf("%s (%s)", r.Minor, r.Version) })
	return strings.Join(names, ", ")
}

// emulated checks an emulated version against the release that is to emulate it. How far back a
// release reaches is left to it: kube-apiserver refuses what it cannot emulate.
func (r Release) emulated(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	minor := strings.TrimPrefix(s, "v")
	parsed, err := version.ParseGeneric(minor)
	if err != nil || strings.Count(minor, ".") != 1 {
		return "", &usage.Error{
			Problem: fmt.Sprintf("emulated version %q is not a minor version", s),
			Hint:    `write it like "1.36"`,
			Err:     err,
		}
	}
	if version.MustParseGeneric(r.Minor).LessThan(parsed) {
		return "", &usage.Error{
			Problem: fmt.Sprintf("Kubernetes %s cannot emulate the newer version %s", r.Version, minor),
			Hint:    "emulate an older minor, or run a newer release: " + knownReleases(),
		}
	}
	return minor, nil
}

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
