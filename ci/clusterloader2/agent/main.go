// Agent is a node agent of a DaemonSet: it lists the pods of its own node, every so often, for its node. It is what
// clusterloader2 loads an API server with (ci/clusterloader2), and uses client-go alone: what its figures show owes nothing to
// the load generator of authzconf.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// impersonations are whom an agent impersonates, by what the modes of the flag are called.
var impersonations = map[string]func(node string) rest.ImpersonationConfig{
	"none": func(string) rest.ImpersonationConfig { return rest.ImpersonationConfig{} },
	// Constrained, a node is impersonated by its name alone, and gets its group.
	"associated-node": func(node string) rest.ImpersonationConfig {
		return rest.ImpersonationConfig{UserName: "system:node:" + node}
	},
	// By the verb impersonate the group has to be asked for: without it a node may do nothing.
	"legacy": func(node string) rest.ImpersonationConfig {
		return rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context) error {
	mode := flag.String(
		"mode",
		"associated-node",
		"whom the agent impersonates: associated-node, legacy (its node, by the verb impersonate) or none",
	)
	every := flag.Duration("every", 5*time.Second, "how often it asks")
	node := flag.String("node", os.Getenv("NODE_NAME"), "its node (default $NODE_NAME, of the downward API)")
	server := flag.String("server", "", "address of an API server (default: that of the Service kubernetes)")
	flag.Parse()
	impersonate, isKnown := impersonations[*mode]
	switch {
	case !isKnown:
		return fmt.Errorf("--mode %q: expected one of %v", *mode, slices.Sorted(maps.Keys(impersonations)))
	case *node == "":
		return errors.New("--node is missing: set NODE_NAME by the downward API (spec.nodeName)")
	case *every <= 0:
		return fmt.Errorf("--every %s: expected how often the agent asks, such as 5s", *every)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if *server != "" {
		config.Host = *server
	}
	config.Impersonate, config.QPS = impersonate(*node), -1 // nothing waits in the client
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return ask(ctx, client, *node, *every)
}

// ask lists until ctx ends, and prints how often it got which answer: when it ends, and every minute.
func ask(ctx context.Context, client kubernetes.Interface, node string, every time.Duration) error {
	answers := map[string]int{}
	next, report := time.NewTicker(every), time.NewTicker(time.Minute)
	defer next.Stop()
	defer report.Stop()
	for {
		select {
		case <-ctx.Done():
			return printAnswers(answers)
		case <-report.C:
			if err := printAnswers(answers); err != nil {
				return err
			}
		case <-next.C:
			_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, ResourceVersion: "0"})
			answers[classify(err)]++
		}
	}
}

// classify returns the status of an answer, or "error" if there was none.
func classify(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return strconv.Itoa(http.StatusOK)
	case errors.As(err, &status):
		return strconv.Itoa(int(status.Status().Code))
	}
	return "error"
}

func printAnswers(answers map[string]int) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"time": time.Now().UTC(), "answers": answers})
}
