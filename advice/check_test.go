package advice_test

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// check compares the grants with the model of the API server. What was seen must be allowed in its mode, and each
// neighbour must be denied. It returns the differences.
func check(grants []scenarios.Grant, seen []advice.ObservedImpersonation, neighbours []advice.Neighbour) ([]string, error) {
	server, err := oracle.New(oracle.Config{Kubernetes: "1.37", Gate: scenarios.GateOn, Grants: grants})
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, s := range seen {
		if s.Mode == "" {
			continue
		}
		if p := ask(server, s); p.Mode != s.Mode {
			wrong = append(wrong, fmt.Sprintf("%s was seen and is not allowed: %v", s, p.Messages))
		}
	}
	for _, n := range neighbours {
		if p := ask(server, n.ObservedImpersonation); p.Outcome != scenarios.ImpersonationForbidden {
			wrong = append(wrong,
				fmt.Sprintf("%s was not seen (another %s) and is allowed, by %s", n.ObservedImpersonation, n.Differs, p.Mode),
			)
		}
	}
	return wrong, nil
}

// ask predicts one request on a server with empty caches.
func ask(server *oracle.Server, s advice.ObservedImpersonation) oracle.Prediction {
	server.Advance(time.Minute)
	a := s.Sendable()
	return server.Do(oracle.Authenticated(s.Requestor), &s.As, oracle.Request{Attributes: oracle.Attributes{
		Verb: a.Verb, APIGroup: a.APIGroup, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name, Path: a.Path, ResourceRequest: a.Path == "",
	}})
}
