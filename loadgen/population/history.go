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

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// History predicts what the blocks of a run cost the authorizer of one server. It knows all earlier requests, and
// remembers what the server remembers: modes, and the checks of the last seconds.
type History struct {
	profile *profile.Profile
	config  oracle.Config
	// fewest and most are bounds of what requests cost that are open at the same time, because nothing says which comes
	// first. If it cannot be known which server was asked, or since when it runs, fewest remembers everything and most
	// remembers nothing.
	fewest, most *oracle.Server
	refusing     *oracle.Server // a server that has not read its RBAC yet
	// answers are what the API server remembers of the webhook's answers, by what was asked, for fewest and for most.
	answers [2]map[string]run.Request
	// own are the reviews that the requests of the block lead to which was predicted last, by ownKey.
	own   map[string]*run.CheckRange
	began time.Time // 0 of the models
	now   time.Duration
	met   map[knownAgent]bool
}

// knownAgent is an agent that has already sent a request to the server.
type knownAgent struct {
	variant string
	agent   int32
}

// NewHistory returns the history of a server that has just started. kubernetes is its effective version.
func NewHistory(p *profile.Profile, server profile.Server, kubernetes string) (*History, error) {
	c := oracle.Config{Kubernetes: kubernetes, Gate: server.Gate()}
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
	return &History{
		profile:  p,
		config:   c,
		fewest:   fewest,
		most:     most,
		refusing: refusing,
		answers:  [2]map[string]run.Request{{}, {}},
		met:      map[knownAgent]bool{},
	}, err
}

// answerLife is how long an API server remembers that a webhook did not allow (cacheUnauthorizedTTL by default of
// k8s.io/kubernetes/pkg/kubeapiserver/options, authorization.go).
const answerLife = 30 * time.Second

// observation is one request, with the time of the models.
type observation struct {
	run.Request
	variant profile.Variant
	at      time.Duration
	// unsure means that it is not known how far the request came, because it had no answer or an unexpected one.
	unsure bool
}

// Predict adds the requests of a block that began at a time, and returns what they cost. It sorts the log.
func (h *History) Predict(variant profile.Variant, start time.Time, log []run.Request) (*run.Prediction, error) {
	return h.PredictSettled(variant, start, log, nil)
}

// PredictSettled does the same as Predict for a block that is settled in part. The settled part, unless it is nil, gets
// its requests and what is predicted for them.
func (h *History) PredictSettled(
	variant profile.Variant,
	start time.Time,
	log []run.Request,
	settled *run.SettledPart,
) (*run.Prediction, error) {
	if h.began.IsZero() {
		h.began = start
	}
	h.own = map[string]*run.CheckRange{}
	slices.SortStableFunc(log, func(x, y run.Request) int { return cmp.Compare(x.From, y.From) })
	out, checks, later := &run.Prediction{Requests: int64(len(log))}, checkRanges{}, checkRanges{}
	times := map[int32]int{}
	for _, request := range log {
		o := observation{Request: request, variant: variant, at: start.Sub(h.began) + request.From, unsure: isUnsure(request)}
		if err := h.advance(o); err != nil {
			return nil, err
		}
		first := h.meet(o)
		if first {
			out.First++
		}
		ranges := []checkRanges{checks}
		if settled.Count(request, first) {
			ranges = append(ranges, later)
		}
		times[o.Agent]++
		if o.unsure {
			out.Unsure++
		}
		if err := h.observe(o, ranges); err != nil {
			return nil, err
		}
	}
	out.Checks = checks.sorted()
	if settled != nil {
		settled.Checks = later.sorted()
	}
	if out.Agents = len(times); out.Agents > 0 {
		each := slices.Collect(maps.Values(times))
		out.Fewest, out.Most = slices.Min(each), slices.Max(each)
	}
	return out, nil
}

// meet records that the server has had a request of an agent, and reports whether it is the first.
func (h *History) meet(o observation) bool {
	who := knownAgent{o.variant.Name, o.Agent}
	first := !h.met[who]
	h.met[who] = true
	return first
}

// isUnsure reports whether the answer to a request leaves open how far it came.
func isUnsure(r run.Request) bool {
	return !slices.Contains([]string{"", "401", run.Throttled, run.Unready, "refused"}, r.Answer)
}

// advance moves the models to the time of a request.
func (h *History) advance(o observation) (err error) {
	if !h.profile.OneServer() {
		if h.most, err = oracle.New(h.config); err != nil {
			return err
		}
	}
	took := o.To - o.From
	if o.unsure {
		took += mostTaken // nobody knows whether it was remembered
	}
	for _, server := range []*oracle.Server{h.fewest, h.most} {
		server.Advance(max(0, o.at-h.now))
		server.Takes(took, server == h.most)
	}
	h.now = max(h.now, o.at)
	return nil
}

// checkRanges are the predicted reviews by their kind.
type checkRanges map[run.ReviewKind]*run.CheckRange

func (c checkRanges) rangeOf(kind run.ReviewKind) *run.CheckRange {
	if c[kind] == nil {
		c[kind] = &run.CheckRange{ReviewKind: kind}
	}
	return c[kind]
}

func (c checkRanges) sorted() (list []run.CheckRange) {
	for _, r := range c {
		r.Low, r.High = min(r.Low, r.High), max(r.Low, r.High)
		list = append(list, *r)
	}
	slices.SortFunc(list, func(x, y run.CheckRange) int { return x.Compare(y.ReviewKind) })
	return list
}

// bound is one bound of what a request may cost.
type bound int

const (
	atFewest bound = iota
	atMost
	// refused is what a server asks that has not read its RBAC yet.
	refused
)

// observe adds the reviews of a request, by mode, verb and decision, to everything that it counts for.
func (h *History) observe(o observation, ranges []checkRanges) error {
	if o.Answer == "401" || o.Answer == "refused" { // nobody was asked
		return nil
	}
	requestor, imp, request, err := h.describe(o)
	if err != nil {
		return err
	}
	models := []*oracle.Server{atFewest: h.fewest, atMost: h.most}
	if o.unsure {
		models = append(models, h.refusing)
	}
	for i, model := range models {
		at := bound(i)
		prediction := model.Do(requestor, imp, request)
		forbidden := prediction.Code == http.StatusForbidden
		if at != refused && forbidden != o.variant.Denied {
			return fmt.Errorf(
				"the oracle says of agent %d of %s: code %d, %v",
				o.Agent,
				o.variant.Name,
				prediction.Code,
				prediction.Messages,
			)
		}
		sequences, _ := prediction.Sequences()
		for _, review := range sequences[0] {
			h.countAsked(at, o, review, ranges)
		}
	}
	return nil
}

// describe returns a request as the oracle knows it: who sends it, on behalf of whom, and what it is.
func (h *History) describe(o observation) (requestor scenarios.User, imp *scenarios.Impersonate, r oracle.Request, err error) {
	p, q := h.profile, asking(h.profile, o.variant, int(o.Agent))
	node, account := sender(p, q.identity)
	token := fmt.Sprint(q.identity, "-", o.Turn%p.TokensPerAgent)
	requestor = oracle.RequestorOf(token, scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: space(o.variant), Name: account, Pod: agentName(q.identity), Node: nodeName(node),
	}})
	req := request(q, int(o.Kind), o.Turn, p.PodsPerNode, func(int) []string { return []string{token} })
	address := &url.URL{Path: req.Path, RawQuery: req.Query}
	if len(req.Body) == 0 {
		r.Attributes = oracle.ParseRequest(http.MethodGet, address)
		return requestor, q.imp, r, nil
	}
	r.Attributes = oracle.ParseRequest(http.MethodPost, address)
	return requestor, q.imp, r, json.Unmarshal(req.Body, &r.Body)
}

// asks reports whether a review of the model reaches the authorizer.
func (h *History) asks(at bound, o observation, review oracle.Review) bool {
	// Priority and fairness comes between impersonation and the request's own check.
	if o.Answer == run.Throttled && review.Mode == "" {
		return false
	}
	mayRemember := h.profile.Authorizer.Cache && at != refused
	return !mayRemember || !h.remembers(at, o, review.Spec)
}

// countAsked adds a review to everything that it counts for, if it reaches the authorizer.
func (h *History) countAsked(at bound, o observation, review oracle.Review, ranges []checkRanges) {
	if !h.asks(at, o, review) {
		return
	}
	for _, checks := range ranges {
		h.count(at, o, review, checks)
	}
	if review.Mode == "" {
		key := ownKey(o.variant, review.Spec)
		if h.own[key] == nil {
			h.own[key] = &run.CheckRange{}
		}
		addTo(h.own[key], at, o)
	}
}

// count adds a review to what is predicted.
func (h *History) count(at bound, o observation, review oracle.Review, checks checkRanges) {
	kind := run.ReviewKind{
		Mode:     cmp.Or(string(review.Mode), run.RequestMode),
		Verb:     review.Spec.ResourceAttributes.Verb,
		Decision: "NoOpinion",
	}
	if review.Allowed() {
		kind.Decision = "Allow"
	}
	if h.profile.Authorizer.Cache {
		kind.Decision = run.Unseen
	}
	addTo(checks.rangeOf(kind), at, o)
}

// addTo adds a review to a range, at one of its ends.
func addTo(predicted *run.CheckRange, at bound, o observation) {
	switch {
	case at != atFewest:
		predicted.High++
	case !o.unsure: // otherwise it may not have come so far
		predicted.Low++
	}
}

// mostTaken is longer than anything is remembered of a request that was sent.
const mostTaken = time.Hour

// remembers reports whether the API server remembers the webhook's answer, and records the question if it does not. For
// fewest, an answer is there when the question was sent, and is forgotten some time after it came; for most it is the
// reverse.
func (h *History) remembers(bounded bound, o observation, spec authorizationv1.SubjectAccessReviewSpec) bool {
	key := fmt.Sprint(spec) // k8s.io/apiserver/plugin/pkg/authorizer/webhook uses the whole spec as the key
	if text, err := json.Marshal(spec); err == nil {
		key = string(text)
	}
	end := o.at + o.To - o.From
	if known, ok := h.answers[bounded][key]; ok {
		fresh := o.at < known.To+answerLife
		if bounded == atMost {
			fresh = h.profile.OneServer() && o.at >= known.To && end < known.From+answerLife
		}
		if fresh {
			return true
		}
	}
	h.answers[bounded][key] = run.Request{From: o.at, To: end}
	return false
}

// Planned returns a schedule as a log of what was asked, if each request takes the given time.
func Planned(sends []pacer.Send, took time.Duration) (log []run.Request) {
	turns := map[int32]int{}
	for _, send := range sends {
		log = append(log, run.Request{Agent: send.Agent, Kind: send.Kind, Turn: turns[send.Agent], From: send.At, To: send.At + took})
		turns[send.Agent]++
	}
	return log
}
