package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// The signals by which an agent is told to rest, and to work again: while it rests, what an API server counts is somebody
// else's. Whoever may exec into its pod sends them, to the first process there.
const (
	restSignal = syscall.SIGUSR1
	workSignal = syscall.SIGUSR2
	agentPID   = 1
)

// tellAgent sends a signal to the agent of this container.
func tellAgent(s syscall.Signal) error { return syscall.Kill(agentPID, s) }

// watchSignals returns where the signals arrive that tell the agent to rest and to work.
func watchSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, restSignal, workSignal)
	return signals
}

// awaitWork returns when the agent has been told to work, if it was told to rest.
func awaitWork(ctx context.Context, signals <-chan os.Signal) {
	resting := false
	select {
	case s := <-signals:
		resting = s == restSignal
	default:
	}
	for resting && ctx.Err() == nil {
		select {
		case s := <-signals:
			resting = s == restSignal
		case <-ctx.Done():
		}
	}
}
