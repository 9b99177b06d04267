package existing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/internal/usage"
)

// Need is a permission that a command needs: a verb on a resource (with a subresource after a slash), or on a path.
type Need struct{ Verb, Group, Resource string }

// String returns the permission as kubectl auth can-i writes it.
func (n Need) String() string { return n.Verb + " " + n.on() }

func (n Need) on() string {
	if n.Group != "" {
		n.Resource += "." + n.Group
	}
	return n.Resource
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

// Cleaning returns what Stop needs.
func Cleaning() (list []Need) {
	for _, k := range outside {
		list = append(list, Needs("list deletecollection", k.group, k.name)...)
	}
	for _, k := range inside {
		list = append(list, Needs("deletecollection", k.group, k.name)...)
	}
	return append(list, Needs("list delete", spaces.group, spaces.name)...)
}

// making returns what every command needs that creates something: it looks at the cluster first, and cleans it in the
// end.
func making() []Need { return append(Cleaning(), Needs("list", "", "pods")...) }

// Running returns what run needs: objects of its own, and grants of everything that scenarios grant.
func Running() []Need {
	return slices.Concat(making(), Needs("create", "", "namespaces", "serviceaccounts", "serviceaccounts/token", "configmaps", "secrets", "pods"),
		Needs("create", rbac, "clusterroles", "clusterrolebindings", "roles", "rolebindings"), Needs("escalate bind", rbac, "clusterroles", "roles"),
		reviews())
}

func reviews() []Need { return Needs("create", "authorization.k8s.io", "subjectaccessreviews") }

// Advising returns what advise needs: to read who may do what and, with verify, to ask about others.
func Advising(verify bool) []Need {
	list := Needs("list", rbac, RBAC()...)
	if verify {
		list = append(list, reviews()...)
	}
	return list
}

// RBAC are the resources of roles and bindings.
func RBAC() []string { return []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} }

// Storm says what else a storm needs.
type Storm struct {
	// Pods means that shards are pods, Kwok that kwok keeps its nodes, and Level that it has a priority level of its
	// own.
	Pods, Kwok, Level bool
}

// Storming returns what load needs, except for what it grants to agents (see Granting).
func Storming(s Storm) []Need {
	list := slices.Concat(making(), Needs("create", "", "namespaces", "nodes", "pods", "serviceaccounts", "serviceaccounts/token"),
		Needs("create", rbac, "clusterroles", "clusterrolebindings"), Needs("list", "discovery.k8s.io", "endpointslices"), Needs("get", "", "/metrics"))
	if s.Level {
		list = append(list, Needs("create delete", flows, "flowschemas", "prioritylevelconfigurations")...)
	}
	if s.Pods {
		list = slices.Concat(
			list,
			Needs("create delete deletecollection", "batch", "jobs"),
			Needs("get list", "", "pods"),
			Needs("get", "", "pods/log"),
			Needs("create deletecollection", "", "secrets"),
		)
	}
	if s.Kwok {
		list = append(list, Needs("get", "", "nodes")...)
	}
	return list
}

// Granting returns what load needs to grant agents permissions that it does not have itself.
func Granting() []Need { return Needs("escalate bind", rbac, "clusterroles") }

// Require returns an error that names the needs which the user of the kubeconfig lacks. The user can fix that.
func (c *Cluster) Require(ctx context.Context, needs []Need) error {
	missing, err := c.Lacking(ctx, needs)
	if err == nil && len(missing) > 0 {
		err = &usage.Error{
			Problem: fmt.Sprintf("the user of the kubeconfig lacks permissions: %s; nothing was created", strings.Join(missing, ", ")),
		}
	}
	return err
}

// refused returns an error for what the API server refuses the user of the kubeconfig before anything is created. The
// user can fix that: not even the permissions that everybody has are there, such as to ask for one's own.
func refused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return &usage.Error{Problem: fmt.Sprintf("the user of the kubeconfig is refused: %v; nothing was created", err)}
	}
	return err
}

// Lacking returns in words which of the needs the user of the kubeconfig may not do, according to the API server.
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
				spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
					Verb:        n.Verb,
					Group:       n.Group,
					Resource:    resource,
					Subresource: sub,
				}
			}
			answer, err := c.client.AuthorizationV1().
				SelfSubjectAccessReviews().
				Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking whether one may %s: %w", n, err)
			}
			allowed[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, refused(err)
	}
	for i, n := range needs {
		if !allowed[i] {
			list = append(list, n.String())
		}
	}
	return list, nil
}
