package advice

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/engine/auditlog"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// nodeNameKey is the extra that a token bound to a node, or to a pod on one,
	// carries (k8s.io/apiserver/pkg/authentication/serviceaccount).
	nodeNameKey = "authentication.kubernetes.io/node-name"
	nodePrefix  = "system:node:"
	accountHead = "system:serviceaccount:"
)

// methods are the HTTP methods of request verbs that are not methods themselves.
var methods = map[string]string{
	"list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "deletecollection": "DELETE",
}

// actionOf is what an event's request was to authorization. It is read from the
// URI: objectRef has the name of an object that is created, which authorization
// did not know (k8s.io/apiserver/pkg/audit/request.go, LogRequestObject).
func actionOf(e *auditlog.Event) (Action, error) {
	u, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return Action{}, fmt.Errorf("requestURI %q cannot be parsed", e.RequestURI)
	}
	a := oracle.ParseRequest(cmp.Or(methods[e.Verb], strings.ToUpper(e.Verb)), u.Path, u.Query())
	if a.Verb != e.Verb {
		return Action{}, fmt.Errorf("verb %q does not go with requestURI %q", e.Verb, e.RequestURI)
	}
	if !a.ResourceRequest {
		return Action{Verb: a.Verb, Path: a.Path}, nil
	}
	return Action{Verb: a.Verb, APIGroup: a.APIGroup, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name}, nil
}

// requestorUser is a requestor with its node, which is the only extra that impersonation looks at.
type requestorUser struct {
	scenarios.User
	// node is set if it is the one that is impersonated.
	node string
}

func requestorOf(e *auditlog.Event) requestorUser {
	who := requestorUser{User: scenarios.User{Name: e.User.Username, Groups: e.User.Groups}}
	if nodes := e.User.Extra[nodeNameKey]; len(nodes) == 1 && e.ImpersonatedUser.Username == nodePrefix+nodes[0] {
		who.node, who.Extra = nodes[0], map[string][]string{nodeNameKey: nodes}
	}
	return who
}

// asked is what the impersonation headers asked for, told from who resulted. What the API server adds by itself is
// taken away again: a client that asked for just that cannot be told from one that did not
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, mode.go).
func asked(e *auditlog.Event) scenarios.Impersonate {
	u := e.ImpersonatedUser
	groups := slices.Clone(u.Groups)
	added := "system:authenticated"
	if u.Username == "system:anonymous" {
		added = "system:unauthenticated"
	}
	if n := len(groups); n > 0 && groups[n-1] == added {
		groups = groups[:n-1]
	}
	if derived(e, groups) {
		groups = nil
	}
	as := scenarios.Impersonate{User: u.Username, UID: u.UID, Groups: groups}
	if len(as.Groups) == 0 {
		as.Groups = nil
	}
	if len(u.Extra) > 0 {
		as.Extra = u.Extra
	}
	return as
}

// derived tells whether the groups follow from the name: those of a service account, and in a constrained mode
// that of a node. Legacy impersonation gives a node no group, so there it was asked for.
func derived(e *auditlog.Event, groups []string) bool {
	name := e.ImpersonatedUser.Username
	if rest, ok := strings.CutPrefix(name, accountHead); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		return slices.Equal(groups, []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace})
	}
	return strings.HasPrefix(name, nodePrefix) && strings.HasSuffix(e.Constraint(), "-node") &&
		slices.Equal(groups, []string{"system:nodes"})
}

func compareActions(a, b Action) int {
	return cmp.Or(
		strings.Compare(a.Path, b.Path), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.APIGroup, b.APIGroup),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Subresource, b.Subresource),
		strings.Compare(a.Verb, b.Verb), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version),
		strings.Compare(strconv.FormatBool(a.AnyName), strconv.FormatBool(b.AnyName)),
	)
}
