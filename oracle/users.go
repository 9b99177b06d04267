package oracle

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// Names that Kubernetes gives a meaning.
const (
	nodeUserPrefix       = "system:node:"
	nodesGroup           = user.NodesGroup
	mastersGroup         = user.SystemPrivilegedGroup
	authenticatedGroup   = user.AllAuthenticated
	unauthenticatedGroup = user.AllUnauthenticated
	anonymousUser        = user.Anonymous

	associatedNodeKeysKey = "authentication.kubernetes.io/associated-node-keys"
)

// nodeOf is the node that a user name stands for: what follows system:node: has to be a DNS subdomain
// (isNodeUsername).
func nodeOf(name string) (node string, ok bool) {
	node, ok = strings.CutPrefix(name, nodeUserPrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// Authenticated is a user as authentication leaves it: a member of system:authenticated, unless it is anonymous
// (NewAuthenticatedGroupAdder).
func Authenticated(u scenarios.User) scenarios.User {
	if u.Name != anonymousUser && !slices.Contains(u.Groups, authenticatedGroup) {
		u.Groups = append(slices.Clone(u.Groups), authenticatedGroup)
	}
	return u
}

// RequestorOf is who authenticates under an alias of a scenario. IDs that a server makes up (of accounts, pods,
// nodes and credentials) are stood in for by texts that are as different as the IDs would be.
func RequestorOf(alias string, r scenarios.Requestor) scenarios.User {
	if r.Anonymous {
		return scenarios.User{Name: anonymousUser, Groups: []string{unauthenticatedGroup}}
	}
	sa := r.ServiceAccount
	if sa == nil {
		extra := map[string][]string{}
		for k, v := range r.Extra { // the front proxy's headers have no case
			extra[strings.ToLower(k)] = v
		}
		if len(extra) == 0 {
			extra = nil
		}
		return Authenticated(scenarios.User{Name: r.User, UID: r.UID, Groups: slices.Clone(r.Groups), Extra: extra})
	}
	info := serviceaccount.ServiceAccountInfo{
		Namespace: sa.Namespace, Name: sa.Name, UID: "uid of account " + sa.Namespace + "/" + sa.Name, CredentialID: "JTI=" + alias,
		PodName: sa.Pod, PodUID: "uid of pod " + sa.Namespace + "/" + sa.Pod, NodeName: sa.Node,
	}
	if sa.Running || sa.NodeObject == nil || *sa.NodeObject {
		info.NodeUID = "uid of node " + sa.Node
	}
	return Authenticated(scenarios.UserFrom(info.UserInfo()))
}

// onlyName tells whether nothing but a user name is wanted.
func onlyName(u scenarios.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// completed is the resulting user with the group that everybody gets (impersonationModeState.check and
// WithImpersonation).
func completed(u scenarios.User) scenarios.User {
	add := ""
	switch {
	case u.Name == anonymousUser:
		add = unauthenticatedGroup
	case !slices.Contains(u.Groups, unauthenticatedGroup):
		add = authenticatedGroup
	}
	if add != "" && !slices.Contains(u.Groups, add) {
		u.Groups = append(slices.Clone(u.Groups), add)
	}
	return u
}

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
