package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
)

// killWait is how long a killed process may take to disappear. Only one that is stuck in the kernel needs more than
// milliseconds.
const killWait = 10 * time.Second

type processSpec struct {
	name   string
	path   string
	args   []string
	env    []string // in addition to that of this process
	dir    string
	stdout io.Writer // nil: the log
}

type process struct {
	name    string
	pid     int
	logPath string
	// logFrom is where this process's lines begin in a log that it shares with its predecessors.
	logFrom int64
	cmd     *exec.Cmd
	// done is closed once the process has been reaped. From then on state may be read.
	done  chan struct{}
	state string

	mu       sync.Mutex
	stopping bool
}

// startProcess starts a child that logs to <name>.log in its folder, and dies with this process (see [sysProcAttr]).
func startProcess(spec processSpec) (*process, error) {
	logPath := filepath.Join(spec.dir, spec.name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	// The child has its own descriptor once it runs.
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	// There is no context, because the process lives until stop, or as long as this process.
	cmd := exec.CommandContext(context.Background(), spec.path, spec.args...)
	cmd.Dir = spec.dir
	cmd.Env = append(os.Environ(), spec.env...)
	cmd.Stdout, cmd.Stderr = spec.stdout, log
	if spec.stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = sysProcAttr()
	// A sink that blocks for ever must not keep the process from being reaped.
	cmd.WaitDelay = killWait / 2
	p := &process{name: spec.name, logPath: logPath, logFrom: info.Size(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, &ProcessError{Process: spec.name, State: "could not be started: " + err.Error(), Err: err}
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// run starts the child and waits for it on one thread. The kernel sends the parent death signal when the thread that
// forked ends, so that thread has to live as long as the child.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = p.cmd.Wait()
	p.state = p.cmd.ProcessState.String()
	close(p.done)
}

func (p *process) hasExited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and waits until it is gone. With a grace period it is asked to end first, and killed when the
// period is over.
func (p *process) stop(grace time.Duration) error {
	p.mu.Lock()
	// A process that has ended by itself counts as such, even if its watcher has not reported it yet.
	p.stopping = p.stopping || !p.hasExited()
	p.mu.Unlock()
	// An error of a signal means that the process has ended already.
	if grace > 0 && !p.hasExited() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return nil
		case <-time.After(grace):
		}
	}
	_ = p.cmd.Process.Kill()
	select {
	case <-p.done:
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("%s (pid %d) is still there %s after it was killed", p.name, p.pid, killWait)
	}
}

// stopRequested reports whether this package ended the process, and it did not end by itself.
func (p *process) stopRequested() bool { return guarded(&p.mu, &p.stopping) }

func (p *process) failure(state string, cause error) *ProcessError {
	lines := readTail(p.logPath, p.logFrom, reasonLogLines)
	return &ProcessError{
		Process: p.name, PID: p.pid, State: state, Reason: findReason(lines),
		LogFile: p.logPath, LogTail: lines[max(0, len(lines)-errorLogLines):], Err: cause,
	}
}

// notReady describes a process that was given up. If the caller cancelled it, the description has no log, because that
// explains nothing.
func (p *process) notReady(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return fmt.Errorf("starting %s: %w", p.name, cause)
	}
	return p.failure(cause.Error(), cause)
}

func (p *process) ended() *ProcessError { return p.failure("ended by itself ("+p.state+")", nil) }

const loopback = "127.0.0.1"

// handedOut are the ports that this process has given to control planes. A port is free again before its control plane
// listens on it, so the kernel alone could give it out twice.
var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

func freePort() (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	// The kernel has some 28,000 ports to choose from. If it returns only known ones, they are used up.
	for range 1000 {
		port, err := unusedPort(0)
		if err != nil {
			return 0, err
		}
		if !handedOut.ports[port] {
			handedOut.ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("no free loopback port found")
}

func claimPort(port int) error {
	if port < 1 || port > 65535 {
		return &usage.Error{Problem: fmt.Sprintf("port %d does not exist", port), Hint: "use 1 to 65535, or 0 for a free one"}
	}
	handedOut.Lock()
	defer handedOut.Unlock()
	if _, err := unusedPort(port); err != nil {
		return portError(port, err)
	}
	handedOut.ports[port] = true
	return nil
}

func unusedPort(port int) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func portError(port int, err error) error {
	reason := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE), lostPort(err):
		reason = "something listens on it already"
	case errors.Is(err, syscall.EACCES):
		reason = "this user may not listen on it"
	}
	return &usage.Error{
		Problem: fmt.Sprintf("port %d on %s cannot be used: %s", port, loopback, reason),
		Hint:    "choose another port, or none to get a free one",
		Err:     err,
	}
}
