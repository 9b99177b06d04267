package target

import (
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
