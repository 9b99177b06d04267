package engines

import (
	"fmt"
	"testing"

	"github.com/cedar-policy/cedar-go"
)

// loadCedar translates reviews as the head of the rendered policy says.
func loadCedar(t testing.TB, policy []byte) func(spec) (bool, error) {
	policies, err := cedar.NewPolicySetFromBytes("policy.cedar", policy)
	if err != nil {
		t.Fatal(err)
	}
	return func(s spec) (bool, error) {
		user := cedar.NewEntityUID("k8s::User", cedar.String(s.User))
		var groups []cedar.EntityUID
		for _, g := range s.Groups {
			groups = append(groups, cedar.NewEntityUID("k8s::Group", cedar.String(g)))
		}
		resource, attributes, verb := cedar.NewEntityUID("k8s::NonResourceURL", "asked"), cedar.RecordMap{}, ""
		if a := s.ResourceAttributes; a != nil {
			resource, verb = cedar.NewEntityUID("k8s::Resource", "asked"), a.Verb
			attributes = cedar.RecordMap{
				"apiGroup": cedar.String(a.Group), "resource": cedar.String(a.Resource), "subresource": cedar.String(a.Subresource),
				"namespace": cedar.String(a.Namespace), "name": cedar.String(a.Name),
			}
		} else if a := s.NonResourceAttributes; a != nil {
			verb, attributes = a.Verb, cedar.RecordMap{"path": cedar.String(a.Path)}
		}
		decision, diagnostic := cedar.Authorize(policies, cedar.EntityMap{
			user:     {UID: user, Parents: cedar.NewEntityUIDSet(groups...)},
			resource: {UID: resource, Attributes: cedar.NewRecord(attributes)},
		}, cedar.Request{
			Principal: user, Action: cedar.NewEntityUID("k8s::Action", cedar.String(verb)), Resource: resource,
			Context: cedar.NewRecord(nil),
		})
		if len(diagnostic.Errors) > 0 {
			return false, fmt.Errorf("%v", diagnostic.Errors[0])
		}
		return decision == cedar.Allow, nil
	}
}
