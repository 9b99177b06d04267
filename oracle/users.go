package oracle

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/authzconf/authzconf/scenarios"
)

// Names that Kubernetes gives a meaning (k8s.io/apiserver/pkg/authentication/user and serviceaccount).
const (
	nodeUserPrefix       = "system:node:"
	accountsGroup        = "system:serviceaccounts"
	nodesGroup           = "system:nodes"
	mastersGroup         = "system:masters"
	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
	anonymousUser        = "system:anonymous"

	nodeNameKey           = "authentication.kubernetes.io/node-name"
	associatedNodeKeysKey = "authentication.kubernetes.io/associated-node-keys"
)

// nodeOf is the node that a user name stands for: what follows system:node: has to be a DNS subdomain
// (isNodeUsername).
func nodeOf(user string) (node string, ok bool) {
	node, ok = strings.CutPrefix(user, nodeUserPrefix)
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
	const prefix = "authentication.kubernetes.io/"
	extra := map[string][]string{prefix + "credential-id": {"JTI=" + alias}}
	if sa.Pod != "" {
		extra[prefix+"pod-name"] = []string{sa.Pod}
		extra[prefix+"pod-uid"] = []string{"uid of pod " + sa.Namespace + "/" + sa.Pod}
	}
	if sa.Node != "" {
		extra[nodeNameKey] = []string{sa.Node}
		if sa.Running || sa.NodeObject == nil || *sa.NodeObject {
			extra[prefix+"node-uid"] = []string{"uid of node " + sa.Node}
		}
	}
	return Authenticated(scenarios.User{
		Name: r.Username(), UID: "uid of account " + sa.Namespace + "/" + sa.Name,
		Groups: accountGroups(sa.Namespace), Extra: extra,
	})
}

func accountGroups(namespace string) []string {
	return []string{accountsGroup, accountsGroup + ":" + namespace}
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
