package advice

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	nodePrefix  = "system:node:"
	accountHead = serviceaccount.ServiceAccountUsernamePrefix
)

// actionOf is what an event's request was to authorization. It is read from the
// URI: objectRef has the name of an object that is created, which authorization
// did not know (k8s.io/apiserver/pkg/audit/request.go, LogRequestObject).
func actionOf(e *auditv1.Event) (Action, error) {
	u, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return Action{}, fmt.Errorf("requestURI %q cannot be parsed", e.RequestURI)
	}
	a := oracle.ParseRequest(cmp.Or(scenarios.HTTPMethods[e.Verb], strings.ToUpper(e.Verb)), u)
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

func requestorOf(e *auditv1.Event) requestorUser {
	who := requestorUser{User: scenarios.User{Name: e.User.Username, Groups: e.User.Groups}}
	if nodes := e.User.Extra[serviceaccount.NodeNameKey]; len(nodes) == 1 && e.ImpersonatedUser.Username == nodePrefix+nodes[0] {
		who.node, who.Extra = nodes[0], map[string][]string{serviceaccount.NodeNameKey: nodes}
	}
	return who
}

// asked is what the impersonation headers asked for, told from who resulted. What the API server adds by itself is
// taken away again: a client that asked for just that cannot be told from one that did not
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, mode.go).
func asked(e *auditv1.Event) scenarios.Impersonate {
	u := e.ImpersonatedUser
	groups := slices.Clone(u.Groups)
	added := user.AllAuthenticated
	if u.Username == user.Anonymous {
		added = user.AllUnauthenticated
	}
	if n := len(groups); n > 0 && groups[n-1] == added {
		groups = groups[:n-1]
	}
	if len(groups) == 0 || derived(e, groups) {
		groups = nil
	}
	return scenarios.Impersonate{User: u.Username, UID: u.UID, Groups: groups, Extra: scenarios.UserOf("", "", nil, u.Extra).Extra}
}

// derived tells whether the groups follow from the name: those of a service account, and in a constrained mode
// that of a node. Legacy impersonation gives a node no group, so there it was asked for.
func derived(e *auditv1.Event, groups []string) bool {
	name := e.ImpersonatedUser.Username
	if rest, ok := strings.CutPrefix(name, accountHead); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		return slices.Equal(groups, serviceaccount.MakeGroupNames(namespace))
	}
	return strings.HasPrefix(name, nodePrefix) && strings.HasSuffix(verdicts.ConstraintOf(e), "-node") &&
		slices.Equal(groups, []string{user.NodesGroup})
}

func compareActions(a, b Action) int {
	return cmp.Or(
		strings.Compare(a.Path, b.Path), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.APIGroup, b.APIGroup),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Subresource, b.Subresource),
		strings.Compare(a.Verb, b.Verb), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version),
		strings.Compare(strconv.FormatBool(a.AnyName), strconv.FormatBool(b.AnyName)),
	)
}
