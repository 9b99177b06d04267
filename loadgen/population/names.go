// Package population is who takes part in a storm: nodes with pods, and for every variant its agents with their
// tokens and permissions. It creates them, says what each of them asks, and predicts what that costs the
// authorizer.
package population

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// podSpace holds the pods that agents ask for.
	podSpace = "storm-pods"
	// extraKey and its value are what users of deputies have.
	extraKey = "authzconf.dev/tenant"
	// labelKey marks all that is created.
	labelKey = "authzconf.dev/storm"
	// watchSeconds is how long a watch goes on before the agent has to begin anew.
	watchSeconds = 300
)

func nodeName(i int) string                { return fmt.Sprintf("storm-%06d", i) }
func podName(node, i int) string           { return fmt.Sprintf("pod-%06d-%03d", node, i) }
func agentName(i int) string               { return fmt.Sprintf("agent-%06d", i) }
func space(variant profile.Variant) string { return "storm-" + variant.Name }

// ask is what one agent of a variant asks: who it is, whom it impersonates, and about which node.
type ask struct {
	identity, node int
	imp            *scenarios.Impersonate
}

// asking resolves an agent.
func asking(variant profile.Variant, identities, a int) ask {
	id := a % identities
	q := ask{identity: id, node: id}
	switch variant.As {
	case profile.OwnNode:
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(id)}
	case profile.OtherNode:
		q.node = id + 1 // there is a node more than agents
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(q.node)}
	case profile.User:
		q.node = a
		q.imp = &scenarios.Impersonate{
			User:   fmt.Sprintf("user-%06d", a),
			Groups: []string{"staff", fmt.Sprintf("team-%d", a%20)},
			Extra:  map[string][]string{extraKey: {fmt.Sprintf("tenant-%d", a%10)}},
		}
	}
	return q
}

// target is the path and query of a request about a node. kind is an index of profile.Kinds.
func target(kind, node, pods, turn int) (path, query string) {
	selector := "fieldSelector=spec.nodeName%3D" + nodeName(node)
	switch profile.Kinds()[kind] {
	case "get":
		return "/api/v1/namespaces/" + podSpace + "/pods/" + podName(node, turn%pods), ""
	case profile.Review:
		return "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""
	case "watch":
		return "/api/v1/pods", fmt.Sprintf("%s&resourceVersion=0&timeoutSeconds=%d&watch=true", selector, watchSeconds)
	}
	// From the watch cache, as agents with informers ask.
	return "/api/v1/pods", selector + "&resourceVersion=0"
}

// selfReview asks whether the user may see the next page.
const selfReview = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`

// Accepted media types: those of client-go's informers.
var (
	accept      = []string{"application/vnd.kubernetes.protobuf, application/json"}
	acceptWatch = []string{"application/vnd.kubernetes.protobuf;stream=watch, application/json"}
	isJSON      = []string{"application/json"}
	userAgent   = []string{"authzconf-load"}
)

// Asker makes the requests of a variant. tokens are those of each identity, used in turn.
func Asker(p *profile.Profile, variant profile.Variant, tokens func(identity int) []string) func(agent, kind, turn int) agent.Request {
	identities := p.Identities(variant)
	return func(a, kind, turn int) agent.Request {
		return request(asking(variant, identities, a), kind, turn, p.PodsPerNode, tokens)
	}
}

func request(q ask, kind, turn, pods int, tokens func(int) []string) agent.Request {
	r := agent.Request{Header: make(http.Header, 6), Watch: profile.Kinds()[kind] == "watch"}
	r.Path, r.Query = target(kind, q.node, pods, turn)
	r.Header["Accept"], r.Header["User-Agent"] = accept, userAgent
	if r.Watch {
		r.Header["Accept"] = acceptWatch
	}
	if profile.Kinds()[kind] == profile.Review {
		r.Body, r.Header["Content-Type"] = []byte(selfReview), isJSON
	}
	mine := tokens(q.identity)
	r.Header["Authorization"] = []string{"Bearer " + mine[turn%len(mine)]}
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
