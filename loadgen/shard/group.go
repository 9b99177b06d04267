package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Group is several shards, each a process of its own.
type Group struct {
	launcher Launcher
	members  []*member
	// length is how long a block may take, its last answers included.
	length time.Duration
	// timeout is how long after that a shard may take to hand over its block.
	timeout time.Duration
}

// member is one shard.
type member struct {
	name     string
	link     *Link
	replies  chan reply   // closed when the shard is silent for good
	readings chan reading // as replies

	sending sync.Mutex // held while something is written to the link
	encoder *json.Encoder

	mu     sync.Mutex
	live   agent.Live
	ended  bool
	reason error // why it ended
}

const (
	// openTimeout is how long shards may take to open their connections.
	openTimeout = 5 * time.Minute
	// blockTimeout is a Group's: a shard that is stopped, or cut off, never hands over anything.
	blockTimeout = 30 * time.Second
	// closeTimeout is how long a shard may take to end by itself.
	closeTimeout = 10 * time.Second
)

// Start starts a shard for each of jobs, and returns when all have opened their connections. When ctx ends nothing
// happens to them: Block and Close end what runs, in order.
func Start(ctx context.Context, launcher Launcher, jobs []Job) (_ *Group, err error) {
	g := &Group{launcher: launcher, timeout: blockTimeout}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for _, job := range jobs {
		g.length = job.Profile.Block + job.Profile.Timeout
		link, err := launcher.Launch(ctx, job.Index, job.Count)
		if err != nil {
			return nil, err
		}
		m := &member{
			name: fmt.Sprintf("shard %d of %d", job.Index, job.Count), link: link,
			replies: make(chan reply, 1), readings: make(chan reading, moreQuestions), encoder: json.NewEncoder(link.In),
		}
		g.members = append(g.members, m)
		go m.read()
		go func() { _ = m.send(job) }() // one that does not take it is not ready below
	}
	timer := time.NewTimer(openTimeout)
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
			return nil, fmt.Errorf("%s has not opened its connections after %s", m.name, openTimeout)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g, nil
}

func (m *member) send(v any) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	return m.encoder.Encode(v)
}

// read takes the replies until the shard is silent, and waits for its end.
func (m *member) read() {
	decoder := json.NewDecoder(m.link.Out)
	for {
		var r reply
		if decoder.Decode(&r) != nil {
			break
		}
		switch {
		case r.Live != nil:
			m.mu.Lock()
			m.live = *r.Live
			m.mu.Unlock()
		case r.Clock != nil:
			select {
			case m.readings <- *r.Clock:
			default: // nobody asked
			}
		default:
			m.replies <- r
		}
	}
	_, _ = io.Copy(io.Discard, m.link.Out)
	err := m.link.Wait()
	m.mu.Lock()
	m.ended, m.reason = true, err
	m.mu.Unlock()
	close(m.replies)
	close(m.readings)
}

// lost says that a shard has gone, and why if that is known.
func (m *member) lost() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reason != nil {
		return fmt.Errorf("%s %w: %w", m.name, errLost, m.reason)
	}
	return fmt.Errorf("%s %w", m.name, errLost)
}

// Block implements Generator. If a shard is lost, the block has what the others counted.
func (g *Group) Block(ctx context.Context, o Order) (*run.Block, error) {
	for _, m := range g.members {
		m.mu.Lock()
		m.live = agent.Live{}
		m.mu.Unlock()
		go func() { _ = m.send(o) }() // one that is gone says nothing below
	}
	stop := context.AfterFunc(ctx, func() {
		for _, m := range g.members {
			go func() { _ = m.send(Order{Stop: true}) }()
		}
	})
	defer stop()
	timer := time.NewTimer(time.Until(o.Start) + g.length + g.timeout)
	defer timer.Stop()
	var whole *run.Block
	var errs []error
	for _, m := range g.members {
		select {
		case r, ok := <-m.replies:
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
		case <-timer.C:
			timer.Reset(0) // the others have had the same time
			errs = append(errs, fmt.Errorf("%s %w: it has not handed over its block %s after the last answer was due", m.name, errLost, g.timeout))
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
	errs := make([]error, len(g.members)+1)
	var group sync.WaitGroup
	for i, m := range g.members {
		group.Go(func() { errs[i] = m.close() })
	}
	group.Wait()
	errs[len(g.members)] = g.launcher.Close()
	return errors.Join(errs...)
}

func (m *member) close() error {
	kill := time.AfterFunc(closeTimeout, m.link.Kill)
	defer kill.Stop()
	go func() { _ = m.link.In.Close() }() // which may wait for what is being written
	for range m.replies {                 // what it still says
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reason != nil {
		return fmt.Errorf("%s: %w", m.name, m.reason)
	}
	return nil
}

// Link is the way to a running shard: what Serve reads and writes, wherever it runs.
type Link struct {
	In  io.WriteCloser
	Out io.Reader
	// Kill ends the shard at once. Wait returns when it has ended and Out is at its end, and says why, if it did
	// not end by itself.
	Kill func()
	Wait func() error

	process *os.Process // of this machine; nil elsewhere
}

// Launcher starts shards.
type Launcher interface {
	// Launch starts shard i of count, or finds the way to one that runs. The shard goes on when ctx ends.
	Launch(ctx context.Context, i, count int) (*Link, error)
	// Close removes what is left when all links have ended.
	Close() error
}

// Processes starts shards as processes of this machine, by a command that calls Serve.
type Processes []string

// Launch implements Launcher.
func (p Processes) Launch(_ context.Context, i, count int) (*Link, error) {
	// No context: it ends when its input does.
	cmd := exec.CommandContext(context.Background(), p[0], p[1:]...)
	// A group of its own, so that the Ctrl-C of a terminal reaches it through us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &strings.Builder{}
	cmd.Stderr = said
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting shard %d of %d: %w", i, count, err)
	}
	return &Link{
		In: in, Out: out, process: cmd.Process,
		Kill: func() { _ = cmd.Process.Kill() },
		Wait: func() error {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
			}
			return nil
		},
	}, nil
}

// Close implements Launcher.
func (Processes) Close() error { return nil }
