package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startPatience is how long a control plane may take on a loaded machine.
	startPatience = 90 * time.Second
	// endPatience is how long a command may take to end after a signal. Every scenario that is interrupted would have
	// run longer.
	endPatience = 40 * time.Second
)

// world is the state that the commands of one script share.
type world struct {
	t          testscript.T
	vars       []string // the environment at the beginning of the script
	state      string   // the folder of all control planes
	background map[string]*background
	servers    []listener // those that ran when the last command was ended
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

// end ends what a failed script has left running. A script that passed may leave nothing.
func (w *world) end() {
	for _, b := range w.background {
		_ = b.cmd.Process.Kill()
		<-b.done
	}
	left := children(w.state)
	for deadline := time.Now().Add(endPatience); len(left) > 0 && time.Now().Before(deadline); left = children(w.state) {
		time.Sleep(10 * time.Millisecond)
	}
	for pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(left) > 0 {
		w.t.Fatal(fmt.Sprintf("processes left behind: %v", left))
	}
}

// background is a command that runs while the script goes on.
type background struct {
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{}
}

// output may be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start starts a command that await and end refer to by a name.
func start(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 2, "start NAME program [args...]")
	w := worldOf(ts)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	b := &background{cmd: exec.Command(path, args[2:]...), done: make(chan struct{})}
	b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = ts.MkAbs("."), &b.stdout, &b.stderr
	names := []string{"TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER", "GOMEMLIMIT", peakVariable}
	for _, v := range w.vars {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	for _, name := range names {
		b.cmd.Env = append(b.cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(b.cmd.Start())
	w.background[args[0]] = b
	go func() {
		_ = b.cmd.Wait()
		close(b.done)
	}()
}

func find(ts *testscript.TestScript, name string) *background {
	b := worldOf(ts).background[name]
	if b == nil {
		ts.Fatalf("no command %q was started", name)
	}
	return b
}

// await waits until a command has printed what a pattern matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "await NAME PATTERN")
	b, pattern := find(ts, args[0]), regexp.MustCompile("(?m)"+args[1])
	eventually(ts, startPatience, "it prints "+args[1], func() bool {
		printed := pattern.MatchString(b.stdout.String()) || pattern.MatchString(b.stderr.String())
		select {
		case <-b.done:
			if !printed {
				ts.Fatalf("it ended (%s) before:\n%s%s", status(b.cmd.ProcessState), b.stdout.String(), b.stderr.String())
			}
		default:
		}
		return printed
	})
}

// end sends a signal to a command, or none, and expects that it ends with an exit code, or that it is "killed".
func end(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 3, "end NAME INT|TERM|KILL|- CODE")
	w, b := worldOf(ts), find(ts, args[0])
	w.servers = append(w.servers, servers(w.state)...)
	if args[1] != "-" {
		ts.Check(
			b.cmd.Process.Signal(map[string]os.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[1]]),
		)
	}
	begin := time.Now()
	select {
	case <-b.done:
	case <-time.After(endPatience):
		_ = b.cmd.Process.Signal(syscall.SIGQUIT) // prints where it hangs
		<-b.done
	}
	delete(w.background, args[0])
	ts.Logf("ended after %s", time.Since(begin).Round(time.Millisecond))
	_, _ = ts.Stdout().Write([]byte(b.stdout.String()))
	_, _ = ts.Stderr().Write([]byte(b.stderr.String()))
	if got := status(b.cmd.ProcessState); got != args[2] {
		ts.Fatalf("exit code %s, want %s", got, args[2])
	}
}

// eventually waits for a condition.
func eventually(ts *testscript.TestScript, limit time.Duration, what string, ok func() bool) {
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("not so within %s: %s", limit, what)
		}
	}
}

// marks are arguments by which the two programs are told apart, whatever their names are.
var marks = map[string]string{"etcd": "--data-dir=", "kube-apiserver": "--secure-port="}

// children are the processes that work below a folder, with their command lines,
// on systems with /proc.
func children(dir string) map[int]string {
	found := map[int]string{}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(cwd, dir+"/") {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// killChild kills the only etcd or kube-apiserver.
func killChild(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1 && marks[args[0]] != "", "kill-child etcd|kube-apiserver")
	var pids []int
	for pid, line := range children(worldOf(ts).state) {
		if strings.Contains(line, marks[args[0]]) {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 1 {
		ts.Fatalf("%d processes are %s", len(pids), args[0])
	}
	ts.Check(syscall.Kill(pids[0], syscall.SIGKILL))
}

// awaitChildren waits until both programs run.
func awaitChildren(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "await-children")
	eventually(ts, startPatience, "both processes run", func() bool { return len(children(worldOf(ts).state)) == 2 })
}

// listener is a server that listened for a control plane: its API server, or the recorder. By its authority it is told
// apart from another server that got its port later.
type listener struct {
	address   string
	authority *x509.CertPool
}

// servers returns the servers that the kubeconfigs below a folder name.
func servers(state string) []listener {
	var found []listener
	files, _ := filepath.Glob(filepath.Join(state, "*", "*kubeconfig"))
	for _, f := range files {
		config, err := clientcmd.LoadFromFile(f)
		if err != nil {
			continue // it is being written or removed
		}
		for _, c := range config.Clusters {
			pool := x509.NewCertPool()
			u, err := url.Parse(c.Server)
			if err != nil || !pool.AppendCertsFromPEM(c.CertificateAuthorityData) {
				continue
			}
			if !slices.ContainsFunc(found, func(s listener) bool { return s.address == u.Host }) {
				found = append(found, listener{u.Host, pool})
			}
		}
	}
	return found
}

func (s listener) answers() bool {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", s.address, &tls.Config{RootCAs: s.authority})
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// serves asks the API server of a running `authzconf up` for its version, with the kubeconfig whose path is the only
// thing that it prints.
func serves(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "serves NAME VERSION")
	b := find(ts, args[0])
	eventually(ts, endPatience, "it prints a line", func() bool { return strings.Contains(b.stdout.String(), "\n") })
	path, rest, _ := strings.Cut(b.stdout.String(), "\n")
	if rest != "" {
		ts.Fatalf("stdout has more than the path of a kubeconfig: %q", rest)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	ts.Check(err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	ts.Check(err)
	version, err := client.ServerVersion()
	ts.Check(err)
	if got := version.Major + "." + version.Minor; got != args[1] {
		ts.Fatalf("it serves Kubernetes %s, want %s", got, args[1])
	}
	for _, s := range servers(worldOf(ts).state) {
		if !s.answers() { // otherwise stopped would prove nothing
			ts.Fatalf("%s does not answer", s.address)
		}
	}
}

// stopped checks that the processes and servers that ran when the last command was ended are all gone.
func stopped(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "stopped")
	w := worldOf(ts)
	if len(w.servers) == 0 {
		ts.Fatalf("no server ran, so this proves nothing")
	}
	eventually(ts, endPatience, "all processes are gone", func() bool { return len(children(w.state)) == 0 })
	for _, s := range w.servers {
		eventually(ts, endPatience, s.address+" does not answer", func() bool { return !s.answers() })
	}
}

// removed checks that no process runs and no folder of one remains.
func removed(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "removed")
	w := worldOf(ts)
	if left := children(w.state); len(left) > 0 {
		ts.Fatalf("processes left behind: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(w.state, "control-plane-*")); len(left) > 0 {
		ts.Fatalf("folders left behind: %v", left)
	}
}
