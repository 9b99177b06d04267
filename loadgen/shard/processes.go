package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/run"
)

// Group is several shards, each of which is a process.
type Group struct {
	launcher Launcher
	members  []*member
	lead     time.Duration // how long before its start a block is ordered
	length   time.Duration // how long a block may take, including its last answers
	timeout  time.Duration // how much longer a shard may take to return its block
}

type member struct {
	name   string
	link   *Link
	client *rpc.Client
	// end waits until the shard has ended, and says why.
	end func() error
}

// errLost is the error of a shard that has gone.
var errLost = errors.New("was lost")

const (
	openTimeout = 5 * time.Minute
	// blockTimeout is the timeout of a Group. A shard that is stopped or cut off never returns anything.
	blockTimeout = 30 * time.Second
	// closeTimeout is how long a shard may take to end by itself, and liveTimeout how long it may take to say how a
	// block is going.
	closeTimeout = 10 * time.Second
	liveTimeout  = time.Second
)

// Start starts a shard for each of jobs, and returns when all have opened their connections. The end of ctx does not
// affect them: Block and Close end what runs, in order.
func Start(ctx context.Context, launcher Launcher, jobs []Job) (_ *Group, err error) {
	g := &Group{launcher: launcher, timeout: blockTimeout}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for _, job := range jobs {
		g.length, g.lead = job.Profile.Block+job.Profile.Timeout, lead(&job.Profile)
		link, err := launcher.Launch(ctx, job.Index, job.Count)
		if err != nil {
			return nil, err
		}
		m := &member{
			name: shardName(job.Index, job.Count), link: link,
			client: jsonrpc.NewClient(struct {
				io.Reader
				io.WriteCloser
			}{link.Out, link.In}),
		}
		m.end = sync.OnceValue(func() error {
			kill := time.AfterFunc(closeTimeout, link.Kill)
			defer kill.Stop()
			_, _ = io.Copy(io.Discard, link.Out) // what it still writes
			return link.Wait()
		})
		g.members = append(g.members, m)
	}
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("has not opened its connections after %s", openTimeout))
	defer cancel()
	errs := g.callAll(func(i int, m *member) error { return m.call(opening, "Open", jobs[i], &none{}) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return g, cmp.Or(errs...)
}

// callAll calls do for all members at the same time, and returns their errors in the order of the members.
func (g *Group) callAll(do func(i int, m *member) error) []error {
	errs := make([]error, len(g.members))
	var group sync.WaitGroup
	for i, m := range g.members {
		group.Go(func() { errs[i] = do(i, m) })
	}
	group.Wait()
	return errs
}

// call makes the shard do something, unless it is lost or ctx ends before. Then nothing may be read from the answer.
func (m *member) call(ctx context.Context, method string, args, answer any) error {
	done := make(chan error, 1)
	go func() { done <- m.client.Call(serviceName+"."+method, args, answer) }()
	select {
	case err := <-done:
		if serverErr, ok := errors.AsType[rpc.ServerError](err); ok {
			return fmt.Errorf("%s: %w", m.name, serverErr)
		}
		if err == nil {
			return nil
		}
	case <-ctx.Done():
		return fmt.Errorf("%s %w", m.name, context.Cause(ctx))
	}
	if err := m.end(); err != nil {
		return fmt.Errorf("%s %w: %w", m.name, errLost, err)
	}
	return fmt.Errorf("%s %w", m.name, errLost)
}

// Prepare implements Generator. It has nothing to do, because the connections are open.
func (g *Group) Prepare(context.Context, Order) error { return nil }

// Start implements Generator.
func (g *Group) Start() time.Time { return time.Now().Add(g.lead) }

// Block implements Generator. If a shard is lost, the block has what the others counted.
func (g *Group) Block(ctx context.Context, o Order) (*run.Block, error) {
	stop := context.AfterFunc(ctx, func() {
		g.callAll(func(_ int, m *member) error { return m.call(context.Background(), "Stop", none{}, &none{}) })
	})
	defer stop()
	waiting, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Until(o.Start)+g.length+g.timeout,
		fmt.Errorf("%w: it has not handed over its block %s after the last answer was due", errLost, g.timeout))
	defer cancel()
	blocks := make([]*run.Block, len(g.members))
	errs := g.callAll(func(i int, m *member) error {
		blocks[i] = &run.Block{}
		return m.call(waiting, "Block", o, blocks[i])
	})
	for i, err := range errs {
		if err != nil {
			blocks[i] = nil
		}
	}
	return merge(blocks), errors.Join(errs...)
}

// merge returns the sum of what shards counted, or nil if there is nothing. A lost shard has nil.
func merge(blocks []*run.Block) (whole *run.Block) {
	for _, b := range blocks {
		switch {
		case b == nil:
		case whole == nil:
			whole = b
		default:
			whole.Merge(b)
		}
	}
	return whole
}

// Live implements Generator. It leaves out shards that do not answer.
func (g *Group) Live() (sum agent.Live) {
	ctx, cancel := context.WithTimeout(context.Background(), liveTimeout)
	defer cancel()
	lives := make([]agent.Live, len(g.members))
	for i, err := range g.callAll(func(i int, m *member) error { return m.call(ctx, "Live", none{}, &lives[i]) }) {
		if live := &lives[i]; err == nil {
			sum.Sent += live.Sent
			sum.Done += live.Done
			sum.Errors += live.Errors
			sum.Latency.Merge(&live.Latency)
		}
	}
	return sum
}

// Close ends all shards and waits for them.
func (g *Group) Close() error {
	return errors.Join(append(g.callAll(func(_ int, m *member) error {
		go func() { _ = m.client.Close() }() // it may wait for what is being written
		if err := m.end(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		return nil
	}), g.launcher.Close())...)
}

// Link is the connection to a running shard. It has what Serve reads and writes, wherever the shard runs.
type Link struct {
	In  io.WriteCloser
	Out io.Reader
	// Kill ends the shard at once. Wait returns when the shard and Out have ended, and says why if it did not end by
	// itself.
	Kill func()
	Wait func() error

	process *os.Process // a process of this machine; nil elsewhere
}

// Launcher starts shards.
type Launcher interface {
	// Launch starts shard i of count, or connects to a running one. The shard continues when ctx ends.
	Launch(ctx context.Context, i, count int) (*Link, error)
	// Close removes what remains when all links have ended.
	Close() error
}

// Processes starts shards as processes of this machine, by a command that calls Serve.
type Processes []string

// Launch implements Launcher.
func (p Processes) Launch(_ context.Context, i, count int) (*Link, error) {
	// There is no context, because the shard ends when its input does.
	cmd := exec.CommandContext(context.Background(), p[0], p[1:]...)
	// It has a process group of its own, so that the Ctrl-C of a terminal reaches it only through us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := &strings.Builder{}
	cmd.Stderr = output
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
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(output.String()))
			}
			return nil
		},
	}, nil
}

// Close implements Launcher.
func (Processes) Close() error { return nil }
