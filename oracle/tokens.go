package oracle

import (
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// tokenTTL is how long a token that was found valid is not looked at again (TokenSuccessCacheTTL of
// k8s.io/kubernetes/pkg/kubeapiserver/options). What is found invalid is not remembered.
const tokenTTL = 10 * time.Second

// tokens is what a server knows of the tokens of service accounts.
type tokens struct {
	// gone are the accounts, pods and nodes that were deleted, by path.
	gone map[string]bool
	// valid is when the token of an alias was last looked at and found valid.
	valid map[string]time.Duration
}

// Receive is Do for a requestor of a scenario, whose token may have become invalid.
func (s *Server) Receive(alias string, r scenarios.Requestor, imp *scenarios.Impersonate, request Request) Prediction {
	requestor := RequestorOf(alias, r)
	if !s.authenticates(alias, r.ServiceAccount) {
		return Prediction{
			Requestor: requestor, Outcome: scenarios.Unauthenticated, Code: 401,
			Messages: []string{"Unauthorized"}, Counted: s.countsImpersonation(),
		}
	}
	return s.Do(requestor, imp, request)
}

// authenticates is Validate of k8s.io/kubernetes/pkg/serviceaccount/claims.go behind the cache of
// k8s.io/apiserver/pkg/authentication/token/cache: a token lives as long as its account and what it is bound to, and
// not with others of these names. One that is bound
// to a pod names the pod's node only for others to read: it outlives the node.
func (s *Server) authenticates(alias string, sa *scenarios.ServiceAccount) bool {
	if sa == nil {
		return true
	}
	if since, ok := s.tokens.valid[alias]; ok && s.memory.now < since+tokenTTL {
		return true
	}
	if s.tokens.gone[boundPath("serviceaccounts", sa.Namespace, sa.Name)] ||
		sa.Pod != "" && s.tokens.gone[boundPath("pods", sa.Namespace, sa.Pod)] ||
		sa.Pod == "" && sa.Node != "" && s.tokens.gone[boundPath("nodes", "", sa.Node)] {
		return false
	}
	s.tokens.valid[alias] = s.memory.now
	return true
}

func boundPath(resource, namespace, name string) string {
	return resource + "/" + namespace + "/" + name
}

// deleted notes what tokens may be bound to. The model knows no grace: scenarios delete at once.
func (s *Server) deleted(r Request) {
	if r.Verb != "delete" || r.APIGroup != "" || r.Subresource != "" || r.DryRun {
		return
	}
	s.tokens.gone[boundPath(r.Resource, r.Namespace, r.Name)] = true
}
