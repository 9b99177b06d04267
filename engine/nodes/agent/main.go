// Node is the agent that runs in pods: it impersonates the node that its pod is on, as the Kubernetes
// documentation's recipe for constrained impersonation has it, and writes what became of each attempt.
//
//	node         prints the name of the node
//	node run     attempts in rounds, one JSON line each, until it is stopped
//	node idle    prints the name of the node, and does nothing until it is stopped
//	node token   prints the pod's own token, for whoever may exec into the pod
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// tokenFile is where a pod's token is projected to.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// The environment, see fixtures/nodes/agent.yaml.
const (
	nodeVariable     = "MY_NODE_NAME"
	othersVariable   = "OTHER_NODE_NAMES"
	intervalVariable = "INTERVAL"
)

// defaultInterval is the time from one round to the next.
const defaultInterval = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	name := ""
	if len(args) == 1 {
		name = args[0]
	}
	switch {
	case len(args) > 1:
	case name == "run":
		return run(ctx)
	case name == "idle":
		_, err := fmt.Println(os.Getenv(nodeVariable))
		if err == nil {
			<-ctx.Done()
		}
		return err
	case name == "":
		_, err := fmt.Println(os.Getenv(nodeVariable))
		return err
	case name == "token":
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(token)
		return err
	}
	return fmt.Errorf("the arguments are %q (expected none, or one of run, idle, token)", args)
}

// run makes one round of attempts after the other. What is refused is news, not a reason to stop.
func run(ctx context.Context) error {
	own, interval := os.Getenv(nodeVariable), defaultInterval
	if own == "" {
		return fmt.Errorf("%s is not set (expected the node's name, from spec.nodeName)", nodeVariable)
	}
	if text := os.Getenv(intervalVariable); text != "" {
		var err error
		if interval, err = time.ParseDuration(text); err != nil || interval <= 0 {
			return fmt.Errorf("%s is %q (expected a duration such as 2s)", intervalVariable, text)
		}
	}
	requests, err := plan(own, strings.Split(os.Getenv(othersVariable), ","))
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		for _, r := range requests {
			line := r.try(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
