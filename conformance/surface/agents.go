package surface

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// agentsComparison is the name of what is compared of agents.
const agentsComparison = "agents"

// settleTime is how long agents have to open their connections, once all run.
const settleTime = 3 * time.Second

// observeAgents starts agents, each a kubectl that watches as the viewer, as an agent of a node does, and returns what their
// processes hold in all while they watch. They are ended before it returns.
func (s stage) observeAgents(ctx context.Context, at *server.Server, agents int) (_ *Process, err error) {
	program, err := s.options.Binaries.Kubectl(ctx, "")
	if err != nil {
		return nil, err
	}
	home, err := at.TempDir("agents-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	raw, err := clusters.Kubeconfig("authzconf", at.Admin())
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil { // only this user can read the credentials
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	var running []*exec.Cmd
	errorText := &agentOutput{}
	defer func() {
		end()
		for _, cmd := range running {
			_ = cmd.Wait() // it was killed
		}
	}()
	for range agents {
		cmd := exec.CommandContext(ctx, program, "get", "configmaps", "--namespace=default", "--watch", "--as="+viewer)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "KUBECONFIG=" + kubeconfig, "KUBECTL_KUBERC=false", "LANG=C", "PATH="}
		cmd.Stderr = errorText
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		running = append(running, cmd)
	}
	sum, err := sumProcesses(ctx, running)
	if message := strings.TrimSpace(errorText.String()); message != "" {
		err = errors.Join(err, fmt.Errorf("an agent says: %s", message))
	}
	return sum, err
}

// agentOutput is what agents print, from several processes at once.
type agentOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (p *agentOutput) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// String returns what was printed so far.
func (p *agentOutput) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// sumProcesses waits until each process has a connection and has settled, and returns what they hold in all.
func sumProcesses(ctx context.Context, running []*exec.Cmd) (*Process, error) {
	isConnected := func(context.Context) (bool, error) {
		for _, cmd := range running {
			if p, err := readProcess(cmd.Process.Pid); err != nil || p.Sockets == 0 {
				return false, err
			}
		}
		return true, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, settleTime/10, time.Minute, true, isConnected); err != nil {
		return nil, fmt.Errorf("the agents did not connect: %w", err)
	}
	if !clusters.Pause(ctx, settleTime) {
		return nil, ctx.Err()
	}
	sum := &Process{Peers: []string{}}
	for _, cmd := range running {
		p, err := readProcess(cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		sum.add(p)
	}
	return sum, nil
}

// add adds what another process holds.
func (p *Process) add(other Process) {
	p.Children += other.Children
	p.Threads += other.Threads
	p.Files += other.Files
	p.Sockets += other.Sockets
	p.Memory += other.Memory
	p.Peers = append(p.Peers, other.Peers...)
	slices.Sort(p.Peers)
	p.Peers = slices.Compact(p.Peers)
}

// judgeAgents compares what agents hold: each has the sockets that it had, and has started nothing.
func judgeAgents(_ scenarios.Gate, before, now *Surface) (problems []string, comparison string) {
	if before.Agents == nil || now.Agents == nil {
		return []string{"nothing was read of the agents"}, "agents"
	}
	if now.Agents.Children != before.Agents.Children {
		problems = append(problems,
			fmt.Sprintf("agents have started %s, expected %d", reports.Plural(now.Agents.Children, "child"), before.Agents.Children),
		)
	}
	if now.Agents.Sockets != before.Agents.Sockets {
		problems = append(problems,
			fmt.Sprintf("agents have %s, expected %d", reports.Plural(now.Agents.Sockets, "socket"), before.Agents.Sockets),
		)
	}
	return problems, fmt.Sprintf(
		"agents that watch as somebody else: in all %d files of which %d are sockets, %d threads, %d MiB (before: %d, %d, %d, %d MiB)",
		now.Agents.Files,
		now.Agents.Sockets,
		now.Agents.Threads,
		now.Agents.Memory>>20,
		before.Agents.Files,
		before.Agents.Sockets,
		before.Agents.Threads,
		before.Agents.Memory>>20,
	)
}
