package replay

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
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
	mapping, err := c.mapping(u)
	if err != nil {
		return err
	}
	var into dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameRoot {
		into = c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	if _, err = into.Create(ctx, u, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

func (c *objectClient) mapping(u *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := u.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return mapping, nil
}

// path is where an object is read.
func (c *objectClient) path(object map[string]any) (string, error) {
	u := &unstructured.Unstructured{Object: object}
	mapping, err := c.mapping(u)
	if err != nil {
		return "", err
	}
	r := scenarios.Request{APIGroup: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource, Name: u.GetName()}
	if mapping.Scope.Name() != meta.RESTScopeNameRoot {
		r.Namespace = u.GetNamespace()
	}
	return r.URI(), nil
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

// createRBAC creates the role, then the binding.
func (p *provisioner) createRBAC(ctx context.Context, o scenarios.RBACObject) error {
	objects := o.Objects()
	for i, at := range o.Paths() {
		if err := p.create(ctx, at, objects[i]); err != nil {
			return err
		}
	}
	return nil
}

// revoke deletes bindings and roles and waits until they are not in force any more.
func (p *provisioner) revoke(ctx context.Context, objects []scenarios.RBACObject) error {
	for _, o := range objects {
		for _, at := range slices.Backward(o.Paths()) {
			if err := p.client.CoreV1().RESTClient().Delete().AbsPath(at).Do(ctx).Error(); err != nil {
				return err
			}
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
