// Package population has the participants of a storm: nodes with pods, and for every variant its agents with their
// tokens and permissions. It creates them, says what each of them asks, and predicts what that costs the authorizer.
package population

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// podSpace is the namespace of the pods that agents ask for. These pods have the account podAccount.
	podSpace   = "storm-pods"
	podAccount = "pods"
	// extraKey and its value are what the users of deputies have.
	extraKey     = "authzconf.dev/tenant"
	watchSeconds = 300 // how long a watch lasts before the agent has to begin again
)

// Label is a label of everything that is created, and a taint of the nodes.
const Label = "authzconf.dev/storm"

func nodeName(i int) string                { return fmt.Sprintf("storm-%06d", i) }
func podName(node, i int) string           { return fmt.Sprintf("pod-%06d-%03d", node, i) }
func agentName(i int) string               { return fmt.Sprintf("agent-%06d", i) }
func accountName(i int) string             { return fmt.Sprintf("account-%06d", i) }
func space(variant profile.Variant) string { return "storm-" + variant.Name }

// sender returns the node and the service account of a pod that sends, by its number among the identities of a profile.
// One more, on a node and with an account of its own, takes no part.
func sender(p *profile.Profile, identity int) (node int, account string) {
	if identity == p.Identities() {
		return p.Nodes, accountName(p.Accounts())
	}
	return identity % p.Nodes, accountName(p.AccountOf(identity))
}

// ask is what one agent of a variant asks: which pod sends, whom it impersonates, and about which node.
type ask struct {
	identity, node int
	imp            *scenarios.Impersonate
}

func asking(p *profile.Profile, variant profile.Variant, a int) ask {
	q := ask{identity: a % p.Identities()}
	if a == p.Agents() { // the one that takes no part
		q.identity = p.Identities()
	}
	number, _ := sender(p, q.identity)
	q.node = number
	switch variant.As {
	case profile.OwnNode:
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(number)}
	case profile.OwnNodeInGroup:
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(number), Groups: []string{"system:nodes"}}
	case profile.OtherNode:
		q.node = (number + 1) % (p.Nodes + 1)
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(q.node)}
	case profile.User:
		q.node = a % p.Nodes
		q.imp = userOf(variant, a)
	case profile.OneUser:
		q.node = a % p.Nodes
		q.imp = userOf(variant, 0)
	case profile.ServiceAccount:
		q.node = a % p.Nodes
		q.imp = &scenarios.Impersonate{User: fmt.Sprintf("system:serviceaccount:%s:app-%06d", podSpace, a)}
	}
	return q
}

// userOf returns the user for whom an agent acts.
func userOf(variant profile.Variant, a int) *scenarios.Impersonate {
	user := &scenarios.Impersonate{User: fmt.Sprintf("user-%06d", a)}
	for i := range variant.Groups {
		group := "staff"
		if i > 0 {
			group = fmt.Sprintf("team-%d-%d", i, a%20)
		}
		user.Groups = append(user.Groups, group)
	}
	for i := range variant.Values {
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[extraKey] = append(user.Extra[extraKey], fmt.Sprintf("tenant-%d-%d", i, a%10))
	}
	return user
}

// target is the path and query of a request about a node. kind is an index of profile.Kinds.
func target(kind, node, pods, turn int) (path, query string) {
	selector := "fieldSelector=spec.nodeName%3D" + nodeName(node)
	switch profile.Kinds()[kind] {
	case "get":
		return "/api/v1/namespaces/" + podSpace + "/pods/" + podName(node, turn%pods), ""
	case profile.Review:
		return "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""
	case profile.Whoami:
		return "/apis/authentication.k8s.io/v1/selfsubjectreviews", ""
	case "watch":
		return "/api/v1/pods", fmt.Sprintf("%s&resourceVersion=0&timeoutSeconds=%d&watch=true", selector, watchSeconds)
	}
	// It reads from the watch cache, as agents with informers do.
	return "/api/v1/pods", selector + "&resourceVersion=0"
}

// selfReview asks whether the user may see the next page.
const selfReview = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`

// whoami asks whom the API server takes the user for.
const whoami = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

// These are the accepted media types of client-go's informers.
var (
	accept      = []string{"application/vnd.kubernetes.protobuf, application/json"}
	acceptWatch = []string{"application/vnd.kubernetes.protobuf;stream=watch, application/json"}
	isJSON      = []string{"application/json"}
	userAgent   = []string{"authzconf-load"}
)

// Asker makes the requests of a variant. tokens are the tokens of each identity, which are used in turn.
func Asker(p *profile.Profile, variant profile.Variant, tokens func(identity int) []string) func(agent, kind, turn int) agent.Request {
	return func(a, kind, turn int) agent.Request {
		return request(asking(p, variant, a), kind, turn, p.PodsPerNode, tokens)
	}
}

func request(q ask, kind, turn, pods int, tokens func(int) []string) agent.Request {
	r := agent.Request{Header: make(http.Header, 6), Watch: profile.Kinds()[kind] == "watch"}
	r.Path, r.Query = target(kind, q.node, pods, turn)
	r.Header["Accept"], r.Header["User-Agent"] = accept, userAgent
	if r.Watch {
		r.Header["Accept"] = acceptWatch
	}
	switch profile.Kinds()[kind] {
	case profile.Review:
		r.Body, r.Header["Content-Type"] = []byte(selfReview), isJSON
	case profile.Whoami:
		r.Body, r.Header["Content-Type"], r.Header["Accept"] = []byte(whoami), isJSON, isJSON
		r.Read = readIdentity
	}
	ownTokens := tokens(q.identity)
	r.Header["Authorization"] = []string{"Bearer " + ownTokens[turn%len(ownTokens)]}
	if q.imp != nil {
		r.Header["Impersonate-User"] = []string{q.imp.User}
		if len(q.imp.Groups) > 0 {
			r.Header["Impersonate-Group"] = q.imp.Groups
		}
		for key, values := range q.imp.Extra {
			r.Header[http.CanonicalHeaderKey("Impersonate-Extra-"+url.PathEscape(key))] = values
		}
	}
	return r
}

// Describe is a request of a schedule, for people.
func Describe(p *profile.Profile, variant profile.Variant, send pacer.Send) string {
	q := asking(p, variant, int(send.Agent))
	node, account := sender(p, q.identity)
	text := fmt.Sprintf(
		"%s: %s on %s, as %s:%s, sends %s",
		send.At,
		agentName(q.identity),
		nodeName(node),
		space(variant),
		account,
		profile.Kinds()[send.Kind],
	)
	if q.imp != nil {
		text += " for " + q.imp.User
	}
	return text
}
