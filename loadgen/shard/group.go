package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/run"
)

// Group is several shards, each a process of its own.
type Group struct {
	members []*member
}

// member is one process.
type member struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	encoder *json.Encoder
	replies chan reply // closed when the process is silent for good
	said    strings.Builder

	mu   sync.Mutex
	live agent.Live
}

// openPatience is how long shards may take to open their connections.
const openPatience = 5 * time.Minute

// Start starts a shard for each of jobs by calling command, which has to call
// Serve, and returns when all have opened their connections. When ctx ends
// nothing happens to them: Block and Close end what runs, in order.
func Start(ctx context.Context, command []string, jobs []Job) (_ *Group, err error) {
	g := &Group{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for _, job := range jobs {
		m, err := startMember(command, job)
		if err != nil {
			return nil, err
		}
		g.members = append(g.members, m)
	}
	timer := time.NewTimer(openPatience)
	defer timer.Stop()
	for _, m := range g.members {
		select {
		case r, ok := <-m.replies:
			if !ok {
				return nil, m.lost()
			}
			if r.Error != "" {
				return nil, fmt.Errorf("%s: %s", m.name, r.Error)
			}
		case <-timer.C:
			return nil, fmt.Errorf("%s has not opened its connections after %s", m.name, openPatience)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g, nil
}

func startMember(command []string, job Job) (*member, error) {
	m := &member{name: fmt.Sprintf("shard %d of %d", job.Index, job.Count), replies: make(chan reply, 1)}
	// No context: it ends when its input does.
	m.cmd = exec.CommandContext(context.Background(), command[0], command[1:]...)
	// A group of its own, so that the Ctrl-C of a terminal reaches it through us.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.cmd.Stderr = &m.said
	m.cmd.WaitDelay = time.Second
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", m.name, err)
	}
	m.in, m.encoder = in, json.NewEncoder(in)
	go m.read(out)
	if err := m.encoder.Encode(job); err != nil {
		return nil, errors.Join(fmt.Errorf("%s %w: %w", m.name, errLost, err), m.close())
	}
	return m, nil
}

// read takes the replies until the process ends.
func (m *member) read(out io.Reader) {
	defer close(m.replies)
	decoder := json.NewDecoder(out)
	for {
		var r reply
		if decoder.Decode(&r) != nil {
			return
		}
		if r.Live != nil {
			m.mu.Lock()
			m.live = *r.Live
			m.mu.Unlock()
			continue
		}
		m.replies <- r
	}
}

func (m *member) lost() error { return fmt.Errorf("%s %w", m.name, errLost) }

// Block implements Generator. If a shard is lost, the block has what the others
// counted.
func (g *Group) Block(ctx context.Context, o Order) (*run.Block, error) {
	for _, m := range g.members {
		m.mu.Lock()
		m.live = agent.Live{}
		m.mu.Unlock()
		_ = m.encoder.Encode(o) // one that is gone says nothing below
	}
	stop := context.AfterFunc(ctx, func() {
		for _, m := range g.members {
			_ = m.encoder.Encode(Order{Stop: true})
		}
	})
	defer stop()
	var whole *run.Block
	var errs []error
	for _, m := range g.members {
		r, ok := <-m.replies
		switch {
		case !ok:
			errs = append(errs, m.lost())
		case r.Error != "":
			errs = append(errs, fmt.Errorf("%s: %s", m.name, r.Error))
		case whole == nil:
			whole = r.Block
		default:
			whole.Merge(r.Block)
		}
	}
	return whole, errors.Join(errs...)
}

// Live implements Generator.
func (g *Group) Live() (sum agent.Live) {
	for _, m := range g.members {
		m.mu.Lock()
		sum.Sent += m.live.Sent
		sum.Done += m.live.Done
		sum.Errors += m.live.Errors
		sum.Latency.Merge(&m.live.Latency)
		m.mu.Unlock()
	}
	return sum
}

// Close ends all shards and waits for them.
func (g *Group) Close() error {
	var errs []error
	for _, m := range g.members {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}

// closePatience is how long a shard may take to end by itself.
const closePatience = 10 * time.Second

func (m *member) close() error {
	_ = m.in.Close()
	kill := time.AfterFunc(closePatience, func() { _ = m.cmd.Process.Kill() })
	defer kill.Stop()
	for range m.replies { // what it still says; the pipe has to be read before Wait
	}
	if err := m.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", m.name, err, strings.TrimSpace(m.said.String()))
	}
	return nil
}
