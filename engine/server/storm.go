package server

import (
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
)

// This file is for storms, in which many requests are under way and nothing is attributed to one of them.

// Count has the recorder count reviews instead of recording them; see recorder.Recorder.Count.
func (s *Server) Count(c *recorder.StormHooks) { s.ownRecorder.Count(c) }

// Other reports whether a review is about a component of the cluster, and about nobody who was created for a storm.
func (s *Server) Other(_ recorder.Point, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return s.others(spec)
}

// PIDs are the process IDs of the API server and etcd; 0 if it does not run, is another target's, or not this machine's.
func (s *Server) PIDs() local.PIDs {
	if plane, ok := s.Plane(); ok {
		return plane.PIDs()
	}
	return local.PIDs{}
}

// Storage is the etcd of a local control plane, and nil of any other cluster.
func (s *Server) Storage() (*local.Storage, error) {
	if plane, ok := s.Plane(); ok {
		return plane.Storage()
	}
	return nil, nil //nolint:nilnil // none, and that is not an error
}

// Plane is the local control plane, whose processes can be broken on purpose; false of any other cluster.
func (s *Server) Plane() (*local.ControlPlane, bool) {
	plane, ok := s.cluster.(*local.ControlPlane)
	return plane, ok
}

// SetWebhookDown lets the scripted webhook authorizer answer 503 to everything, or no longer.
func (s *Server) SetWebhookDown(down bool) { s.policy.down.Store(down) }

// TakeEvent returns the audit event of an answered request if this API server wrote it, and forgets it.
func (s *Server) TakeEvent(auditID string) (json.RawMessage, bool) { return s.events.take(auditID) }

// HasEvent reports whether this API server has written the audit event of an answered request that nobody has taken.
func (s *Server) HasEvent(auditID string) bool { return s.events.has(auditID) }

// Mark is what Verbs counts from.
func (s *Server) Mark() uint64 { return s.recorder.Mark() }

// Verbs counts the access reviews that have arrived at the front of the chain since a mark, by verb, without the
// harness's own, and without those of an API server that Restart replaced since.
func (s *Server) Verbs(mark uint64) map[string]int {
	verbs := map[string]int{}
	for _, r := range s.recorder.Since(mark) {
		if r.Point != recorder.Front || r.At.Before(s.replaced) || s.others(r.Spec) {
			continue
		}
		if a := r.Spec.ResourceAttributes; a != nil {
			verbs[a.Verb]++
		} else if a := r.Spec.NonResourceAttributes; a != nil {
			verbs[a.Verb]++
		}
	}
	return verbs
}
