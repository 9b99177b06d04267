package deputy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// preflightWorkers is how many questions are asked at the same time.
const preflightWorkers = 16

// preflightEvidence is what was seen of the pre-flight, in the order of its questions.
type preflightEvidence struct {
	// Run is the beginning of the markers of what was sent.
	Run       string             `json:"run"`
	Questions []questionEvidence `json:"questions"`
	// Rules are the rules reviews. Each is about one user in one namespace, and is read once.
	Rules map[string]*verdicts.Observation `json:"rules"`
	// Visits are the visits to the pages of a dashboard, one for each way of opening a page.
	Visits []visitEvidence `json:"visits"`
}

// questionEvidence is what was seen of a question as a review and as the request itself.
type questionEvidence struct {
	Review  *verdicts.Observation `json:"review"`
	Request *verdicts.Observation `json:"request"`
}

// observePreflight asks every question through the endpoint, as a review and as the request itself.
func (ep *endpoint) observePreflight(ctx context.Context, g *group) (_ *preflightEvidence, err error) {
	e := &preflightEvidence{Run: newRun(), Questions: make([]questionEvidence, len(g.questions)), Rules: map[string]*verdicts.Observation{}}
	if e.Visits, err = ep.openPages(ctx, g, e.Run); err != nil { // before the API server remembers anything about anybody
		return nil, err
	}
	if err := ep.askAll(ctx, g, e); err != nil {
		return nil, err
	}
	events, err := ep.log.eventsOf(ctx, e.Run, `"auditID"`)
	if err != nil {
		return nil, err
	}
	e.assignEvents(events)
	return e, nil
}

// askAll sends the questions, and asks for the rules that they are about.
func (ep *endpoint) askAll(ctx context.Context, g *group, e *preflightEvidence) error {
	clients := map[*Identity]*http.Client{}
	for _, person := range g.fixture.people {
		clients[person] = ep.client(person)
		defer clients[person].CloseIdleConnections()
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(preflightWorkers)
	for i, q := range g.questions {
		group.Go(func() (err error) {
			evidence := &e.Questions[i]
			if evidence.Review, err = ep.ask(groupCtx, clients[q.who], q.who, q.review(), markerOf(e.Run, i, "said")); err == nil {
				evidence.Request, err = ep.ask(groupCtx, clients[q.who], q.who, q.request(), requestMarker(e.Run, i))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			return nil
		})
	}
	var mu sync.Mutex
	for key, q := range g.fixture.questionsByRules(g.questions) {
		group.Go(func() error {
			o, err := ep.ask(groupCtx, clients[q.who], q.who, g.fixture.rulesReview(q), e.Run+"-"+key)
			mu.Lock()
			defer mu.Unlock()
			e.Rules[key] = o
			return err
		})
	}
	return group.Wait()
}

// requestMarker returns the marker of the request of a question.
func requestMarker(run string, i int) string { return markerOf(run, i, "did") }

// assignEvents gives each request its audit event, by its audit ID or its marker.
func (e *preflightEvidence) assignEvents(events []json.RawMessage) {
	byID := map[string]json.RawMessage{}
	for _, raw := range events {
		if event := decodeEvent(raw); event != nil {
			byID[string(event.AuditID)], byID[event.UserAgent] = raw, raw
		}
	}
	for i := range e.Questions {
		request := e.Questions[i].Request
		if request.Audit = byID[request.Response.AuditID]; request.Audit == nil {
			request.Audit = byID[requestMarker(e.Run, i)]
		}
	}
}

// ask sends a request of a person. The marker is its user agent and its audit ID, if the program that acts for the
// person passes these on. There is no limit of time, because it is the API server that is tested.
func (ep *endpoint) ask(
	ctx context.Context,
	client *http.Client,
	person *Identity,
	r *scenarios.Request,
	marker string,
) (*verdicts.Observation, error) {
	req, err := replay.NewRequest(ctx, ep.url.String(), r)
	if err != nil {
		return nil, err
	}
	o := &verdicts.Observation{}
	if person.public {
		person.addTo(req.Header)
	}
	replay.Record(&o.Request, req)
	if !person.public {
		person.addTo(req.Header)
	}
	o.Request.URL = strings.TrimPrefix(o.Request.URL, ep.url.Path)
	o.Request.Requestor, o.Request.Credential = person.Name, &scenarios.User{Name: person.Name}
	req.Header.Set("User-Agent", marker)
	req.Header.Set("Audit-Id", marker)
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(client, req, r.Verb == "watch")
	o.Answered = time.Now()
	mayRefuse := !person.public // it is a proxy of somebody else's: whether the request arrived is judged nevertheless
	if err != nil && mayRefuse && ctx.Err() == nil {
		o.Response.Broken, o.Response.AuditID, err = err.Error(), marker, nil
	}
	return o, err
}
