package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/authzconf/authzconf/clusters/local"
)

// peakVariable names the file in which a command writes how much memory it had at most. The process that started it
// cannot tell: to Linux a process also had the memory that its parent had before the program began.
const peakVariable = "AUTHZCONF_TEST_PEAK"

// exitLeaked is the exit code of a command that leaves goroutines behind.
const exitLeaked = 99

// TestMain lets the test binary run as the commands that scripts call.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"authzconf":         func() { os.Exit(leakChecked(os.Stdout, os.Stderr)) },
		"kubectl-authzconf": main,
		// This command cannot write its output.
		"authzconf-full": func() { os.Exit(leakChecked(fullDisk{}, os.Stderr)) },
		// These two commands have a bug: in the main goroutine, and in one that runs scenarios.
		"authzconf-panics":           func() { os.Exit(leakChecked(panicOn{"", os.Stdout}, os.Stderr)) },
		"authzconf-panics-elsewhere": func() { os.Exit(leakChecked(os.Stdout, panicOn{"passed", os.Stderr})) },
	})
}

// leakChecked runs the command line, and proves that no goroutine of it is left.
func leakChecked(stdout, stderr io.Writer) int {
	code := run(os.Args[1:], stdout, stderr)
	if path := os.Getenv(peakVariable); path != "" {
		if status, err := os.ReadFile("/proc/self/status"); err != nil || os.WriteFile(path, status, 0o600) != nil {
			return exitLeaked
		}
	}
	left := ownGoroutines()
	for deadline := time.Now().Add(2 * time.Second); left != "" && time.Now().Before(deadline); left = ownGoroutines() {
		time.Sleep(10 * time.Millisecond)
	}
	if left == "" {
		return code
	}
	_, _ = fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
	return exitLeaked
}

// ownGoroutines returns the stacks of all other goroutines that run code of ours.
func ownGoroutines() string {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var own []string
	for _, s := range stacks[1:] {
		if strings.Contains(s, "authzconf/authzconf") {
			own = append(own, s)
		}
	}
	return strings.Join(own, "\n\n")
}

// panicOn imitates a bug of authzconf's own: it panics when a text is printed.
type panicOn struct {
	text string
	to   io.Writer
}

func (w panicOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		panic("on purpose")
	}
	return w.to.Write(p)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestScripts runs the scripts of testdata, each about one subject, against the command line in processes of its own.
// In addition to the usual commands the scripts can use those of commands_test.go and process_test.go.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"needs-control-plane": needsControlPlane,
			"exits":               exits,
			"edit":                edit,
			"grow":                grow,
			"occupy":              occupy,
			"no-secrets":          noSecrets,
			"start":               start,
			"await":               await,
			"end":                 end,
			"kill-child":          killChild,
			"await-children":      awaitChildren,
			"serves":              serves,
			"stopped":             stopped,
			"removed":             removed,
			"misbehaves":          misbehaves,
			"frugal":              frugal,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// setup gives a script folders of its own for everything that authzconf leaves on disk.
func setup(env *testscript.Env) error {
	scenarios, err := filepath.Abs(filepath.Join("testdata", "scenarios"))
	if err != nil {
		return err
	}
	newest, err := local.ParseRelease("")
	if err != nil {
		return err
	}
	w := &world{t: env.T(), state: filepath.Join(env.WorkDir, "state"), background: map[string]*background{}}
	env.Setenv("SCENARIOS", scenarios)
	env.Setenv("NEWEST", newest.Minor)
	env.Setenv("RELEASE", newest.Version)
	env.Setenv(local.StateVariable, w.state)
	env.Setenv(local.CacheVariable, filepath.Join(env.WorkDir, "cache"))
	env.Setenv(local.StartsVariable, os.Getenv(local.StartsVariable))
	if env.Getenv("GORACE") == "" {
		env.Setenv("GORACE", "atexit_sleep_ms=10") // for each command; the default is 1 s
	}
	w.vars = env.Vars
	env.Values[worldKey{}] = w
	env.Defer(w.end)
	return nil
}

// programs are the real ones, found or built as ever, once for all tests.
var programs = sync.OnceValues(func() (p struct{ Etcd, KubeAPIServer string }, err error) {
	b := &local.Binaries{Progress: os.Stderr}
	newest, err := local.ParseRelease("")
	if err != nil {
		return p, err
	}
	if p.Etcd, err = b.Etcd(context.Background()); err != nil {
		return p, err
	}
	p.KubeAPIServer, err = b.KubeAPIServer(context.Background(), newest)
	return p, err
})
