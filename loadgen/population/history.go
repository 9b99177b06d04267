package population

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/scenarios"
)

// History predicts what the blocks of a run cost the authorizer of one server. It has been told of all requests
// before, and remembers what the server does: which modes, and of the last seconds which checks.
type History struct {
	profile *profile.Profile
	// fewest and most bound what requests cost that are under way at once, for which nothing says who comes first.
	fewest, most *oracle.Server
	began        time.Time // 0 of the models
	now          time.Duration
	met          map[met]bool
}

// met is an agent that the server was asked by.
type met struct {
	variant string
	agent   int32
}

// NewHistory is that of a server that has just started. kubernetes is its effective version.
func NewHistory(p *profile.Profile, server profile.Server, kubernetes string) (*History, error) {
	c := oracle.Config{Kubernetes: kubernetes, Gate: scenarios.GateOff}
	if server == profile.GateOn {
		c.Gate = scenarios.GateOn
	}
	for _, name := range p.Used() {
		variant, err := profile.VariantNamed(name)
		if err != nil {
			return nil, err
		}
		c.Grants = append(c.Grants, Grants(variant)...)
	}
	fewest, err := oracle.New(c)
	if err != nil {
		return nil, err
	}
	most, err := oracle.New(c)
	return &History{profile: p, fewest: fewest, most: most, met: map[met]bool{}}, err
}

// Predict goes on by the requests of a block that began at a time, and says what they cost. slowest is what the slowest
// of them took from its intended send to its answer, by which its checks were remembered.
func (h *History) Predict(variant profile.Variant, start time.Time, sends []pacer.Send, slowest time.Duration) (*run.Prediction, error) {
	if h.began.IsZero() {
		h.began = start
	}
	// A check is remembered between its request's intended send and its answer, and looked for in the same span of
	// another: so much can be between two requests in one direction or the other. Requests that ask at once each
	// remember it anew, which makes the span two of them.
	h.fewest.Remembers(0, profile.CacheLife+2*slowest)
	h.most.Remembers(slowest, profile.CacheLife-slowest)
	out := &run.Prediction{Slowest: run.Duration(slowest), Requests: int64(len(sends))}
	counts, turns := map[run.ReviewCount]*run.CheckRange{}, map[int32]int{}
	for _, send := range sends {
		at := start.Sub(h.began) + send.At
		h.fewest.Advance(max(0, at-h.now))
		h.most.Advance(max(0, at-h.now))
		h.now = max(h.now, at)
		if who := (met{variant.Name, send.Agent}); !h.met[who] {
			h.met[who] = true
			out.First++
		}
		if err := h.one(variant, send, turns[send.Agent], counts); err != nil {
			return nil, err
		}
		turns[send.Agent]++
	}
	for _, c := range counts {
		c.Low, c.High = min(c.Low, c.High), max(c.Low, c.High)
		out.Checks = append(out.Checks, *c)
	}
	slices.SortFunc(out.Checks, func(x, y run.CheckRange) int {
		return cmp.Or(cmp.Compare(x.Mode, y.Mode), cmp.Compare(x.Verb, y.Verb), cmp.Compare(x.Decision, y.Decision))
	})
	if out.Asked = len(turns); out.Asked > 0 {
		times := slices.Collect(maps.Values(turns))
		out.Seldom, out.Often = slices.Min(times), slices.Max(times)
	}
	return out, nil
}

// one adds the reviews of a request, by mode, verb and decision.
func (h *History) one(variant profile.Variant, send pacer.Send, turn int, counts map[run.ReviewCount]*run.CheckRange) error {
	q := asking(h.profile, variant, int(send.Agent))
	node, account := sender(h.profile, q.identity)
	token := fmt.Sprint(q.identity, "-", turn%h.profile.TokensPerAgent)
	requestor := oracle.RequestorOf(token, scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: space(variant), Name: account, Pod: agentName(q.identity), Node: nodeName(node),
	}})
	path, query := target(int(send.Kind), q.node, h.profile.PodsPerNode, turn)
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	asked := oracle.Request{Attributes: oracle.ParseRequest("GET", path, values)}
	for i, server := range []*oracle.Server{h.fewest, h.most} {
		prediction := server.Do(requestor, q.imp, asked)
		if forbidden := prediction.Code == 403; forbidden != variant.Denied {
			return fmt.Errorf("the oracle says of agent %d of %s: code %d, %v", send.Agent, variant.Name, prediction.Code, prediction.Messages)
		}
		sequences, _ := prediction.Sequences()
		for _, review := range sequences[0] {
			c := run.ReviewCount{Mode: cmp.Or(string(review.Mode), run.RequestMode), Decision: "NoOpinion"}
			if c.Verb = review.Spec.ResourceAttributes.Verb; review.Allowed() {
				c.Decision = "Allow"
			}
			if counts[c] == nil {
				counts[c] = &run.CheckRange{Mode: c.Mode, Verb: c.Verb, Decision: c.Decision}
			}
			if i == 0 {
				counts[c].Low++
			} else {
				counts[c].High++
			}
		}
	}
	return nil
}
