package predict

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// CheckKind is what an authorization check is about.
type CheckKind int

// These are the kinds of checks, in the order in which they are asked.
const (
	// TryCheck is a check of a mode that does not succeed.
	TryCheck CheckKind = iota
	// ActionCheck is a check of impersonate-on:MODE:VERB, for the mode that succeeds.
	ActionCheck
	// IdentityCheck is a check of impersonate:MODE, for the mode that succeeds.
	IdentityCheck
	// LegacyCheck is a check of the verb impersonate.
	LegacyCheck
	// RequestCheck is the check of the request itself, for the impersonated user.
	RequestCheck
	kindCount
)

var kindNames = [kindCount]string{"other modes", "action", "identity", "legacy", "request"}

// String returns the name of the kind.
func (k CheckKind) String() string { return kindNames[k] }

// MarshalText implements encoding.TextMarshaler.
func (k CheckKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// scope says what makes the questions of one check different.
type scope int

const (
	// ofUnit means a different question for each agent or user.
	ofUnit scope = iota
	// ofUnitRequest means a different question for each of the different requests of each agent or user.
	ofUnitRequest
	// ofAccount means a different question for each service account.
	ofAccount
	// ofDeputyRequest means a different question for each of the different requests of each deputy. The user for whom
	// it acts is not part of the question.
	ofDeputyRequest
	// ofDeputy means a different question for each deputy. All its values are checked at once.
	ofDeputy
	// ofSubjectRequest means a different question for each of the different requests of each impersonated user or node.
	ofSubjectRequest
)

// step is one check of a request.
type step struct {
	kind    CheckKind
	mode    oracle.Mode
	allowed bool
	scope   scope
	// byToken means that the question contains the requestor's credential, so that a new token makes it a different
	// one.
	byToken bool
	// isOfNode means that the Node authorizer allows it.
	isOfNode bool
}

// script is everything that a request of a workload may ask. Parts of it are left out if they are remembered.
type script struct {
	// tries are the checks of modes that do not succeed. They are asked as long as it is not known which mode succeeds.
	tries []step
	// mode is the mode that succeeds. It is empty if none does, and then the request ends there.
	mode     oracle.Mode
	action   []step // none or one
	identity []step
	request  []step // one or none
	// level is the priority level in which the request is dispatched. It is empty if it is not dispatched.
	level string
}

// steps returns all steps.
func (s script) steps() []step {
	return slices.Concat(s.tries, s.action, s.identity, s.request)
}

// isConstrained reports whether successes are remembered.
func (s script) isConstrained() bool { return s.mode != "" && s.mode != oracle.Legacy }

// newScript asks the oracle which checks a request of a workload leads to in a situation, on a server that has just
// started.
func newScript(w Workload, situation Situation, chain Chain) (script, error) {
	rbac := situation.RBAC
	if w.Mode == oracle.Legacy && rbac == ConstrainedRBAC {
		rbac = LegacyRBAC // it stays
	}
	server, err := oracle.New(oracle.Config{Kubernetes: newest(), Gate: situation.Gate, Chain: authorizers(w.Mode, rbac, chain)})
	if err != nil {
		return script{}, err
	}
	requestor, imp, request := sampleRequest(w, rbac)
	p := server.Do(requestor, imp, request)
	out := script{mode: p.Mode}
	for _, attempt := range p.Trace {
		for _, review := range reviewsOf(attempt.Segments) {
			out.add(w, attempt, review)
		}
	}
	if p.User != nil {
		isOfNode := slices.Contains(p.User.Groups, user.NodesGroup)
		out.level = levelOf(*p.User)
		out.request = []step{{kind: RequestCheck, allowed: p.Outcome == scenarios.Allowed, scope: ofSubjectRequest, isOfNode: isOfNode}}
	}
	return out, nil
}

func newest() string {
	versions := oracle.Versions()
	return versions[len(versions)-1]
}

// add adds a review of an attempt.
func (s *script) add(w Workload, attempt oracle.Attempt, review oracle.Review) {
	isAction := strings.HasPrefix(review.Spec.ResourceAttributes.Verb, "impersonate-on:")
	st := step{mode: attempt.Mode, allowed: review.Allowed(), byToken: attempt.Mode != oracle.AssociatedNode, scope: scopeOf(w, review)}
	switch {
	case !attempt.Allowed:
		st.kind = TryCheck
		s.tries = append(s.tries, st)
	case isAction:
		st.kind = ActionCheck
		s.action = append(s.action, st)
	case attempt.Mode == oracle.Legacy:
		st.kind = LegacyCheck
		s.identity = append(s.identity, st)
	default:
		st.kind = IdentityCheck
		s.identity = append(s.identity, st)
	}
}

// scopeOf returns what makes the questions of an impersonation check different.
func scopeOf(w Workload, review oracle.Review) scope {
	isAction := strings.HasPrefix(review.Spec.ResourceAttributes.Verb, "impersonate-on:")
	switch {
	case isAction && !w.isOfNodes():
		return ofDeputyRequest
	case isAction:
		return ofUnitRequest
	case review.Mode == oracle.AssociatedNode:
		return ofAccount
	case review.Spec.ResourceAttributes.Name == "*":
		return ofDeputy
	}
	return ofUnit
}

func reviewsOf(segments []oracle.Segment) (list []oracle.Review) {
	for _, segment := range segments {
		list = append(list, slices.Concat(segment.Runs...)...)
	}
	return list
}

// authorizers returns a chain that gives a workload the permissions of its mode. Groups and values of extra are granted
// one by one, and never all at once. The impersonated user is allowed every request.
func authorizers(mode oracle.Mode, rbac RBAC, chain Chain) []oracle.Authorizer {
	constrained := func(verb string) bool {
		return verb == "impersonate:"+string(mode) || strings.HasPrefix(verb, "impersonate-on:"+string(mode)+":")
	}
	return []oracle.Authorizer{{Authorize: func(spec authorizationv1.SubjectAccessReviewSpec) oracle.AuthorizerDecision {
		a := spec.ResourceAttributes
		isAll := a.Name == "*" && a.Resource != "nodes"
		isGranted := !strings.HasPrefix(a.Verb, "impersonate") || chain == NoAuthorizer
		switch rbac {
		case LegacyRBAC:
			isGranted = isGranted || a.Verb == "impersonate"
		case ConstrainedRBAC:
			isOfMode := constrained(a.Verb) && !isAll
			isGranted = isGranted || isOfMode
		}
		if isGranted {
			return oracle.AuthorizerDecision{Decision: scenarios.Allow}
		}
		return oracle.AuthorizerDecision{Decision: scenarios.NoOpinion}
	}}}
}

const ownNode, otherNode = "node-1", "node-2"

// sampleRequest returns a request of one agent or user.
func sampleRequest(w Workload, rbac RBAC) (requestor scenarios.User, imp *scenarios.Impersonate, r oracle.Request) {
	requestor = oracle.RequestorOf("agent", scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: "agents", Name: "agent", Pod: "agent-1", Node: ownNode,
	}})
	imp = &scenarios.Impersonate{User: whom(w)}
	isLegacyNode := w.isOfNodes() && rbac == LegacyRBAC
	if isLegacyNode && !w.NameAlone {
		imp.Groups = []string{user.NodesGroup}
	}
	for i := range w.Groups {
		imp.Groups = append(imp.Groups, fmt.Sprintf("group-%d", i))
	}
	for i := range w.Extras {
		if imp.Extra == nil {
			imp.Extra = map[string][]string{}
		}
		imp.Extra["example.com/extra"] = append(imp.Extra["example.com/extra"], fmt.Sprintf("value-%d", i))
	}
	r.Attributes = oracle.ParseRequest(http.MethodGet, &url.URL{Path: "/api/v1/pods", RawQuery: "fieldSelector=spec.nodeName%3D" + ownNode})
	return requestor, imp, r
}

// whom returns the name that is impersonated.
func whom(w Workload) string {
	switch {
	case w.Mode == oracle.ArbitraryNode:
		return "system:node:" + otherNode
	case w.isOfNodes():
		return "system:node:" + ownNode
	case w.Mode == oracle.ServiceAccount:
		return "system:serviceaccount:apps:deployer"
	}
	return "user-1"
}
