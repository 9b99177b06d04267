package predict

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// levelOf returns the priority level in which a request of a user is dispatched, by the FlowSchemas that every API
// server creates (k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap/default.go). It does not cover requests for Nodes and
// Leases, for which nodes have a level of their own.
func levelOf(u scenarios.User) string {
	switch {
	case slices.Contains(u.Groups, user.SystemPrivilegedGroup):
		return "exempt"
	case slices.Contains(u.Groups, user.NodesGroup):
		return "system"
	case strings.HasPrefix(u.Name, serviceaccount.MakeUsername("kube-system", "")):
		return "workload-high"
	case slices.Contains(u.Groups, serviceaccount.AllServiceAccountsGroup):
		return "workload-low"
	}
	return "global-default"
}
