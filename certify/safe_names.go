package certify

import (
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// safeNames makes the names for level safe. They depend on the seed, so that nobody can have granted anything to them or
// about them.
type safeNames struct{ seed int64 }

// newName returns a name for a purpose. The twelve characters at its end make it unlikely that somebody else has it.
func (n safeNames) newName(purpose string) string {
	return purpose + "-" + scenarios.Suffix(n.seed, "safe", purpose) + scenarios.Suffix(n.seed, "safe", purpose, "more")
}

// uid returns a UID for a purpose.
func (n safeNames) uid(purpose string) string { return n.newName("uid-of-" + purpose) }

// user returns a requestor who is authenticated and has no other attributes.
func (n safeNames) user() spec {
	return spec{User: n.newName("nobody"), Groups: []string{n.newName("nobodies"), "system:authenticated"}}
}

// account returns a service account with the token of a pod.
func (n safeNames) account() spec {
	namespace := n.newName("namespace")
	return spec{
		User: "system:serviceaccount:" + namespace + ":" + n.newName("account"), UID: n.uid("account"),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Extra: map[string]authorizationv1.ExtraValue{
			user.CredentialIDKey:       {"JTI=" + n.uid("token")},
			serviceaccount.NodeNameKey: {n.newName("node")}, serviceaccount.NodeUIDKey: {n.uid("node")},
			serviceaccount.PodNameKey: {n.newName("pod")}, serviceaccount.PodUIDKey: {n.uid("pod")},
		},
	}
}

// podOnNode returns the account as it is in reviews about the node that it runs on. They contain the keys of the node's
// extra instead of the values.
func (n safeNames) podOnNode() spec {
	who := n.account()
	keys := slices.Sorted(maps.Keys(who.Extra))
	keys = slices.DeleteFunc(keys, func(key string) bool { return key != serviceaccount.NodeNameKey && key != serviceaccount.NodeUIDKey })
	who.Extra = map[string]authorizationv1.ExtraValue{scenarios.AssociatedNodeKeysKey: keys}
	return who
}

// node returns a node with extra values of its own.
func (n safeNames) node() spec {
	return spec{
		User:   "system:node:" + n.newName("node"),
		Groups: []string{"system:nodes", "system:authenticated"},
		Extra: map[string]authorizationv1.ExtraValue{
			user.CredentialIDKey: {"X509SHA256=" + n.uid("certificate")},
			"example.com/zone":   {n.newName("zone"), ""},
		},
	}
}

// requestors returns requestors other than user, in a fixed order.
func (n safeNames) requestors() []spec {
	withExtra := n.user()
	withExtra.UID = n.uid("user")
	withExtra.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"*", "cluster-admin"}, "acme.com/roles": {"admin"}}
	return []spec{
		n.account(), n.node(), withExtra,
		{User: n.newName("without-groups")},
		{User: "system:anonymous", Groups: []string{"system:unauthenticated"}},
	}
}

// withRequestor returns a review as asked by another requestor.
func withRequestor(who, s spec) spec {
	who.ResourceAttributes, who.NonResourceAttributes = s.ResourceAttributes, s.NonResourceAttributes
	return who
}
