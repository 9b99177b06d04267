package shard

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

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
