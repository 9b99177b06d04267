// Package population is who takes part in a storm: nodes with pods, and for every variant its agents with their tokens
// and permissions. It creates them, says what each of them asks, and predicts what that costs the authorizer.
package population

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// podSpace holds the pods that agents ask for, which have podAccount.
	podSpace   = "storm-pods"
	podAccount = "pods"
	// extraKey and its value are what users of deputies have.
	extraKey     = "authzconf.dev/tenant"
	watchSeconds = 300 // how long a watch goes on before the agent has to begin anew
)

// Label is on all that is created, and a taint of the nodes.
const Label = "authzconf.dev/storm"

func nodeName(i int) string                { return fmt.Sprintf("storm-%06d", i) }
func podName(node, i int) string           { return fmt.Sprintf("pod-%06d-%03d", node, i) }
func agentName(i int) string               { return fmt.Sprintf("agent-%06d", i) }
func accountName(i int) string             { return fmt.Sprintf("account-%06d", i) }
func space(variant profile.Variant) string { return "storm-" + variant.Name }

// sender is a pod that sends, by its number among the identities of a profile: which node it is on, and what its service
// account is called. One more, on a node and with an account of its own, takes no part.
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
	own, _ := sender(p, q.identity)
	q.node = own
	switch variant.As {
	case profile.OwnNode:
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(own)}
	case profile.OtherNode:
		q.node = (own + 1) % (p.Nodes + 1)
		q.imp = &scenarios.Impersonate{User: "system:node:" + nodeName(q.node)}
	case profile.User:
		q.node = a % p.Nodes
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

// Describe is a request of a schedule, for people.
func Describe(p *profile.Profile, variant profile.Variant, send pacer.Send) string {
	q := asking(p, variant, int(send.Agent))
	node, account := sender(p, q.identity)
	text := fmt.Sprintf("%s: %s on %s, as %s:%s, sends %s", send.At, agentName(q.identity), nodeName(node), space(variant), account, profile.Kinds()[send.Kind])
	if q.imp != nil {
		text += " for " + q.imp.User
	}
	return text
}

// Smallest looks for fewer requests that show what a schedule shows, by leaving out halves, quarters and less.
func Smallest(sends []pacer.Send, tries int, shows func([]pacer.Send) bool) []pacer.Send {
	for parts := 2; len(sends) > 1 && tries > 0; {
		each, smaller := (len(sends)+parts-1)/parts, false
		for from := 0; from < len(sends) && tries > 0 && !smaller; from += each {
			rest := slices.Delete(slices.Clone(sends), from, min(from+each, len(sends)))
			if tries--; shows(rest) {
				sends, parts, smaller = rest, max(2, parts-1), true
			}
		}
		if !smaller {
			if each == 1 {
				break
			}
			parts = min(2*parts, len(sends))
		}
	}
	return sends
}

// History predicts what the blocks of a run cost the authorizer of one server. It has been told of all requests
// before, and remembers what the server does: which modes, and of the last seconds which checks.
type History struct {
	profile *profile.Profile
	config  oracle.Config
	// fewest and most bound what requests cost that are under way at once, for which nothing says who comes first.
	// Where it cannot be known which server was asked, or since when it runs, fewest remembers all, and most nothing.
	fewest, most *oracle.Server
	refusing     *oracle.Server // a server that has not read its RBAC yet
	// answers are what the API server remembers of the webhook's, by what was asked, at the fewest and the most.
	answers [2]map[string]run.Asked
	began   time.Time // 0 of the models
	now     time.Duration
	met     map[met]bool
}

// met is an agent that the server was asked by.
type met struct {
	variant string
	agent   int32
}

// NewHistory is that of a server that has just started. kubernetes is its effective version.
func NewHistory(p *profile.Profile, server profile.Server, kubernetes string) (*History, error) {
	c := oracle.Config{Kubernetes: kubernetes, Gate: scenarios.GateOff}
	if server.Gate() == profile.GateOn {
		c.Gate = scenarios.GateOn
	}
	for _, variant := range p.Variants() {
		c.Grants = append(c.Grants, Grants(variant)...)
	}
	fewest, err := oracle.New(c)
	if err != nil {
		return nil, err
	}
	most, err := oracle.New(c)
	if err != nil {
		return nil, err
	}
	nobody := c
	nobody.Grants = nil
	refusing, err := oracle.New(nobody)
	return &History{profile: p, config: c, fewest: fewest, most: most, refusing: refusing, answers: [2]map[string]run.Asked{{}, {}}, met: map[met]bool{}}, err
}

// answerLife is how long an API server remembers that a webhook allowed nothing (cacheUnauthorizedTTL by default of
// k8s.io/kubernetes/pkg/kubeapiserver/options, authorization.go).
const answerLife = 30 * time.Second

// Predict goes on by what was asked in a block that began at a time, and says what it cost. The log is put in order.
func (h *History) Predict(variant profile.Variant, start time.Time, log []run.Asked) (_ *run.Prediction, err error) {
	if h.began.IsZero() {
		h.began = start
	}
	slices.SortStableFunc(log, func(x, y run.Asked) int { return cmp.Compare(x.From, y.From) })
	out := &run.Prediction{Requests: int64(len(log))}
	counts, times := map[run.ReviewKind]*run.CheckRange{}, map[int32]int{}
	for _, asked := range log {
		at := start.Sub(h.began) + asked.From
		if !h.profile.OneServer() {
			if h.most, err = oracle.New(h.config); err != nil {
				return nil, err
			}
		}
		unsure := !slices.Contains([]string{"", "401", run.Throttled, run.Unready, "refused"}, asked.Answer)
		for i, server := range []*oracle.Server{h.fewest, h.most} {
			server.Advance(max(0, at-h.now))
			took := asked.To - asked.From
			if unsure {
				took += mostTaken // nobody knows whether it was remembered
			}
			server.Takes(took, i == 1)
		}
		h.now = max(h.now, at)
		if who := (met{variant.Name, asked.Agent}); !h.met[who] {
			h.met[who] = true
			out.First++
		}
		times[asked.Agent]++
		if asked.Answer == "401" || asked.Answer == "refused" { // nobody was asked
			continue
		}
		if unsure {
			out.Unsure++
		}
		if err := h.one(variant, asked, at, unsure, counts); err != nil {
			return nil, err
		}
	}
	for _, c := range counts {
		c.Low, c.High = min(c.Low, c.High), max(c.Low, c.High)
		out.Checks = append(out.Checks, *c)
	}
	slices.SortFunc(out.Checks, func(x, y run.CheckRange) int { return x.Compare(y.ReviewKind) })
	if out.Asked = len(times); out.Asked > 0 {
		each := slices.Collect(maps.Values(times))
		out.Seldom, out.Often = slices.Min(each), slices.Max(each)
	}
	return out, nil
}

// one adds the reviews of a request, by mode, verb and decision.
func (h *History) one(variant profile.Variant, asked run.Asked, at time.Duration, unsure bool, counts map[run.ReviewKind]*run.CheckRange) error {
	p, q := h.profile, asking(h.profile, variant, int(asked.Agent))
	node, account := sender(p, q.identity)
	token := fmt.Sprint(q.identity, "-", asked.Turn%p.TokensPerAgent)
	requestor := oracle.RequestorOf(token, scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: space(variant), Name: account, Pod: agentName(q.identity), Node: nodeName(node),
	}})
	sent := request(q, int(asked.Kind), asked.Turn, p.PodsPerNode, func(int) []string { return []string{token} })
	address := &url.URL{Path: sent.Path, RawQuery: sent.Query}
	r := oracle.Request{Attributes: oracle.ParseRequest("GET", address)}
	if len(sent.Body) > 0 {
		r.Attributes = oracle.ParseRequest("POST", address)
		if err := json.Unmarshal(sent.Body, &r.Body); err != nil {
			return err
		}
	}
	for i, server := range []*oracle.Server{h.fewest, h.most, h.refusing} {
		if i == 2 && !unsure {
			break
		}
		prediction := server.Do(requestor, q.imp, r)
		if forbidden := prediction.Code == 403; i < 2 && forbidden != variant.Denied {
			return fmt.Errorf("the oracle says of agent %d of %s: code %d, %v", asked.Agent, variant.Name, prediction.Code, prediction.Messages)
		}
		sequences, _ := prediction.Sequences()
		for _, review := range sequences[0] {
			// Priority and fairness comes between impersonation and the request's own check.
			if asked.Answer == run.Throttled && review.Mode == "" || h.profile.Authorizer.Cache && i < 2 && h.remembered(i, at, asked, review.Spec) {
				continue
			}
			c := run.ReviewKind{Mode: cmp.Or(string(review.Mode), run.RequestMode), Decision: "NoOpinion"}
			if c.Verb = review.Spec.ResourceAttributes.Verb; review.Allowed() {
				c.Decision = "Allow"
			}
			if h.profile.Authorizer.Cache {
				c.Decision = run.Unseen
			}
			counts[c] = cmp.Or(counts[c], &run.CheckRange{ReviewKind: c})
			switch {
			case i > 0:
				counts[c].High++
			case !unsure: // else it may not have come so far
				counts[c].Low++
			}
		}
	}
	return nil
}

// mostTaken is longer than what is remembered of a request that was sent.
const mostTaken = time.Hour

// remembered says whether the API server knows what the webhook answers, and notes that it asks if it does not. At the
// fewest an answer is there when the question was sent, and forgotten after it came; at the most it is the other way.
func (h *History) remembered(i int, at time.Duration, asked run.Asked, spec authorizationv1.SubjectAccessReviewSpec) bool {
	key := fmt.Sprint(spec) // as k8s.io/apiserver/plugin/pkg/authorizer/webhook has it: all of the spec
	if text, err := json.Marshal(spec); err == nil {
		key = string(text)
	}
	end := at + asked.To - asked.From
	if known, ok := h.answers[i][key]; ok {
		if i == 0 && at < known.To+answerLife || i == 1 && h.profile.OneServer() && at >= known.To && end < known.From+answerLife {
			return true
		}
	}
	h.answers[i][key] = run.Asked{From: at, To: end}
	return false
}

// Planned is a schedule as what was asked, if each request takes so long.
func Planned(sends []pacer.Send, took time.Duration) (log []run.Asked) {
	turns := map[int32]int{}
	for _, send := range sends {
		log = append(log, run.Asked{Agent: send.Agent, Kind: send.Kind, Turn: turns[send.Agent], From: send.At, To: send.At + took})
		turns[send.Agent]++
	}
	return log
}
