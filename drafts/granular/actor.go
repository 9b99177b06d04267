package granular

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/authzconf/authzconf/scenarios"
)

// actor is a ServiceAccount in its own namespace, with some permissions on one resource there.
type actor struct {
	namespace, user, token string
}

const (
	account = "actor"
	subject = "subject"
)

// actorOf returns the actor for an ID, which has no token yet.
func actorOf(id string) actor {
	sum := sha256.Sum256([]byte(id))
	namespace := "granular-" + hex.EncodeToString(sum[:6])
	return actor{namespace: namespace, user: "system:serviceaccount:" + namespace + ":" + account}
}

// actor provides the actor for an ID, with grants of verbs on a resource. If there are names, the grants are restricted
// to objects with these names.
func (b *Bench) actor(ctx context.Context, id string, gvr schema.GroupVersionResource, grants, names []string) (actor, error) {
	if known, ok := b.actors.Load(id); ok {
		return known.(actor), nil
	}
	a := actorOf(id)
	needs := &scenarios.Scenario{ID: id, Requestors: map[string]scenarios.Requestor{
		account: {ServiceAccount: &scenarios.ServiceAccount{Namespace: a.namespace, Name: account}},
	}}
	if len(grants) > 0 {
		needs.Grants = []scenarios.Grant{{
			Subject: scenarios.Subject{User: a.user}, Namespace: a.namespace, Verbs: grants, Names: names,
			APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource, gvr.Resource + "/status"},
		}}
	}
	granted, err := b.replayer.Provision(ctx, needs)
	if err != nil {
		return a, fmt.Errorf("preparing %s: %w", id, err)
	}
	a.token = granted.Token(account)
	b.actors.Store(id, a)
	return a, nil
}
