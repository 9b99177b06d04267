package explore

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// timeout ends a request that is not answered.
const timeout = 60 * time.Second

// sender sends requests of arbitrary users over one connection.
type sender struct {
	host string
	next http.RoundTripper
}

func newSender(t *target.Target) (*sender, error) {
	rt, err := t.FrontProxy()
	return &sender{host: t.Host(), next: rt}, err
}

// sent is one request that was answered. Its reviews came after the place from, up to the place to.
type sent struct {
	step        int
	observation verdicts.Observation
	from, to    uint64
}

// send sends the request of a step.
func (s *sender) send(ctx context.Context, bound *scenarios.Scenario, step int) (verdicts.Observation, error) {
	r := bound.Steps[step].Request
	q := bound.Requestors[r.By]
	o := verdicts.Observation{Step: step, Request: verdicts.SentRequest{Requestor: q.Username()}, Metrics: []verdicts.MetricSample{}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := replay.NewRequest(ctx, s.host, r)
	if err != nil {
		return o, err
	}
	rt := transport.NewAuthProxyRoundTripper(q.User, q.UID, q.Groups, q.Extra, target.Tapped(s.next, func(sent *http.Request) {
		replay.Record(&o.Request, sent)
	}))
	if imp := r.Impersonate; imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(&http.Client{Transport: rt}, req, r.Verb == "watch")
	o.Answered = time.Now()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w", req.Method, req.URL.RequestURI(), err)
	}
	return o, nil
}
