package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/nodes"
)

// attemptTimeout ends a request that is not answered.
const attemptTimeout = 10 * time.Second

// request is one that is made again and again.
type request struct {
	line nodes.Attempt
	send func(ctx context.Context) error
}

// plan is what one round consists of: as the own node its pods and the node itself, and the same as each of the
// others. The own one may be among them, so that all pods of a DaemonSet can have the same list.
func plan(own string, others []string) ([]request, error) {
	var all []request
	for _, node := range distinct(own, others) {
		client, err := clientAs(node)
		if err != nil {
			return nil, err
		}
		all = append(all, requestsAs(client, own, node)...)
	}
	return all, nil
}

func distinct(own string, others []string) []string {
	nodes := []string{own}
	for _, node := range others {
		if node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// clientAs is the recipe: the pod's own configuration, and the name of the node
// as the only thing that is impersonated.
func clientAs(node string) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node}
	config.Timeout = attemptTimeout
	config.QPS = -1 // the interval paces the requests
	return kubernetes.NewForConfig(config)
}

func requestsAs(client kubernetes.Interface, own, node string) []request {
	line := nodes.Attempt{Node: own, As: "system:node:" + node, Target: node}
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

// try makes the request and says what became of it.
func (r request) try(ctx context.Context) nodes.Attempt {
	line := r.line
	err := r.send(ctx)
	line.Time = time.Now().UTC()
	line.Code, line.Message = outcome(err)
	return line
}

// outcome is the status code and the text of a request's error.
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
