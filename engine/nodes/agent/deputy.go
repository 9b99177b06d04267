package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/engine/nodes"
)

// prefixVariable is what the names of the deputy's users begin with, see fixtures/nodes/deputy.yaml.
const prefixVariable = "USER_PREFIX"

// planForUsers is what one round of a deputy consists of: it lists pods for each of its users.
func planForUsers() (all []request, _ error) {
	prefix := os.Getenv(prefixVariable)
	if prefix == "" {
		return nil, fmt.Errorf("%s is not set (expected the beginning of the names of users)", prefixVariable)
	}
	for _, kind := range nodes.UserKinds() {
		client, err := clientAs(prefix + kind)
		if err != nil {
			return nil, err
		}
		all = append(all, requestFor(client, prefix, kind))
	}
	return all, nil
}

func requestFor(client kubernetes.Interface, prefix, kind string) request {
	line := nodes.Attempt{Deputy: true, Node: os.Getenv(nodeVariable), As: prefix + kind, Verb: "list", Resource: "pods", Target: kind}
	return request{line, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}}
}
