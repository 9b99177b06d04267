package replay

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/authzconf/authzconf/scenarios"
)

// objectClient creates objects of any kind.
type objectClient struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newObjectClient(config *rest.Config) (*objectClient, error) {
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &objectClient{dynamic: d, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}, nil
}

func (c *objectClient) create(ctx context.Context, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	kind := u.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	if mapping.Scope.Name() == "root" {
		_, err = c.dynamic.Resource(mapping.Resource).Create(ctx, u, metav1.CreateOptions{})
	} else {
		_, err = c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	}
	if ignoreExists(err) != nil {
		return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// path is where an object is read.
func (c *objectClient) path(object map[string]any) (string, error) {
	u := &unstructured.Unstructured{Object: object}
	kind := u.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return "", fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	prefix := "/apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		prefix = "/api/" + kind.Version
	}
	if mapping.Scope.Name() != "root" {
		prefix += "/namespaces/" + u.GetNamespace()
	}
	return prefix + "/" + mapping.Resource.Resource + "/" + u.GetName(), nil
}

// apply creates manifests in order, and waits until the permissions in them are in force.
func (p *provisioner) apply(ctx context.Context, manifests []map[string]any) error {
	for _, m := range manifests {
		if err := p.objects.create(ctx, m); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, g := range scenarios.RulesFromManifests(manifests) {
		for _, example := range g.Examples() {
			group.Go(func() error { return p.inForce(groupCtx, example, true) })
		}
	}
	return group.Wait()
}

// grant creates roles and bindings and waits until they are in force.
func (p *provisioner) grant(ctx context.Context, objects []scenarios.RBACObject) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, o := range objects {
		group.Go(func() error {
			if err := p.createRBAC(groupCtx, o); err != nil {
				return err
			}
			return p.inForce(groupCtx, o.Check, true)
		})
	}
	return group.Wait()
}

func (p *provisioner) createRBAC(ctx context.Context, o scenarios.RBACObject) error {
	rbac, opts := p.client.RbacV1(), metav1.CreateOptions{}
	var err error
	if o.ClusterRole != nil {
		if _, err = rbac.ClusterRoles().Create(ctx, o.ClusterRole, opts); err == nil {
			_, err = rbac.ClusterRoleBindings().Create(ctx, o.ClusterRoleBinding, opts)
		}
	} else if _, err = rbac.Roles(o.Role.Namespace).Create(ctx, o.Role, opts); err == nil {
		_, err = rbac.RoleBindings(o.RoleBinding.Namespace).Create(ctx, o.RoleBinding, opts)
	}
	return err
}

// revoke deletes bindings and roles and waits until they are not in force any more.
func (p *provisioner) revoke(ctx context.Context, objects []scenarios.RBACObject) error {
	rbac, opts := p.client.RbacV1(), metav1.DeleteOptions{}
	for _, o := range objects {
		var err error
		if o.ClusterRole != nil {
			if err = rbac.ClusterRoleBindings().Delete(ctx, o.ClusterRoleBinding.Name, opts); err == nil {
				err = rbac.ClusterRoles().Delete(ctx, o.ClusterRole.Name, opts)
			}
		} else if err = rbac.RoleBindings(o.RoleBinding.Namespace).Delete(ctx, o.RoleBinding.Name, opts); err == nil {
			err = rbac.Roles(o.Role.Namespace).Delete(ctx, o.Role.Name, opts)
		}
		if err != nil {
			return err
		}
		if !o.Exclusive {
			return fmt.Errorf("that grant %q is revoked cannot be seen: another grant allows the same", o.Grant)
		}
		if err := p.inForce(ctx, o.Check, false); err != nil {
			return err
		}
	}
	return nil
}
