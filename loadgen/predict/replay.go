package predict

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// LoggedRequest is a request that impersonated, according to an audit log.
type LoggedRequest struct {
	At        time.Time
	Client    string // the address that it came from; all requests from one address go to the same API server
	Requestor scenarios.User
	As        scenarios.Impersonate
	Request   oracle.Attributes
}

// Replay collects the requests of an audit log. They are of few kinds.
type Replay struct {
	entries    []entry
	requestors interned[scenarios.User]
	as         interned[scenarios.Impersonate]
	requests   interned[oracle.Attributes]
	clients    interned[string]
}

// entry is one request, by the numbers of its parts.
type entry struct {
	at                             time.Time
	requestor, as, request, client int32
}

// interned is a list of things without repetitions.
type interned[T any] struct {
	numbers map[string]int32
	list    []T
}

func (i *interned[T]) number(thing T) int32 {
	key := fmt.Sprintf("%q", []any{thing}) // maps are printed in a fixed order
	if n, ok := i.numbers[key]; ok {
		return n
	}
	if i.numbers == nil {
		i.numbers = map[string]int32{}
	}
	n := int32(len(i.list))
	i.numbers[key], i.list = n, append(i.list, thing)
	return n
}

// Add adds a request. Requests may come in any order.
func (r *Replay) Add(l LoggedRequest) {
	r.entries = append(r.entries, entry{
		l.At, r.requestors.number(l.Requestor), r.as.number(l.As), r.requests.number(l.Request), r.clients.number(l.Client),
	})
}

// Empty reports whether there is no request.
func (r *Replay) Empty() bool { return len(r.entries) == 0 }

// LogPrediction is what the requests of an audit log cost, and what they would cost with the gate on.
type LogPrediction struct {
	APIServers int        `json:"apiServers"`
	Authorizer Authorizer `json:"authorizer"`
	// From and To are the times of the first and the last request.
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Requests int64     `json:"requests"`
	// Situations are the costs of all requests, by the state of gate and permissions.
	Situations []LogOutcome `json:"situations"`
	// Accounts are those who sent the requests, beginning with the one who costs most.
	Accounts []LogAccount `json:"accounts"`
	Assumes  []string     `json:"assumes"`
}

// LogOutcome is what requests cost in one situation.
type LogOutcome struct {
	Situation
	// Name is the situation in words.
	Name string `json:"name"`
	// Checks are made inside the API servers. Reviews is how many of them reach the webhook.
	Checks  int64 `json:"checks"`
	Reviews int64 `json:"webhookReviews"`
	// Peak is the minute with the most checks.
	Peak Minute `json:"peak"`
}

// Minute is one minute of the log.
type Minute struct {
	Begin time.Time `json:"begin"`
	// Checks and Reviews are means per second.
	Checks  float64 `json:"checksPerSecond"`
	Reviews float64 `json:"webhookReviewsPerSecond"`
}

// LogAccount is what one requestor's requests cost.
type LogAccount struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	// Modes is how many requests each mode serves when the permissions are constrained.
	Modes      map[oracle.Mode]int64 `json:"modes"`
	Situations []LogOutcome          `json:"situations"`
}

// Predict replays the requests in each situation on API servers that have just started. It uses the API servers and the
// authorizers of a plan. When the context ends, it ends early with the context's error.
func (r *Replay) Predict(ctx context.Context, p *Plan) (*LogPrediction, error) {
	slices.SortStableFunc(r.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	out := &LogPrediction{
		APIServers: p.APIServers, Authorizer: p.Authorizer, Requests: int64(len(r.entries)), Assumes: p.listLogAssumptions(),
		From: r.entries[0].at, To: r.entries[len(r.entries)-1].at,
	}
	accounts := map[string]*LogAccount{}
	for _, s := range p.Situations() {
		run, err := newReplayed(p, s)
		if err != nil {
			return nil, err
		}
		for _, e := range r.entries {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			run.send(r, e)
		}
		out.Situations = append(out.Situations, run.all.outcome(s))
		for name, costs := range run.accounts {
			if accounts[name] == nil {
				accounts[name] = &LogAccount{Name: name, Requests: costs.requests, Modes: map[oracle.Mode]int64{}}
			}
			accounts[name].Situations = append(accounts[name].Situations, costs.outcome(s))
			accounts[name].Modes = costs.modes // of the last situation
		}
	}
	last := len(out.Situations) - 1
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		out.Accounts = append(out.Accounts, *accounts[name])
	}
	slices.SortStableFunc(
		out.Accounts,
		func(a, b LogAccount) int { return cmp.Compare(b.Situations[last].Checks, a.Situations[last].Checks) },
	)
	return out, nil
}

// logCosts are the costs of requests, in all and by minute.
type logCosts struct {
	requests, checks, reviews int64
	modes                     map[oracle.Mode]int64
	minutes                   map[time.Time]*[2]int64
}

func newLogCosts() *logCosts {
	return &logCosts{modes: map[oracle.Mode]int64{}, minutes: map[time.Time]*[2]int64{}}
}

func (c *logCosts) add(at time.Time, mode oracle.Mode, checks, reviews int64) {
	c.requests++
	c.checks += checks
	c.reviews += reviews
	c.modes[mode]++
	minute := at.UTC().Truncate(time.Minute)
	if c.minutes[minute] == nil {
		c.minutes[minute] = &[2]int64{}
	}
	c.minutes[minute][0] += checks
	c.minutes[minute][1] += reviews
}

func (c *logCosts) outcome(s Situation) LogOutcome {
	o := LogOutcome{Situation: s, Name: s.describe(), Checks: c.checks, Reviews: c.reviews}
	most := int64(-1)
	for _, begin := range slices.SortedFunc(maps.Keys(c.minutes), time.Time.Compare) {
		if m := c.minutes[begin]; m[0] > most {
			most, o.Peak = m[0], Minute{begin, float64(m[0]) / 60, float64(m[1]) / 60}
		}
	}
	return o
}

// replayed is a replay in one situation.
type replayed struct {
	plan      *Plan
	situation Situation
	servers   []*replayServer
	all       *logCosts
	accounts  map[string]*logCosts
}

// replayServer is one API server: the oracle, and what the server remembers of the webhook.
type replayServer struct {
	model     *oracle.Server
	now       time.Time
	began     time.Time
	answers   *answerCache
	questions map[string]int32
}

func newReplayed(p *Plan, s Situation) (*replayed, error) {
	out := &replayed{plan: p, situation: s, all: newLogCosts(), accounts: map[string]*logCosts{}}
	for range p.APIServers {
		model, err := oracle.New(oracle.Config{Kubernetes: newest(), Gate: s.Gate, Chain: permitLogged(s.RBAC, p.Authorizer.Chain)})
		if err != nil {
			return nil, err
		}
		out.servers = append(out.servers,
			&replayServer{model: model, answers: newAnswerCache(p.Authorizer.Size, 0), questions: map[string]int32{}},
		)
	}
	return out, nil
}

// permitLogged returns a chain that allows what was done: by the verb impersonate and, if the permissions are
// constrained, by every constrained mode that serves it. Groups and values of extra are granted one by one.
func permitLogged(rbac RBAC, chain Chain) []oracle.Authorizer {
	isConstrained := rbac == ConstrainedRBAC || chain == NoAuthorizer
	return []oracle.Authorizer{
		{Hidden: true, Authorize: func(spec authorizationv1.SubjectAccessReviewSpec) oracle.AuthorizerDecision {
			if slices.Contains(spec.Groups, user.SystemPrivilegedGroup) {
				return oracle.AuthorizerDecision{Decision: scenarios.Allow}
			}
			return oracle.AuthorizerDecision{Decision: scenarios.NoOpinion}
		}},
		{Authorize: func(spec authorizationv1.SubjectAccessReviewSpec) oracle.AuthorizerDecision {
			verb, name, resource := describeQuestion(spec)
			isOfMode := strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:")
			isRefused := isOfMode && !isConstrained
			isAll := isOfMode && name == "*" && resource != "nodes"
			isNone := rbac == NoRBAC && strings.HasPrefix(verb, "impersonate")
			if isRefused || isAll || isNone {
				return oracle.AuthorizerDecision{Decision: scenarios.NoOpinion}
			}
			return oracle.AuthorizerDecision{Decision: scenarios.Allow}
		}},
	}
}

func describeQuestion(spec authorizationv1.SubjectAccessReviewSpec) (verb, name, resource string) {
	if a := spec.ResourceAttributes; a != nil {
		return a.Verb, a.Name, a.Resource
	}
	return spec.NonResourceAttributes.Verb, "", ""
}

// send replays one request.
func (r *replayed) send(log *Replay, e entry) {
	s := r.serverOf(log.clients.list[e.client])
	if s.began.IsZero() {
		s.began, s.now = e.at, e.at
	}
	s.model.Advance(e.at.Sub(s.now))
	s.now = e.at
	requestor, impersonation := log.requestors.list[e.requestor], log.as.list[e.as]
	if r.situation.RBAC == ConstrainedRBAC {
		impersonation = withoutNodeGroup(impersonation)
	}
	prediction := s.model.Do(requestor, &impersonation, oracle.Request{Attributes: log.requests.list[e.request]})
	sequences, _ := prediction.Sequences()
	reviews := int64(0)
	for _, review := range sequences[0] {
		if s.asksWebhook(r.plan, review) {
			reviews++
		}
	}
	account := r.accounts[requestor.Name]
	if account == nil {
		account = newLogCosts()
		r.accounts[requestor.Name] = account
	}
	for _, c := range []*logCosts{account, r.all} {
		c.add(e.at, prediction.Mode, int64(len(sequences[0])), reviews)
	}
}

// withoutNodeGroup returns what an agent asks for if it is constrained: a node only by its name, which then gets its
// group.
func withoutNodeGroup(impersonation scenarios.Impersonate) scenarios.Impersonate {
	if strings.HasPrefix(impersonation.User, "system:node:") && slices.Equal(impersonation.Groups, []string{user.NodesGroup}) {
		impersonation.Groups = nil
	}
	return impersonation
}

// serverOf returns the API server that a client is connected to.
func (r *replayed) serverOf(client string) *replayServer {
	if len(r.servers) == 1 {
		return r.servers[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(client)) // a hash takes everything
	return r.servers[int(h.Sum32()%uint32(len(r.servers)))]
}

// asksWebhook reports whether a review reaches the webhook, and remembers the answer.
func (s *replayServer) asksWebhook(p *Plan, review oracle.Review) bool {
	isOfNode := strings.HasPrefix(review.Spec.User, "system:node:") && slices.Contains(review.Spec.Groups, user.NodesGroup)
	reaches, life := p.Authorizer.review(step{allowed: review.Allowed(), isOfNode: isOfNode})
	if review.Hidden || !reaches {
		return false
	}
	if life == 0 {
		return true
	}
	raw, err := json.Marshal(review.Spec)
	if err != nil {
		return true // the API server does not remember it either
	}
	question, isKnown := s.questions[string(raw)]
	if !isKnown {
		question = int32(len(s.questions))
		s.questions[string(raw)] = question
		s.answers.grow(len(s.questions))
	}
	at := s.now.Sub(s.began)
	if s.answers.recall(question, at) {
		return false
	}
	s.answers.remember(question, at, at+life)
	return true
}

// listLogAssumptions returns the assumptions of the figures of a replay.
func (p *Plan) listLogAssumptions() []string {
	return []string{
		"kube-apiserver " + newest() + ": the API servers start with the first request of the log, and requests are not under way at once",
		"everything that was allowed to impersonate stays allowed: today by the verb impersonate, and with RBAC as it will be by the constrained mode that serves it, or, where none does, by the verb impersonate as before",
		"with RBAC as it will be, a node is impersonated by its name alone: who asks for system:nodes beside it has stopped to",
		fmt.Sprintf("requests of one address are those of one of %d API servers", p.APIServers),
		"requests that were not allowed to impersonate are left out: the log does not say whom they asked for",
		p.Authorizer.describe(),
	}
}
