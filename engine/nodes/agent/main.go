// Node is the agent that runs in pods: it impersonates the node that its pod is on, as the Kubernetes
// documentation's recipe for constrained impersonation has it, and writes what became of each attempt.
//
//	node         prints the name of the node
//	node run     attempts in rounds, one JSON line each, until it is stopped
//	node deputy  the same for users in place of nodes
//	node rest    tells the agent of this container to make no further attempt
//	node work    tells it to go on
//	node idle    prints the name of the node, and does nothing until it is stopped
//	node token   prints the pod's own token, for whoever may exec into the pod
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/nodes"
)

const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// The environment, see fixtures/nodes/agent.yaml.
const (
	nodeVariable     = "MY_NODE_NAME"
	othersVariable   = "OTHER_NODE_NAMES"
	intervalVariable = "INTERVAL"
)

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
		return runForNodes(ctx)
	case name == "deputy":
		return runForUsers(ctx)
	case name == "rest":
		return tellAgent(restSignal)
	case name == "work":
		return tellAgent(workSignal)
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
	return fmt.Errorf("the arguments are %q (expected none, or one of run, deputy, rest, work, idle, token)", args)
}

// runForNodes works as the node of the pod, and tries to be others.
func runForNodes(ctx context.Context) error {
	ownNode := os.Getenv(nodeVariable)
	if ownNode == "" {
		return fmt.Errorf("%s is not set (expected the node's name, from spec.nodeName)", nodeVariable)
	}
	interval, err := readInterval()
	if err != nil {
		return err
	}
	requests, err := plan(ownNode, strings.Split(os.Getenv(othersVariable), ","))
	if err != nil {
		return err
	}
	return run(ctx, requests, interval)
}

// runForUsers works for users, as a deputy does.
func runForUsers(ctx context.Context) error {
	interval, err := readInterval()
	if err != nil {
		return err
	}
	requests, err := planForUsers()
	if err != nil {
		return err
	}
	return run(ctx, requests, interval)
}

// run makes one round of attempts after the other. What is refused is news, not a reason to stop.
func run(ctx context.Context, requests []request, interval time.Duration) error {
	signals, out := watchSignals(), json.NewEncoder(os.Stdout)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		for _, r := range requests {
			awaitWork(ctx, signals)
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

// readInterval returns the pause from one round to the next.
func readInterval() (time.Duration, error) {
	text := os.Getenv(intervalVariable)
	if text == "" {
		return defaultInterval, nil
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval <= 0 {
		return 0, fmt.Errorf("%s is %q (expected a duration such as 2s)", intervalVariable, text)
	}
	return interval, nil
}

const attemptTimeout = 10 * time.Second

type request struct {
	line nodes.Attempt
	send func(ctx context.Context) error
}

// plan is what one round consists of: as the own node its pods and the node itself, and the same as each of the
// others. The own one may be among them, so that all pods of a DaemonSet can have the same list.
func plan(ownNode string, others []string) (all []request, _ error) {
	for _, node := range distinct(ownNode, others) {
		client, err := clientAs("system:node:" + node)
		if err != nil {
			return nil, err
		}
		all = append(all, requestsAs(client, ownNode, node)...)
	}
	return all, nil
}

func distinct(ownNode string, others []string) []string {
	nodes := []string{ownNode}
	for _, node := range others {
		if node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// clientAs is the recipe: the pod's own configuration, and the name of the user as the only thing that is impersonated.
func clientAs(user string) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	config.Timeout = attemptTimeout
	config.QPS = -1 // the interval paces the requests
	return kubernetes.NewForConfig(config)
}

func requestsAs(client kubernetes.Interface, ownNode, node string) []request {
	line := nodes.Attempt{Node: ownNode, As: "system:node:" + node, Target: node}
	list, get := line, line
	list.Verb, list.Resource = "list", "pods"
	get.Verb, get.Resource = "get", "nodes"
	return []request{
		{list, func(ctx context.Context) error {
			_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			return err
		}},
		{get, func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			return err
		}},
	}
}

func (r request) try(ctx context.Context) nodes.Attempt {
	line := r.line
	err := r.send(ctx)
	line.Time = time.Now().UTC()
	line.Code, line.Message = outcome(err)
	return line
}

func outcome(err error) (code int, message string) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK, ""
	case errors.As(err, &status):
		return int(status.Status().Code), status.Status().Message
	}
	return 0, err.Error()
}
