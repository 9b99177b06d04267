package oracle

import (
	"slices"
	"strings"

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
