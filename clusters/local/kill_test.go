package local

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperVariable makes the test binary a helper process. Its value says how the process ends.
const helperVariable = "AUTHZCONF_TEST_HELPER"

// helperReport is what a helper process reports about its control plane.
type helperReport struct {
	Dir  string
	Port int
	PIDs PIDs
}

// helperMain starts a control plane, reports about it, and ends as requested.
func helperMain(mode string) {
	ctx, stop := context.Background(), func() {}
	if mode == "handled" || mode == "handled-start" {
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	}
	defer stop()
	if mode == "handled-start" {
		fmt.Println("{}")
	}
	c, err := Start(ctx, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer func() { _ = c.Stop() }()
	report, _ := json.Marshal(helperReport{Dir: c.Dir(), Port: c.Port(), PIDs: c.PIDs()})
	fmt.Println(string(report))
	switch mode {
	case "panic":
		panic("on purpose")
	case "panic-elsewhere":
		go panic("on purpose")
	case "exit":
		os.Exit(3)
	case "return":
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
}

// startHelper starts a helper process, and returns its report once its control plane is ready.
func startHelper(t *testing.T, mode, state string) (*exec.Cmd, helperReport) {
	t.Helper()
	found := programs(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"="+mode, StateVariable+"="+state,
		"TEST_ASSET_ETCD="+found.Etcd.Path, "TEST_ASSET_KUBE_APISERVER="+found.KubeAPIServer.Path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The helper has a process group of its own, so that it can be killed without this test.
	cmd.SysProcAttr = sysProcAttr()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		// These are processes that a failed test has shown to survive.
		for _, pid := range processesIn(state) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper said nothing: %v", err)
	}
	var report helperReport
	if err := json.Unmarshal([]byte(line), &report); err != nil {
		t.Fatal(err)
	}
	return cmd, report
}

// needParentDeathSignal skips a test on kernels that do not end orphans.
func needParentDeathSignal(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("children outlive a killed parent on " + runtime.GOOS)
	}
}

// ending is a way in which the process of a run ends.
type ending struct {
	name, mode string
	signal     os.Signal
	// swept checks that the folder remains, and is removed by the next start.
	swept bool
}

func TestNothingSurvivesTheParent(t *testing.T) {
	nothingSurvives(t,
		ending{"SIGKILL", "wait", syscall.SIGKILL, true},
		ending{"SIGINT handled", "handled", syscall.SIGINT, false},
		ending{"panic in another goroutine", "panic-elsewhere", nil, true},
		ending{"os.Exit", "exit", nil, true},
	)
}

// TestNothingSurvivesOtherEnds tries ends that are similar to those above. It runs at night.
func TestNothingSurvivesOtherEnds(t *testing.T) {
	nothingSurvives(t,
		ending{"SIGTERM not handled", "wait", syscall.SIGTERM, true},
		ending{"SIGINT not handled", "wait", syscall.SIGINT, true},
		ending{"SIGTERM handled", "handled", syscall.SIGTERM, false},
		ending{"panic with a deferred Stop", "panic", nil, false},
		ending{"return", "return", nil, false},
	)
}

func nothingSurvives(t *testing.T, endings ...ending) {
	t.Helper()
	needParentDeathSignal(t)
	for _, test := range endings {
		t.Run(test.name, func(t *testing.T) {
			state := t.TempDir()
			helper, report := startHelper(t, test.mode, state)
			if test.signal != nil {
				if got := processesIn(state); len(got) != 2 {
					t.Fatalf("processes before the end: %v, want etcd and kube-apiserver", got)
				}
				_ = helper.Process.Signal(test.signal)
			}
			_ = helper.Wait()
			eventually(t, 5*time.Second, "all processes are gone", func() bool {
				return len(processesIn(state)) == 0 && !alive(report.PIDs.Etcd) && !alive(report.PIDs.KubeAPIServer)
			})
			// The kernel closes sockets only after a process already counts as ended.
			eventually(t, 5*time.Second, "nobody listens on the port", func() bool {
				conn, err := net.Dial("tcp", net.JoinHostPort(loopback, strconv.Itoa(report.Port)))
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
			if left := exists(report.Dir); left != test.swept {
				t.Errorf("the folder is there: %t, want %t", left, test.swept)
			}
			t.Setenv(StateVariable, state)
			next, err := newRunDir(t.Context(), "next", false)
			if err != nil {
				t.Fatal(err)
			}
			if exists(report.Dir) {
				t.Error("the next start did not sweep the folder of the killed run")
			}
			if err := next.remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNothingSurvivesAKillDuringStart checks that a run may be killed before its control plane is ready.
func TestNothingSurvivesAKillDuringStart(t *testing.T) {
	needParentDeathSignal(t)
	for name, sig := range map[string]os.Signal{"SIGKILL": syscall.SIGKILL, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			helper, _ := startHelper(t, "handled-start", state)
			eventually(t, 10*time.Second, "both processes run", func() bool { return len(processesIn(state)) == 2 })
			_ = helper.Process.Signal(sig)
			_ = helper.Wait()
			eventually(t, 5*time.Second, "all processes are gone", func() bool { return len(processesIn(state)) == 0 })
			left, err := filepath.Glob(filepath.Join(state, runPrefix+"*"))
			if err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGINT && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestStartSweepsLeftovers checks that the next Start removes leftovers, but not what runs or has to be kept.
func TestStartSweepsLeftovers(t *testing.T) {
	state := t.TempDir()
	helper, killed := startHelper(t, "wait", state)
	_ = helper.Process.Kill()
	_ = helper.Wait()
	t.Setenv(StateVariable, state)
	kept := startPlane(t, Options{Keep: true})
	if exists(killed.Dir) {
		t.Error("the folder of the killed run is still there")
	}
	if err := kept.Stop(); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(kept.Dir(), "etcd")) {
		t.Error("the folder to be kept is gone")
	}
	running := startPlane(t, Options{})
	other := startPlane(t, Options{})
	for _, dir := range []string{kept.Dir(), running.Dir(), other.Dir()} {
		if !exists(dir) {
			t.Errorf("%s was swept", dir)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// alive reports whether a process runs. One that only waits to be reaped does not.
func alive(pid int) bool {
	if pid == 0 {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !exists("/proc/self")
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// processesIn lists the processes that work in a folder or below, on systems with /proc.
func processesIn(dir string) []int {
	var out []int
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(cwd, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil && alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}
