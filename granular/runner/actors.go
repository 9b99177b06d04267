package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/authzconf/authzconf/engine/recorder"
)

// actor is a ServiceAccount in a namespace of its own, which holds some permissions on
// one resource there.
type actor struct {
	namespace, user, token string
}

// actors are those that there are, by what they are for: running the scenarios again,
// with another enforcer, needs no new ones.
type actors struct {
	mu   sync.Mutex
	kept map[string]actor
}

const (
	account = "actor"
	subject = "subject"
)

// actor provides the actor of an attempt; id is unlike every other's.
func (b *Bench) actor(ctx context.Context, id string, gvr schema.GroupVersionResource, grants, names []string) (actor, error) {
	b.actors.mu.Lock()
	a, ok := b.actors.kept[id]
	b.actors.mu.Unlock()
	if ok {
		return a, nil
	}
	sum := sha256.Sum256([]byte(id))
	a = actor{namespace: "granular-" + hex.EncodeToString(sum[:6])}
	a.user = "system:serviceaccount:" + a.namespace + ":" + account
	if err := b.provision(ctx, &a, gvr, grants, names); err != nil {
		return a, fmt.Errorf("preparing %s: %w", id, err)
	}
	b.actors.mu.Lock()
	defer b.actors.mu.Unlock()
	if b.actors.kept == nil {
		b.actors.kept = map[string]actor{}
	}
	b.actors.kept[id] = a
	return a, nil
}

func (b *Bench) provision(ctx context.Context, a *actor, gvr schema.GroupVersionResource, grants, names []string) error {
	create := metav1.CreateOptions{}
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}, create); err != nil {
		return err
	}
	if _, err := b.client.CoreV1().ServiceAccounts(a.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, create); err != nil {
		return err
	}
	token, err := b.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, create)
	if err != nil {
		return err
	}
	a.token = token.Status.Token
	if len(grants) == 0 {
		return nil
	}
	_, err = b.client.RbacV1().Roles(a.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: []rbacv1.PolicyRule{
		{Verbs: grants, APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource, gvr.Resource + "/status"}, ResourceNames: names},
	}}, create)
	if err != nil {
		return err
	}
	_, err = b.client.RbacV1().RoleBindings(a.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: a.namespace}},
	}, create)
	if err != nil {
		return err
	}
	return b.inForce(ctx, a, gvr, grants[0], strings.Join(names, ""))
}

// inForce waits until the authorizer knows of a grant; all of a Role come at once.
func (b *Bench) inForce(ctx context.Context, a *actor, gvr schema.GroupVersionResource, verb, name string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: a.user, Extra: map[string]authorizationv1.ExtraValue{recorder.ProbeExtraKey: {"true"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: gvr.Group, Resource: gvr.Resource, Namespace: a.namespace, Name: name},
	}}
	return poll(ctx, "a grant", func(ctx context.Context) (bool, error) {
		answer, err := b.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
}
