package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/internal/usage"
)

const progressInterval = 5 * time.Second

// BuildEnv returns the environment of builds. It is fixed, so that a user's settings change neither a program nor its
// key in the cache.
func BuildEnv() []string {
	return []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH}
}

// module is a folder in which a program is built, and how.
type module struct {
	dir string
	// contents name what is built. Equal contents give the same program.
	contents []string
	// env are the settings of the go command. flags are those of its flags that say how modules are found.
	env, flags []string
}

// newModule returns the module of a folder that has a go.mod and a go.sum, and nothing else.
func newModule(dir string, contents ...string) module {
	return module{dir: dir, contents: contents, env: BuildEnv(), flags: []string{"-mod=readonly"}}
}

func (m module) buildArgs(p program) []string {
	return slices.Concat([]string{"build", "-v"}, m.flags, []string{"-trimpath", "-ldflags", p.ldflags})
}

// cacheKey returns the key of a built program in the cache.
func (m module) cacheKey(p program, goVersion string) string {
	hash := sha256.New()
	for _, s := range slices.Concat(m.env, m.buildArgs(p), []string{p.pkg, goVersion}, m.contents) {
		_, _ = fmt.Fprintf(hash, "%d:%s\n", len(s), s)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// once produces the target unless it exists. If several processes and goroutines want the same program, one makes it
// and the others wait.
func (b *Binaries) once(ctx context.Context, p program, target string, isPresent func() bool, produce func() error) error {
	if isPresent() {
		return nil
	}
	cache := filepath.Dir(target)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return folderError("cache folder", cache, CacheVariable, err)
	}
	waiting := fmt.Sprintf("waiting for another process that is making %s %s", p.name, p.version)
	lock, err := WaitLock(ctx, target+".lock", func() { b.report("%s", waiting) })
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s: %w", waiting, err)
	case err != nil:
		return folderError("cache folder", cache, CacheVariable, err)
	}
	defer lock.Unlock()
	if isPresent() {
		return nil
	}
	return produce()
}

// place returns the module that a program is built in, in the cache, and the program that comes out, built or not.
func (b *Binaries) place(ctx context.Context, p program) (m module, built Program, err error) {
	pin, origin := pin{}, originUnpinned
	if p.pin != "" {
		pin, origin = readPin(p.pin), originBuilt
	}
	dir, err := b.moduleDir(p)
	if err != nil {
		return m, built, err
	}
	if p.pin == "" {
		pin, err = readModule(dir)
	} else {
		err = pin.write(dir)
	}
	if err != nil {
		return m, built, folderError("cache folder", dir, CacheVariable, err)
	}
	m = newModule(dir, string(pin.mod), string(pin.sum))
	built, err = b.placeBuilt(ctx, p, m)
	built.Origin = origin
	return m, built, err
}

// moduleDir makes the folder of the module in which a program is built.
func (b *Binaries) moduleDir(p program) (string, error) {
	cache, err := b.cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "modules", cmp.Or(p.pin, kubernetesPin+p.version))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", folderError("cache folder", cache, CacheVariable, err)
	}
	return dir, nil
}

// placeBuilt returns the program that is built in a module, with the place that it has in the cache.
func (b *Binaries) placeBuilt(ctx context.Context, p program, m module) (built Program, err error) {
	cache, err := b.cacheDir()
	if err != nil {
		return built, err
	}
	goVersion, err := b.goVersion(ctx, m)
	if err != nil {
		return built, err
	}
	target := filepath.Join(cache, "bin", fmt.Sprintf("%s-%s-%s", p.name, p.version, m.cacheKey(p, goVersion)))
	return Program{Name: p.name, Version: p.version, Path: target}, nil
}

// writeIfChanged writes a file unless it has the content already. A changed file is replaced in one step.
func writeIfChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return WriteFile(path, data)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// goVersion asks the go command for the version of the toolchain that the module selects.
func (b *Binaries) goVersion(ctx context.Context, m module) (string, error) {
	out, err := b.runGo(ctx, m, "env", "GOVERSION")
	if errors.Is(err, exec.ErrNotFound) {
		return "", &usage.Error{
			Problem: "control planes are built with the Go toolchain, and there is no go command",
			Hint:    "install Go, or name ready-made programs with TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD",
			Err:     err,
		}
	}
	return strings.TrimSpace(out), err
}

func (b *Binaries) goCmd(ctx context.Context, m module, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(b.goCommand, "go"), args...)
	cmd.Dir = m.dir
	cmd.Env = slices.Concat(os.Environ(), m.env, []string{"PWD=" + m.dir})
	// Compilers may keep the output open a moment longer than the go command.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// RunChild runs a command to its end. Like the control planes, the child dies with this process. When the command's
// context ends, the child is killed with everything that it has started.
func RunChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = sysProcAttr()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A process that inherited the output must not keep us waiting.
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, time.Second)
	// This thread starts the child, and its end would kill the child: see process.run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// compile builds to a file beside the target and renames it, so that the target is complete or does not exist.
func (b *Binaries) compile(ctx context.Context, p program, m module, target string) error {
	partial := target + ".partial"
	defer func() { _ = os.Remove(partial) }()
	cmd := b.goCmd(ctx, m, append(m.buildArgs(p), "-o", partial, p.pkg)...)
	output := &buildOutput{}
	cmd.Stderr = &lineWriter{to: output}
	cmd.Stdout = cmd.Stderr
	begin := time.Now()
	b.report("building %s %s into %s: some minutes the first time, at once from then on", p.name, p.version, filepath.Dir(target))
	counting, enough := context.WithCancel(ctx)
	count := sync.OnceFunc(func() { b.count(counting, p, m, output) })
	stop := reportEvery(progressInterval, func() {
		count()
		b.report("building %s %s: %s, %s", p.name, p.version, output.progress(time.Since(begin)), time.Since(begin).Round(time.Second))
	})
	err := RunChild(cmd)
	enough()
	stop()
	if err == nil {
		err = os.Rename(partial, target)
	}
	if err != nil {
		return buildError(ctx, p, filepath.Dir(target), guarded(&output.mu, &output.last), err)
	}
	b.report("built %s %s in %s", p.name, p.version, time.Since(begin).Round(time.Second))
	return nil
}

// count finds how many packages a running build compiles in all: those that Go's cache does not have.
func (b *Binaries) count(ctx context.Context, p program, m module, output *buildOutput) {
	before := guarded(&output.mu, &output.packages)
	args := slices.Concat([]string{"list"}, m.flags, []string{"-trimpath", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", p.pkg})
	list, err := b.runGo(ctx, m, args...)
	if err != nil {
		return // the number of compiled packages has to be enough then
	}
	output.mu.Lock()
	defer output.mu.Unlock()
	output.total = before + len(strings.Fields(list))
}

func reportEvery(interval time.Duration, report func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, interval, false, func(context.Context) (bool, error) { report(); return false, nil })
	})
	return func() { cancel(); wg.Wait() }
}

// buildError returns why a build failed: what the user can fix, or the last lines of the compiler.
func buildError(ctx context.Context, p program, dir string, output []string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("building %s %s: %w", p.name, p.version, context.Cause(ctx))
	}
	text := strings.Join(output, "\n")
	if isDiskFull(err) || strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded") {
		return noSpace("build", p, dir, "free some 2 GB there, in the temporary folder and in Go's caches (go env GOCACHE GOMODCACHE), "+
			"or set "+CacheVariable+", GOTMPDIR or GOCACHE to folders on another disk", fmt.Errorf("%w: %s", err, text))
	}
	return fmt.Errorf("building %s %s failed (%w); the go command's last lines, which may name a proxy or a network "+
		"to put right:\n  %s", p.name, p.version, err, strings.Join(output, "\n  "))
}

func noSpace(verb string, p program, dir, hint string, err error) error {
	return &usage.Error{Problem: fmt.Sprintf("no space to %s %s %s into %s", verb, p.name, p.version, dir), Hint: hint, Err: err}
}

type buildOutput struct {
	mu       sync.Mutex
	packages int
	total    int // 0 until it is known
	modules  int
	last     []string
}

// Write counts a package (only an import path) or a download, and keeps anything else.
func (o *buildOutput) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch line := strings.TrimSpace(string(data)); {
	case line == "":
	case strings.HasPrefix(line, "go: downloading "):
		o.modules++
	case !strings.ContainsAny(line, " :#"):
		o.packages++
	default:
		o.last = append(o.last, line)
		o.last = o.last[max(0, len(o.last)-errorLogLines):]
	}
	return len(data), nil
}

func (o *buildOutput) progress(took time.Duration) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.total > 0 && o.packages > 0:
		return progress(int64(o.packages), int64(o.total), took)
	case o.packages > 0:
		return fmt.Sprintf("%d packages compiled", o.packages)
	case o.modules > 0:
		return fmt.Sprintf("%d modules downloaded", o.modules)
	}
	// If Go's cache has all packages, only the linker works, and it prints nothing.
	return "nothing had to be compiled so far"
}

// progress says how much of something is done, and how long the rest takes at the same rate.
func progress(done, total int64, took time.Duration) string {
	if done <= 0 || total <= 0 {
		return "nothing yet"
	}
	share := min(float64(done)/float64(total), 0.99)
	left := time.Duration(float64(took) * (1 - share) / share)
	if left > 90*time.Second {
		return fmt.Sprintf("%.0f %%, about %d min", 100*share, (left+time.Minute-1)/time.Minute)
	}
	return fmt.Sprintf("%.0f %%, about %d s", 100*share, (left+time.Second-1)/time.Second)
}
