package target

import (
	"context"
	"encoding/json"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
)

// What follows is for storms, in which many requests are under way and nothing is attributed to one of them.

// Count has the recorder count reviews instead of recording them; see recorder.Recorder.Count.
func (t *Target) Count(c *recorder.Counting) { t.own.Count(c) }

// Other says of a review that it is about a component of the cluster, and of nobody who was created for a storm.
func (t *Target) Other(_ recorder.Point, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return t.others(spec)
}

// Components says whether the cluster has components that ask all the time.
func (t *Target) Components() bool { return t.network != nil }

// PIDs are the process IDs of the API server and its etcd; 0 for one that does not run, is another target's, or not
// this machine's.
func (t *Target) PIDs() local.PIDs {
	if c, ok := t.cluster.(*local.ControlPlane); ok {
		return c.PIDs()
	}
	return local.PIDs{}
}

// Storage is the etcd of a local control plane, and nil of any other cluster.
func (t *Target) Storage() (*local.Storage, error) {
	if c, ok := t.cluster.(*local.ControlPlane); ok {
		return c.Storage()
	}
	return nil, nil //nolint:nilnil // there is none, which is no error
}

// faulty is a cluster whose parts can be broken on purpose.
type faulty interface {
	KillAPIServer() error
	RestartEtcd(ctx context.Context) error
}

// KillAPIServer kills the API server (SIGKILL). Restart brings one up again.
func (t *Target) KillAPIServer() error {
	c, ok := t.cluster.(faulty)
	if !ok {
		return errors.New("the API server of this cluster cannot be killed")
	}
	return c.KillAPIServer()
}

// RestartEtcd kills etcd, starts it again on its data, and returns when the API server is ready again.
func (t *Target) RestartEtcd(ctx context.Context) error {
	c, ok := t.cluster.(faulty)
	if !ok {
		return errors.New("etcd of this cluster cannot be restarted")
	}
	return c.RestartEtcd(ctx)
}

// SetWebhookDown lets the scripted webhook authorizer answer 503 to everything, or no longer.
func (t *Target) SetWebhookDown(down bool) { t.policy.down.Store(down) }

// TakeEvent returns the audit event of an answered request if this API server wrote it, and forgets it.
func (t *Target) TakeEvent(auditID string) (json.RawMessage, bool) { return t.events.take(auditID) }
