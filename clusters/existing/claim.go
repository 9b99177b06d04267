package existing

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/clusters/local"
)

// Need is a permission that a run needs: a verb on a resource (with its subresource after a slash), or on a path.
type Need struct{ Verb, Group, Resource string }

// String is as kubectl auth can-i has it.
func (n Need) String() string {
	if n.Group != "" {
		n.Resource += "." + n.Group
	}
	return n.Verb + " " + n.Resource
}

// Needs are the verbs, apart by spaces, on each of the resources.
func Needs(verbs, group string, resources ...string) (list []Need) {
	for _, resource := range resources {
		for verb := range strings.FieldsSeq(verbs) {
			list = append(list, Need{verb, group, resource})
		}
	}
	return list
}

// Cleaning is what Stop needs.
func Cleaning() (list []Need) {
	for _, k := range outside {
		list = append(list, Needs("list deletecollection", k.group, k.name)...)
	}
	for _, k := range inside {
		list = append(list, Needs("deletecollection", k.group, k.name)...)
	}
	return append(list, Needs("list delete", spaces.group, spaces.name)...)
}

// Running is what run needs: objects of its own, and grants of anything that scenarios grant.
func Running() []Need {
	return slices.Concat(Cleaning(), Needs("create", "", "namespaces", "serviceaccounts", "serviceaccounts/token", "configmaps", "secrets", "pods"),
		Needs("create", rbac, "clusterroles", "clusterrolebindings", "roles", "rolebindings"), Needs("escalate bind", rbac, "clusterroles", "roles"),
		Needs("create", "authorization.k8s.io", "subjectaccessreviews"))
}

// Require says what of the needs the user of the kubeconfig lacks, which is that user's to mend.
func (c *Cluster) Require(ctx context.Context, needs []Need) error {
	lacking, err := c.Lacking(ctx, needs)
	if err == nil && len(lacking) > 0 {
		err = &local.UsageError{Problem: fmt.Sprintf("the user of the kubeconfig lacks permissions: %s; nothing was created", strings.Join(lacking, ", "))}
	}
	return err
}

// Lacking are those of the needs that the user of the kubeconfig may not do, as the API server says, in words.
func (c *Cluster) Lacking(ctx context.Context, needs []Need) (list []string, err error) {
	allowed := make([]bool, len(needs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, n := range needs {
		group.Go(func() error {
			var spec authorizationv1.SelfSubjectAccessReviewSpec
			if strings.HasPrefix(n.Resource, "/") {
				spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: n.Verb, Path: n.Resource}
			} else {
				resource, sub, _ := strings.Cut(n.Resource, "/")
				spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: n.Verb, Group: n.Group, Resource: resource, Subresource: sub}
			}
			answer, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking whether one may %s: %w", n, err)
			}
			allowed[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, n := range needs {
		if !allowed[i] {
			list = append(list, n.String())
		}
	}
	return list, nil
}

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
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
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
