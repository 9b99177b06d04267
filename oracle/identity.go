package oracle

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	authenticationGroup = "authentication.k8s.io"
	// manyChecks is from how many groups, or values of extra, on a constrained mode first asks for all of them at
	// once (manyAuthorizationChecksInLoop).
	manyChecks = 4
)

// identity are the checks of one mode about the wanted user.
type identity struct {
	mode      Mode
	verb      string
	requestor scenarios.User
	// group and version are those of users, groups and service accounts.
	group, version string
	constrained    bool
}

func constrainedIdentity(mode Mode, requestor scenarios.User) identity {
	return identity{mode, "impersonate:" + string(mode), requestor, authenticationGroup, "v1", true}
}

// legacyIdentity returns the checks of the mode legacy, gate on (legacyImpersonationMode).
func legacyIdentity(requestor scenarios.User) identity {
	return identity{Legacy, "impersonate", requestor, "", "v1", false}
}

// gateOffIdentity returns the checks of the filter that servers without the gate have (WithImpersonation): users, groups and
// service accounts have no version, and the UID is checked last.
func gateOffIdentity(requestor scenarios.User) identity {
	return identity{Legacy, "impersonate", requestor, "", "", false}
}

func (i identity) newQuestion(resource, name string) question {
	a := Attributes{Verb: i.verb, APIGroup: i.group, Version: i.version, Resource: resource, Name: name, ResourceRequest: true}
	return question{i.mode, i.requestor, a}
}

// person returns a check that is about authentication.k8s.io in every mode.
func (i identity) person(resource, subresource, name string) question {
	q := i.newQuestion(resource, name)
	q.APIGroup, q.Version, q.Subresource = authenticationGroup, "v1", subresource
	return q
}

func (i identity) name(user string) question {
	q := i.newQuestion("users", user)
	if node, ok := nodeOf(user); ok && i.constrained {
		q.Resource, q.Name = "nodes", node
		if i.mode == AssociatedNode { // every node that the requestor is on, see associated
			q.Name = "*"
		}
	}
	if ns, account, ok := scenarios.SplitServiceAccount(user); ok {
		q.Resource, q.Namespace, q.Name = "serviceaccounts", ns, account
	}
	return q
}

func (i identity) stages(requestedUser scenarios.User) []stage {
	list := []stage{{runs: [][]question{{i.name(requestedUser.Name)}}}}
	if len(requestedUser.Groups) > 0 {
		list = append(list, i.groups(requestedUser.Groups))
	}
	if len(requestedUser.Extra) > 0 {
		list = append(list, i.extra(requestedUser.Extra))
	}
	if requestedUser.UID != "" {
		at := 1
		if i.version == "" { // gate off
			at = len(list)
		}
		list = slices.Insert(list, at, stage{runs: [][]question{{i.person("uids", "", requestedUser.UID)}}})
	}
	return list
}

// groups returns what authorizeGroups asks.
func (i identity) groups(groups []string) (st stage) {
	if i.constrained {
		switch {
		case slices.Contains(groups, ""):
			st.refusals = []string{i.refusal(i.newQuestion("groups", ""), "impersonating the empty string group is not allowed")}
			return st
		case slices.Contains(groups, mastersGroup):
			st.refusals = []string{
				i.refusal(i.newQuestion("groups", mastersGroup), "impersonating the system:masters group is not allowed"),
			}
			return st
		case len(groups) >= manyChecks:
			all := i.newQuestion("groups", "*")
			st.all = &all
		}
	}
	st.runs = [][]question{seq.Map(groups, func(g string) question { return i.newQuestion("groups", g) })}
	return st
}

// extra returns what authorizeExtra asks.
func (i identity) extra(extra map[string][]string) (st stage) {
	if i.constrained {
		for _, why := range badExtra(extra) {
			st.refusals = append(st.refusals, i.refusal(i.person("userextras", "", ""), why))
		}
		if len(st.refusals) > 0 {
			st.refusals = sets.List(sets.New(st.refusals...))
			return st
		}
		count := 0
		for _, values := range extra {
			count += len(values)
		}
		if count >= manyChecks {
			all := i.person("userextras", "*", "*")
			st.all = &all
		}
	}
	st.runs = keyRuns(extra, func(key, value string) question { return i.person("userextras", key, value) })
	return st
}

func (i identity) refusal(q question, why string) string {
	return forbidden(q.review(i.requestor), why)
}

// badExtra returns what a constrained mode does not take, one text for each key: it is the first in the order of a
// map that counts (validateExtra).
func badExtra(extra map[string][]string) (why []string) {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		errs := validation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate()
		switch {
		case key == "":
			why = append(why, "impersonating the empty string key in extra is not allowed")
		case errs != nil:
			why = append(why, "impersonating an invalid key in extra is not allowed: "+errs.Error())
		case key != strings.ToLower(key):
			why = append(why, "impersonating a non-lowercase key in extra is not allowed: "+strconv.Quote(key))
		case slices.Contains(extra[key], ""):
			why = append(why, "impersonating the empty string value in extra is not allowed")
		}
	}
	return why
}

// resulting returns who the requestor becomes in a mode. Constrained modes give nodes and service accounts the groups
// that they always have; legacy does so for service accounts if no group was asked for.
func (i identity) resulting(requestedUser scenarios.User) scenarios.User {
	if _, ok := nodeOf(requestedUser.Name); ok && i.constrained {
		requestedUser.Groups = []string{nodesGroup}
	}
	if ns, _, ok := scenarios.SplitServiceAccount(requestedUser.Name); ok && len(requestedUser.Groups) == 0 {
		requestedUser.Groups = serviceaccount.MakeGroupNames(ns)
	}
	return completeUser(requestedUser)
}

// Resulting returns whom a requestor becomes that sends these headers, if a mode allows it.
func Resulting(mode Mode, imp *scenarios.Impersonate) scenarios.User {
	requestedUser, _ := wantedUser(imp, nil)
	if mode == Legacy {
		return legacyIdentity(scenarios.User{}).resulting(requestedUser)
	}
	return constrainedIdentity(mode, scenarios.User{}).resulting(requestedUser)
}

// Names that Kubernetes gives a meaning.
const (
	nodeUserPrefix       = "system:node:"
	nodesGroup           = user.NodesGroup
	mastersGroup         = user.SystemPrivilegedGroup
	authenticatedGroup   = user.AllAuthenticated
	unauthenticatedGroup = user.AllUnauthenticated
	anonymousUser        = user.Anonymous
)

// nodeOf returns the node that a user name stands for: what follows system:node: has to be a DNS subdomain (isNodeUsername).
func nodeOf(name string) (node string, ok bool) {
	node, ok = strings.CutPrefix(name, nodeUserPrefix)
	return node, ok && len(apivalidation.NameIsDNSSubdomain(node, false)) == 0
}

// Authenticated returns a user as authentication leaves it: a member of system:authenticated, unless it is anonymous
// (NewAuthenticatedGroupAdder).
func Authenticated(u scenarios.User) scenarios.User {
	if u.Name != anonymousUser && !slices.Contains(u.Groups, authenticatedGroup) {
		u.Groups = append(slices.Clone(u.Groups), authenticatedGroup)
	}
	return u
}

// RequestorOf returns who authenticates under an alias of a scenario. IDs that a server makes up (of accounts, pods,
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
		if r.Certificate {
			extra = map[string][]string{user.CredentialIDKey: {"X509SHA256=" + alias}}
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

// onlyName reports whether nothing but a name is asked for.
func onlyName(u scenarios.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// completeUser returns the resulting user with the group that everybody gets (impersonationModeState.check and
// WithImpersonation).
func completeUser(u scenarios.User) scenarios.User {
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
	deleted map[string]bool          // the accounts, pods and nodes that were deleted, by path
	valid   map[string]time.Duration // when the token of an alias was last looked at and found valid
}

// Receive does what Do does for a requestor of a scenario, whose token may have become invalid.
func (s *Server) Receive(alias string, r scenarios.Requestor, imp *scenarios.Impersonate, request Request) Prediction {
	requestor := RequestorOf(alias, r)
	if !s.authenticates(alias, r.ServiceAccount) {
		return Prediction{
			Requestor: requestor, Outcome: scenarios.Unauthenticated, Code: 401,
			Messages: []string{"Unauthorized"}, Counted: s.countsImpersonation(), Audit: auditOfNobody(),
		}
	}
	return s.Do(requestor, imp, request)
}

// chooseRequestor returns the alias of the requestor whom a server takes for the sender of a request with several credentials:
// that of the first that is good, in the order of Config.New in k8s.io/kubernetes/pkg/kubeapiserver/authenticator. The
// headers of a proxy count only with its certificate, which a request carries if the proxy authenticates its own requestor.
func chooseRequestor(s *scenarios.Scenario, r *scenarios.Request) string {
	aliases := append([]string{r.By}, r.With...)
	for _, kind := range []scenarios.CredentialKind{scenarios.ProxyHeaders, scenarios.ClientCertificate, scenarios.BearerToken} {
		for i, alias := range aliases {
			requestor := s.Requestors[alias]
			isUnproven := kind == scenarios.ProxyHeaders && i > 0
			isOutOfTime := requestor.ServiceAccount != nil && !requestor.ServiceAccount.InTime()
			if requestor.Credential() == kind && !isUnproven && !isOutOfTime {
				return alias
			}
		}
	}
	return r.By
}

// authenticates reports whether a requestor's token is taken. It is Validate of k8s.io/kubernetes/pkg/serviceaccount/claims.go behind the cache of
// k8s.io/apiserver/pkg/authentication/token/cache: a token lives as long as its account and what it is bound to, not
// others of the names. One that is bound to a pod names the pod's node only for others to read: it outlives the node.
func (s *Server) authenticates(alias string, sa *scenarios.ServiceAccount) bool {
	if sa == nil {
		return true
	}
	if !sa.InTime() {
		return false
	}
	if since, ok := s.tokens.valid[alias]; ok && s.memory.now < since+tokenTTL {
		return true
	}
	if slices.ContainsFunc(boundPaths(sa), func(path string) bool { return s.tokens.deleted[path] }) {
		return false
	}
	s.tokens.valid[alias] = s.memory.now
	return true
}

// boundPaths returns the paths of the objects that a token lives as long as.
func boundPaths(sa *scenarios.ServiceAccount) []string {
	paths := []string{boundPath("serviceaccounts", sa.Namespace, sa.Name)}
	if sa.Secret != "" {
		paths = append(paths, boundPath("secrets", sa.Namespace, sa.Secret))
	}
	switch {
	case sa.Pod != "":
		paths = append(paths, boundPath("pods", sa.Namespace, sa.Pod))
	case sa.Node != "":
		paths = append(paths, boundPath("nodes", "", sa.Node))
	}
	return paths
}

func boundPath(resource, namespace, name string) string {
	return resource + "/" + namespace + "/" + name
}
