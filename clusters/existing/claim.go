package existing

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
)

const (
	// claimed is the annotation that says who has claimed a cluster.
	claimed = "authzconf.dev/claimed-by"
	// leaving is how long the namespaces of an earlier run may take to disappear.
	leaving = time.Minute
)

// Claim makes a namespace that says that a storm has the cluster for itself, or says who has. own labels all other
// namespaces of storms: what an earlier one made has to be gone first.
func (c *Cluster) Claim(ctx context.Context, name, own string) error {
	host, _ := os.Hostname()
	by := fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	for end := time.Now().Add(leaving); ; {
		going, err := c.earlier(ctx, name, own)
		if err != nil {
			return err
		}
		if going == "" {
			c.made.Store(true)
			_, err = c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{Label: c.run, managedBy: "authzconf"}, Annotations: map[string]string{claimed: by},
			}}, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
			continue // somebody was quicker
		}
		if time.Now().After(end) {
			return &local.UsageError{Problem: fmt.Sprintf("the namespace %s of an earlier storm is still being removed after %s; nothing was created", going, leaving)}
		}
		if !clusters.Pause(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// earlier is the name of another storm's namespace that is being removed, if there is one. One that stays is an error.
func (c *Cluster) earlier(ctx context.Context, name, own string) (going string, err error) {
	list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, s := range list.Items {
		_, theirs := s.Labels[own]
		switch {
		case s.Name != name && !theirs:
		case s.DeletionTimestamp != nil:
			going = s.Name
		case s.Labels[Label] == "":
			return "", &local.UsageError{Problem: fmt.Sprintf("there is a namespace %s in the cluster that no run has made: a storm needs it; nothing was created", s.Name)}
		case s.Name == name && s.Annotations[claimed] != "":
			return "", &local.UsageError{Problem: fmt.Sprintf("another storm is in the cluster: run %s, %s; wait for its end, or if that process is gone, remove what it left (authzconf clean --kubeconfig FILE); nothing was created",
				s.Labels[Label], s.Annotations[claimed])}
		default:
			return "", &local.UsageError{Problem: fmt.Sprintf("run %s has left the namespace %s in the cluster: remove it first (authzconf clean --kubeconfig FILE); nothing was created", s.Labels[Label], s.Name)}
		}
	}
	return going, nil
}
