package population

import (
	"cmp"
	"encoding/json"
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
	if server.Gate() == profile.GateOn {
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

// Predict goes on by what was asked in a block that began at a time, and says what it cost. The log is put in order.
func (h *History) Predict(variant profile.Variant, start time.Time, log []run.Asked) (*run.Prediction, error) {
	if h.began.IsZero() {
		h.began = start
	}
	slices.SortStableFunc(log, func(x, y run.Asked) int { return cmp.Compare(x.From, y.From) })
	out := &run.Prediction{Requests: int64(len(log))}
	counts, times := map[run.ReviewCount]*run.CheckRange{}, map[int32]int{}
	for _, asked := range log {
		at := start.Sub(h.began) + asked.From
		for i, server := range []*oracle.Server{h.fewest, h.most} {
			server.Advance(max(0, at-h.now))
			server.Takes(asked.To-asked.From, i == 1)
		}
		h.now = max(h.now, at)
		if who := (met{variant.Name, asked.Agent}); !h.met[who] {
			h.met[who] = true
			out.First++
		}
		times[asked.Agent]++
		switch asked.Answer {
		case "401": // nobody was asked
			continue
		case "", "429":
		default:
			out.Unsure++
		}
		if err := h.one(variant, asked, counts); err != nil {
			return nil, err
		}
	}
	for _, c := range counts {
		c.Low, c.High = min(c.Low, c.High), max(c.Low, c.High)
		out.Checks = append(out.Checks, *c)
	}
	slices.SortFunc(out.Checks, func(x, y run.CheckRange) int {
		return cmp.Or(cmp.Compare(x.Mode, y.Mode), cmp.Compare(x.Verb, y.Verb), cmp.Compare(x.Decision, y.Decision))
	})
	if out.Asked = len(times); out.Asked > 0 {
		each := slices.Collect(maps.Values(times))
		out.Seldom, out.Often = slices.Min(each), slices.Max(each)
	}
	return out, nil
}

// one adds the reviews of a request, by mode, verb and decision.
func (h *History) one(variant profile.Variant, asked run.Asked, counts map[run.ReviewCount]*run.CheckRange) error {
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
	for i, server := range []*oracle.Server{h.fewest, h.most} {
		prediction := server.Do(requestor, q.imp, r)
		if forbidden := prediction.Code == 403; forbidden != variant.Denied {
			return fmt.Errorf("the oracle says of agent %d of %s: code %d, %v", asked.Agent, variant.Name, prediction.Code, prediction.Messages)
		}
		sequences, _ := prediction.Sequences()
		for _, review := range sequences[0] {
			// Priority and fairness comes between impersonation and the request's own check.
			if asked.Answer == "429" && review.Mode == "" {
				continue
			}
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

// Planned is a schedule as what was asked, if each request takes so long.
func Planned(sends []pacer.Send, took time.Duration) (log []run.Asked) {
	turns := map[int32]int{}
	for _, send := range sends {
		log = append(log, run.Asked{Agent: send.Agent, Kind: send.Kind, Turn: turns[send.Agent], From: send.At, To: send.At + took})
		turns[send.Agent]++
	}
	return log
}
