package certify

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These are the findings about the verbs that level safe asks about. Their texts in relations.yaml say what anybody can
// do.
const (
	allowsOrdinary = "allows-ordinary-requests"
	allowsPaths    = "allows-any-path"
	allowsUnknown  = "allows-unknown-verbs"
	allowsFuture   = "allows-unknown-modes"
	allowsSpelling = "allows-verbs-spelt-otherwise"
	impersonates   = "anybody-can-impersonate"
	actsAsUser     = "anybody-can-pass-for-a-user"
	actsAsAccount  = "anybody-can-pass-for-a-service-account"
	actsAsNode     = "anybody-can-pass-for-a-node"
	actsAsOwnNode  = "anybody-can-pass-for-their-node"
	actsInMode     = "anybody-can-act-while-impersonating"
)

// These are the verbs of requests, as API servers ask about them.
var (
	namedVerbs    = []string{"get", "update", "patch", "delete", "proxy"}
	unnamedVerbs  = []string{"list", "watch", "create", "deletecollection"}
	pathVerbs     = []string{"get", "post", "put", "patch", "delete", "head", "options"}
	selectedVerbs = []string{"list", "watch", "deletecollection"}
)

// impersonationModes are the modes of KEP-5284.
var impersonationModes = []string{"user-info", "serviceaccount", "arbitrary-node", "associated-node"}

// safeProber makes the questions of level safe. None of them may be allowed.
type safeProber struct {
	*prober
	safeNames
	// impersonations are the questions with verbs of impersonation. Other questions repeat them in other circumstances.
	impersonations []Question
	// askedBefore is how many questions have been made for user.
	askedBefore int
}

// usersInTurn is how many users ask in turn. An authorizer that limits how much each user may ask would soon stop
// deciding for a single user.
const usersInTurn = 64

// user returns a requestor who is authenticated and has no other attributes. It is another one for each question, in
// turn.
func (p *safeProber) user() spec {
	who := p.safeNames.user()
	who.User += fmt.Sprintf("-%d", p.askedBefore%usersInTurn)
	p.askedBefore++
	return who
}

// safeQuestions returns the questions of level safe.
func (b *Plan) safeQuestions() []Question {
	p := &safeProber{prober: b.newProber(Safe, "safe"), safeNames: safeNames{b.Policy.Seed}}
	p.askUnknown()
	p.askOrdinary()
	p.askIdentities()
	p.askActions()
	p.askSpellings()
	p.askRequestors()
	p.askSelectors()
	p.askForms()
	p.askLarge()
	p.askIncomplete()
	p.askBadRequests()
	return p.out
}

// object is what a request is about.
type object struct {
	group, resource string
	// isGlobal is set if the object is in no namespace.
	isGlobal bool
}

// objects returns what requests are about: the most valuable objects, and objects that no cluster has.
func (p *safeProber) objects() []object {
	return []object{
		{"", "secrets", false}, {"", "pods", false}, {"", "pods/exec", false}, {"", "serviceaccounts/token", false},
		{"apps", "deployments/scale", false}, {"rbac.authorization.k8s.io", "clusterrolebindings", true},
		{"", "nodes/proxy", true}, {p.newName("group") + ".example.com", "things", false},
	}
}

// request returns the review of a request.
func (p *safeProber) request(who spec, verb string, o object) spec {
	namespace, name := p.newName("namespace"), ""
	if o.isGlobal {
		namespace = ""
	}
	words := strings.Split(verb, ":")
	isNamed := slices.Contains(namedVerbs, words[len(words)-1]) || strings.Contains(o.resource, "/")
	if isNamed {
		name = p.newName("object")
	}
	return withRequestor(who, newReview("", verb, o.group, o.resource, namespace, name))
}

// path returns the review of a request for a path.
func (p *safeProber) path(who spec, verb, path string) spec {
	return withRequestor(who, spec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}})
}

// identity returns a review that asks whether the user may take an identity.
func (p *safeProber) identity(verb, group, resource, namespace, name string) spec {
	return withRequestor(p.user(), newReview("", verb, group, resource, namespace, name))
}

// askOrdinary asks about verbs that every authorizer knows.
func (p *safeProber) askOrdinary() {
	for _, verb := range slices.Concat(namedVerbs, unnamedVerbs) {
		for _, o := range p.objects() {
			p.addNotAllowed(allowsOrdinary, p.request(p.user(), verb, o))
		}
	}
	for _, s := range []spec{
		p.identity("escalate", "rbac.authorization.k8s.io", "clusterroles", "", p.newName("role")),
		p.identity("bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
		p.identity("approve", "certificates.k8s.io", "signers", "", "kubernetes.io/kube-apiserver-client"),
		p.identity("sign", "certificates.k8s.io", "signers", "", "kubernetes.io/kube-apiserver-client"),
		p.identity("get", "*", "*", "", ""),
	} {
		p.addNotAllowed(allowsOrdinary, s)
	}
	for _, verb := range pathVerbs {
		q := p.addNotAllowed(allowsPaths, p.path(p.user(), verb, "/"+p.newName("path")))
		if verb != "get" { // an authorizer may know no other verb of a path
			q.Base = p.find(p.newName("verb")).ID
		}
	}
}

// askUnknown asks about verbs that nobody knows. An authorizer that allows them, and no ordinary verb, allows
// everything that it does not know: if it allows impersonation too, that is the reason.
func (p *safeProber) askUnknown() {
	for _, verb := range []string{p.newName("verb"), p.newName("verb") + ":" + p.newName("mode"), "x"} {
		for _, o := range p.objects() {
			p.addNotAllowed(allowsUnknown, p.request(p.user(), verb, o))
		}
		p.addNotAllowed(allowsUnknown, p.path(p.user(), verb, "/"+p.newName("path")))
	}
	mode, base := p.newName("mode"), p.find(p.newName("verb"))
	for _, resource := range []string{"users", "groups", "serviceaccounts", "nodes", p.newName("resource")} {
		p.addNotAllowed(allowsFuture, p.identity("impersonate:"+mode, authn, resource, "", p.newName("identity"))).Base = base.ID
	}
	for _, verb := range []string{mode + ":get", mode + ":list", "user-info:" + p.newName("verb")} {
		p.addNotAllowed(allowsFuture, p.request(p.user(), "impersonate-on:"+verb, p.objects()[0])).Base = base.ID
	}
}

// impersonation adds a question with a verb of impersonation.
func (p *safeProber) impersonation(reason string, s spec) {
	p.impersonations = append(p.impersonations, *p.addNotAllowed(reason, s))
}

// askIdentities asks which identities somebody may take, with the verb of each mode and with the verb of all earlier
// versions.
func (p *safeProber) askIdentities() {
	for _, way := range []struct{ reason, verb, group string }{{impersonates, "impersonate", ""}, {actsAsUser, "impersonate:user-info", authn}} {
		for _, s := range []spec{
			p.identity(way.verb, way.group, "users", "", p.newName("user")),
			p.identity(way.verb, way.group, "users", "", "system:admin"),
			p.identity(way.verb, way.group, "users", "", ""),
			p.identity(way.verb, way.group, "groups", "", p.newName("group")),
			p.identity(way.verb, way.group, "groups", "", "system:masters"),
			p.identity(way.verb, way.group, "groups", "", "*"),
			p.identity(way.verb, authn, "uids", "", p.uid("user")),
			p.identity(way.verb, authn, "userextras/scopes", "", "cluster-admin"),
			p.identity(way.verb, authn, "userextras/acme.com/"+p.newName("key"), "", p.newName("value")),
			p.identity(way.verb, authn, "userextras/*", "", "*"),
		} {
			p.impersonation(way.reason, s)
		}
	}
	for _, account := range [][2]string{{p.newName("namespace"), p.newName("account")}, {"kube-system", "namespace-controller"}, {"kube-system", ""}} {
		p.impersonation(impersonates, p.identity("impersonate", "", "serviceaccounts", account[0], account[1]))
		p.impersonation(actsAsAccount, p.identity("impersonate:serviceaccount", authn, "serviceaccounts", account[0], account[1]))
	}
	for _, name := range []string{p.newName("node"), "*", ""} {
		p.impersonation(actsAsNode, p.identity("impersonate:arbitrary-node", authn, "nodes", "", name))
		p.impersonation(actsAsOwnNode, withRequestor(p.podOnNode(), p.identity("impersonate:associated-node", authn, "nodes", "", name)))
	}
}

// requestorIn returns the requestor for a mode. Only pods have a node that is theirs.
func (p *safeProber) requestorIn(mode string) spec {
	if mode == "associated-node" {
		return p.podOnNode()
	}
	return p.user()
}

// askActions asks what somebody may do while impersonating: every verb of a request in every mode.
func (p *safeProber) askActions() {
	for _, mode := range impersonationModes {
		who, verb := p.requestorIn(mode), "impersonate-on:"+mode+":"
		for _, action := range slices.Concat(namedVerbs, unnamedVerbs) {
			for _, o := range p.objects() {
				p.impersonation(actsInMode, p.request(who, verb+action, o))
			}
		}
		for _, action := range pathVerbs {
			p.impersonation(actsInMode, p.path(who, verb+action, "/"+p.newName("path")))
		}
		p.impersonation(actsInMode, p.path(who, verb+"get", "/healthz"))
	}
}

// askSpellings asks about verbs that are nearly those of impersonation or of requests.
func (p *safeProber) askSpellings() {
	base := p.find(p.newName("verb")).ID
	for _, verb := range []string{
		"Impersonate", "IMPERSONATE", "Impersonate:user-info", "impersonate:User-Info", "IMPERSONATE:USER-INFO", "impersonate:userinfo",
		" impersonate", "impersonate ", "impersonate:", "impersonate:*", "impersonate::user-info", "impersonate:user-info:", "impersonate.user-info",
		"impersonate%3Auser-info", "impersonate:user-info\x00", "impersonate\n", "get,impersonate", "impersonates", "",
	} {
		p.addNotAllowed(allowsSpelling, p.identity(verb, authn, "users", "", p.newName("user"))).Base = base
	}
	for _, verb := range []string{
		"impersonate-on", "impersonate-on:", "impersonate-on:user-info", "impersonate-on:user-info:", "impersonate-on::get", "impersonate-on:get",
		"Impersonate-On:User-Info:Get", "impersonate-on:user-info:GET", "impersonate-on:user-info:*", "impersonate-on:*:get", "impersonate-on:*",
		"impersonate-on:user-info:get:list", "GET", "Get", "get ", "get:", "*:get", "*",
	} {
		p.addNotAllowed(allowsSpelling, p.request(p.user(), verb, p.objects()[0])).Base = base
	}
}

// oncePerVerb returns the first question about each verb of impersonation. If the verb asks for an identity, it returns
// the first for each resource.
func (p *safeProber) oncePerVerb() (out []Question) {
	seen := map[string]bool{}
	for _, q := range p.impersonations {
		a := q.Spec.ResourceAttributes
		if a == nil {
			continue
		}
		key := a.Verb
		if !strings.HasPrefix(a.Verb, "impersonate-on:") {
			key += " " + a.Resource
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, q)
		}
	}
	return out
}

// repeat adds a question that repeats another in other circumstances. If that one is allowed too, this one shows
// nothing new.
func (p *safeProber) repeat(reason string, base Question, s spec) *Question {
	q := p.addNotAllowed(reason, s)
	q.Base, q.ExplainsFaults = base.ID, true
	return q
}

// askRequestors asks the same questions as others: as service accounts and nodes with their extra, and as somebody
// without a name.
func (p *safeProber) askRequestors() {
	for _, q := range p.oncePerVerb() {
		for _, who := range p.requestors() {
			p.repeat("who-asks-decides", q, withRequestor(who, q.Spec))
		}
	}
}

// askSelectors asks about lists that selectors narrow. API servers send them as requirements. Selectors that have not
// been parsed, which no API server sends to a webhook, may be refused.
func (p *safeProber) askSelectors() {
	fields := &authorizationv1.FieldSelectorAttributes{
		Requirements: []metav1.FieldSelectorRequirement{
			{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{p.newName("node")}},
		},
	}
	labels := &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{p.newName("app"), ""}},
		{Key: "tier", Operator: metav1.LabelSelectorOpExists},
	}}
	narrow := func(s spec, fields *authorizationv1.FieldSelectorAttributes, labels *authorizationv1.LabelSelectorAttributes) spec {
		a := *s.ResourceAttributes
		a.FieldSelector, a.LabelSelector = fields, labels
		s.ResourceAttributes = &a
		return s
	}
	const reason = "selectors-change-the-decision"
	for _, mode := range append(impersonationModes[:len(impersonationModes):len(impersonationModes)], "") {
		for _, action := range selectedVerbs {
			verb := strings.TrimPrefix("impersonate-on:"+mode+":", "impersonate-on::") + action
			base := p.find(verb)
			p.repeat(reason, base, narrow(base.Spec, fields, nil))
			p.repeat(reason, base, narrow(base.Spec, nil, labels))
			p.repeat(reason, base, narrow(base.Spec, fields, labels))
			raw := p.repeat(
				reason,
				base,
				narrow(base.Spec, &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=" + p.newName("node")}, nil),
			)
			raw.Expect = ""
			raw = p.repeat(
				reason,
				base,
				narrow(base.Spec, nil, &authorizationv1.LabelSelectorAttributes{RawSelector: "app in (" + p.newName("app") + "),,"}),
			)
			raw.Expect = ""
		}
	}
}

// find returns the first question about a verb among those that have been made, and panics if there is none. A question
// that is made earlier than the others with its verb becomes the base of those that repeat one.
func (p *safeProber) find(verb string) Question {
	i := slices.IndexFunc(p.out, func(q Question) bool {
		return q.Spec.ResourceAttributes != nil && q.Spec.ResourceAttributes.Verb == verb
	})
	return p.out[i]
}

// askForms asks the same questions in v1beta1, and with fields that nobody knows yet.
func (p *safeProber) askForms() {
	bases := p.oncePerVerb()
	for _, verb := range []string{"get", "create", p.newName("verb")} {
		bases = append(bases, p.find(verb))
	}
	for _, q := range bases {
		p.repeat("versions-differ", q, q.Spec).Form = v1beta1
		p.repeat("future-fields-decide", q, q.Spec).Form = unknownFields
	}
}

// askLarge asks about long names and many groups.
func (p *safeProber) askLarge() {
	long := strings.Repeat("n", 64<<10)
	large := func(verb string, s spec) { p.repeat("large-reviews", p.find(verb), s) }
	large("impersonate", p.identity("impersonate", "", "users", "", long))
	large("impersonate:user-info", p.identity("impersonate:user-info", authn, "users", "", long))
	large("impersonate:user-info", p.identity("impersonate:user-info", authn, "userextras/example.com/"+long, "", p.newName("value")))
	large(p.newName("verb"), p.identity("impersonate:"+long[:4<<10], authn, "users", "", p.newName("user")))
	large("impersonate-on:user-info:get", p.path(p.user(), "impersonate-on:user-info:get", "/"+long))
	longUser := p.identity("impersonate", "", "users", "", p.newName("user"))
	longUser.User = p.newName("nobody") + long
	large("impersonate", longUser)
	withManyGroups := p.identity("impersonate", "", "groups", "", p.newName("group"))
	for i := range 2000 {
		withManyGroups.Groups = append(withManyGroups.Groups, fmt.Sprintf("%s-%d", p.newName("team"), i))
	}
	large("impersonate", withManyGroups)
}

// askIncomplete asks what no API server asks: with neither a resource nor a path, with both, or as nobody.
func (p *safeProber) askIncomplete() {
	both := p.identity("impersonate", "", "users", "", p.newName("user"))
	both.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: "impersonate", Path: "/"}
	byNobody := p.identity("impersonate", "", "users", "", p.newName("user"))
	byNobody.User, byNobody.Groups = "", nil
	byGroup := byNobody
	byGroup.Groups = []string{p.newName("nobodies")}
	for _, form := range []Form{"", v1beta1} {
		for _, s := range []spec{both, p.user(), {}} {
			p.add("allows-without-attributes", "", s).Form = form
		}
		for _, s := range []spec{byNobody, byGroup} {
			p.add("allows-nobody", "", s).Form = form
		}
	}
}

// askBadRequests sends requests that are not reviews, and after each of them asks a question that was asked before.
func (p *safeProber) askBadRequests() {
	base, before := p.find("impersonate"), len(p.out)
	p.addBadRequests(base.Spec, base.Expect)
	for i := range p.out[before:] {
		if q := &p.out[before+i]; q.Form != literal {
			q.Base = base.ID
		}
	}
}
