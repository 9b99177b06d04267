// Command count-checks counts what an API server checks for the agents of a DaemonSet that impersonate their nodes. It has no code
// of authzconf's own, only client-go and the API server's metrics, so its figures are what predictions and storms are held to:
//
//	authzconf up --gate on > kubeconfig.path &
//	go run ./ci/count-checks --kubeconfig "$(cat kubeconfig.path)" --agents 200 --every 4s
//	authzconf load predict --nodes 200 --every 4s --authorizer rbac
//
// The agents are connections of this program, each with the token of a pod of its own, on a node of its own. It makes these objects
// and leaves them behind: the control plane should be one that is thrown away.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// remembered is how long an API server remembers that an impersonation is allowed
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, cache.go).
const remembered = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", "", "file of an administrator of the control plane")
	agents := flag.Int("agents", 20, "how many agents there are, each on a node of its own")
	every := flag.Duration("every", 4*time.Second, "how often each agent lists the pods of its node")
	atLeast := flag.Duration("for", time.Minute, "how long is counted, at least")
	flag.Parse()
	switch {
	case *kubeconfig == "":
		return errors.New("--kubeconfig is missing: expected the file that authzconf up names")
	case *agents < 1:
		return fmt.Errorf("--agents %d: expected at least 1", *agents)
	case *every < time.Duration(*agents)*time.Millisecond:
		return fmt.Errorf("--every %s: expected at least %d ms for %d agents", *every, *agents, *agents)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	counts, err := countChecks(ctx, admin, *agents, *every, *atLeast)
	if err != nil {
		return err
	}
	fmt.Printf("%d agents, every %s: %.0f requests, %.0f checks of impersonation; with that of the request itself %.3f a request\n",
		*agents, *every, counts.requests, counts.checks, counts.checksPerRequest())
	return nil
}

// countChecks makes agents, lets them ask, and returns what was counted in their steady state.
func countChecks(ctx context.Context, admin *rest.Config, agents int, every, atLeast time.Duration) (counts observation, err error) {
	admin = rest.CopyConfig(admin)
	admin.QPS = -1 // nothing waits in the client
	tokens, err := createAgents(ctx, admin, agents)
	if err != nil {
		return counts, err
	}
	s := &schedule{every: every, begin: time.Now().Add(time.Second)}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, token := range tokens {
		a, err := newAgent(admin, nodeName(i), token)
		if err != nil {
			return counts, err
		}
		offset := time.Duration(i) * every / time.Duration(agents)
		all.Go(func() { s.ask(ctx, a, offset) })
	}
	return s.count(ctx, admin, agents, atLeast)
}

// schedule is when agents ask, and how many of their requests were answered, and how many failed.
type schedule struct {
	every time.Duration
	begin time.Time

	answered, failed atomic.Int64
}

// agent lists the pods of its node, for its node.
type agent struct {
	node   string
	client corev1.CoreV1Interface
}

func newAgent(admin *rest.Config, node, token string) (agent, error) {
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken, config.QPS = token, -1
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node}
	client, err := corev1.NewForConfig(config)
	return agent{node, client}, err
}

// ask lets an agent ask until ctx ends, at the same place in each period.
func (s *schedule) ask(ctx context.Context, a agent, offset time.Duration) {
	for next := s.begin.Add(offset); ; next = next.Add(s.every) {
		if !sleepUntil(ctx, next) {
			return
		}
		_, err := a.client.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.node, ResourceVersion: "0"})
		switch {
		case err == nil:
			s.answered.Add(1)
		case ctx.Err() == nil:
			if s.failed.Add(1) == 1 {
				fmt.Fprintln(os.Stderr, "a request failed:", err)
			}
		}
	}
}

// count returns how many requests and checks there were in a whole number of cycles of the steady state. An agent is checked, goes on
// while that is remembered, and is checked again: that is a cycle.
func (s *schedule) count(ctx context.Context, admin *rest.Config, agents int, atLeast time.Duration) (counts observation, err error) {
	requests := int(remembered/s.every) + 1
	cycle := time.Duration(requests) * s.every
	length := roundUp(atLeast, cycle)
	warm := roundUp(2*remembered, cycle)
	// Counting begins and ends half-way between two requests.
	begin := s.begin.Add(warm - s.every/time.Duration(2*agents))
	fmt.Fprintf(os.Stderr, "%d agents ask for %s, and are counted for %s after that\n", agents, warm, length)
	before, err := s.observe(ctx, admin, begin)
	if err != nil {
		return counts, err
	}
	after, err := s.observe(ctx, admin, begin.Add(length))
	if err != nil {
		return counts, err
	}
	if failed := s.failed.Load(); failed > 0 {
		return counts, fmt.Errorf("%d requests failed: what was counted says nothing", failed)
	}
	return observation{requests: after.requests - before.requests, checks: after.checks - before.checks}, nil
}

// roundUp returns the least whole number of cycles that is not shorter than a duration.
func roundUp(d, cycle time.Duration) time.Duration {
	if rest := d % cycle; rest > 0 {
		return d + cycle - rest
	}
	return d
}

// observation is what was counted up to a moment, or between two: requests here, and checks of impersonation by the API server.
type observation struct {
	requests, checks float64
}

// checksPerRequest returns the checks of impersonation of a request, with the check of the request itself.
func (o observation) checksPerRequest() float64 { return 1 + o.checks/o.requests }

// observe waits for a moment, and reads what has been counted.
func (s *schedule) observe(ctx context.Context, admin *rest.Config, at time.Time) (o observation, err error) {
	if !sleepUntil(ctx, at) {
		return o, ctx.Err()
	}
	o.requests = float64(s.answered.Load())
	o.checks, err = readChecks(ctx, admin)
	return o, err
}

// sleepUntil reports whether a moment has come before ctx ends.
func sleepUntil(ctx context.Context, at time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(at)):
		return true
	}
}
