package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/scenarios"
)

func (p *provisioner) path(u *unstructured.Unstructured) (string, error) {
	kind := u.GroupVersionKind()
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return "", fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
	}
	r := scenarios.Request{
		APIGroup: mapping.Resource.Group,
		Version:  mapping.Resource.Version,
		Resource: mapping.Resource.Resource,
		Name:     u.GetName(),
	}
	if mapping.Scope.Name() != meta.RESTScopeNameRoot {
		r.Namespace = u.GetNamespace()
	}
	return r.URI(), nil
}

// apply creates manifests in order, and waits until the permissions in them are in force.
func (p *provisioner) apply(ctx context.Context, manifests []map[string]any) error {
	var paths []string
	for _, m := range manifests {
		u := &unstructured.Unstructured{Object: m}
		at, err := p.path(u)
		if err != nil {
			return err
		}
		raw, err := u.MarshalJSON()
		if err == nil {
			err = p.client.CoreV1().
				RESTClient().
				Post().
				AbsPath(path.Dir(at)).
				SetHeader("Content-Type", runtime.ContentTypeJSON).
				Body(raw).
				Do(ctx).
				Error()
		}
		if err != nil && !apierrors.IsAlreadyExists(err) { // fixtures of one scenario may share an object
			return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
		paths = append(paths, at)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, g := range scenarios.RulesFromManifests(manifests) {
		for _, example := range g.Examples() {
			group.Go(func() error { return p.awaitReviews(groupCtx, example, true, paths) })
		}
	}
	return group.Wait()
}

func (p *provisioner) grant(ctx context.Context, objects []scenarios.RBACObject) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, o := range objects {
		group.Go(func() error {
			objects := o.Objects()
			for i, at := range o.Paths() {
				if err := p.create(groupCtx, at, objects[i]); err != nil {
					return err
				}
			}
			return p.awaitReviews(groupCtx, o.Check, true, o.Paths())
		})
	}
	return group.Wait()
}

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
		if err := p.awaitReviews(ctx, o.Check, false, o.Paths()); err != nil {
			return err
		}
	}
	return nil
}

// awaitReviews waits until reviews show a grant in force, or gone. The error has what the server shows of the objects at
// the paths.
func (p *provisioner) awaitReviews(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, want bool, paths []string) error {
	err := p.inForce(ctx, spec, want)
	u, ok := errors.AsType[*unappliedGrantError](err)
	if !ok {
		return err
	}
	for _, at := range paths {
		raw, err := p.client.CoreV1().RESTClient().Get().SetHeader("Accept", runtime.ContentTypeJSON).AbsPath(at).Do(ctx).Raw()
		object := map[string]any{}
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err == nil:
			err = json.Unmarshal(raw, &object)
		}
		if err != nil {
			return fmt.Errorf("%s; and reading %s: %w", u.Error(), at, err)
		}
		u.Stored = append(u.Stored, object)
	}
	return u
}

const (
	podTimeout = time.Minute // how long a pod may take to run, its image being there
	podPoll    = 200 * time.Millisecond
)

// realNodes are the nodes that stand for those of a scenario.
func (p *provisioner) realNodes(ctx context.Context, s *scenarios.Scenario) ([]string, error) {
	if len(s.Nodes) == 0 {
		return nil, nil
	}
	live, err := nodes.Live(ctx, p.client)
	if err != nil {
		return nil, err
	}
	if len(live) < len(s.Nodes) {
		return nil, fmt.Errorf("the cluster has %d nodes that are ready (expected at least %d)", len(live), len(s.Nodes))
	}
	return live[:len(s.Nodes)], nil
}

func (p *provisioner) runPod(ctx context.Context, sa *scenarios.ServiceAccount) error {
	pod, err := nodes.Pod(sa.Pod, sa.Name, sa.Node)
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(sa.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return utilerrors.FilterOut(err, apierrors.IsAlreadyExists)
}

func (p *provisioner) awaitPods(ctx context.Context, bound *scenarios.Scenario) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, key := range bound.Pods() {
		group.Go(func() error { return p.awaitPod(groupCtx, key[0], key[1]) })
	}
	return group.Wait()
}

func (p *provisioner) awaitPod(ctx context.Context, namespace, name string) error {
	var last *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, podPoll, podTimeout, true, func(ctx context.Context) (done bool, err error) {
		last, err = p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(last.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), err
	})
	if err != nil {
		return fmt.Errorf("pod %s/%s does not run after %s: %w%s", namespace, name, podTimeout, err, podState(last))
	}
	return nil
}

func podState(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	text := " (" + string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += ", " + w.Reason + ": " + w.Message
		}
	}
	return text + ")"
}

// removePods ends the pods that the scenario ran: unlike other objects they cost something as long as they are there.
func (p *provisioner) removePods(ctx context.Context, bound *scenarios.Scenario) {
	for _, key := range bound.Pods() {
		// One that is left over harms nothing but memory.
		_ = p.client.CoreV1().Pods(key[0]).Delete(ctx, key[1], metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
}
