package deputy

import (
	"context"
	_ "embed" // the pages of a dashboard
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

//go:embed buttons.yaml
var buttonsFile []byte

// pages returns the pages of a dashboard, with what each asks before it is shown.
var pages = sync.OnceValue(func() []page { return fixtures.Table[[]page]("buttons.yaml", buttonsFile) })

// page is a page of a dashboard, with the questions that it asks.
type page struct {
	Page string   `json:"page"`
	Asks []string `json:"asks"`
}

// pageVisits are the ways in which a page is opened: with its reviews one after another, with the same reviews again,
// and with all of them at once.
var pageVisits = []string{"opened", "opened again", "opened all at once"}

// allAtOnce is the index of the last of these ways.
const allAtOnce = 2

// visitEvidence is what was seen when somebody opened a page, and what the authorizer was asked meanwhile, if that can
// be seen.
type visitEvidence struct {
	Reviews    []*verdicts.Observation `json:"reviews"`
	Authorizer []verdicts.Review       `json:"authorizer,omitempty"`
}

// reviewsOf returns the questions of a page about a person, and the reviews that ask them.
func (g page) reviewsOf(person *Identity, namespace string) (questions []question, requests []*scenarios.Request) {
	for _, text := range g.Asks {
		verb, what, _ := strings.Cut(text, " ")
		what, group, _ := strings.Cut(what, ".")
		resource, sub, _ := strings.Cut(what, "/")
		q := question{who: person, verb: verb, kind: kind{group: group, version: "v1", resource: resource, sub: sub}, namespace: namespace}
		questions, requests = append(questions, q), append(requests, q.review())
	}
	if questions == nil {
		requests = append(requests, selfReview("SelfSubjectRulesReview", map[string]any{"namespace": namespace}))
	}
	return questions, requests
}

// visitor returns the person who opens the n-th page: somebody whom the proxy may impersonate and who, if there are
// enough people, has asked nothing before.
func (f *fixture) visitor(n int) *Identity {
	people := slices.DeleteFunc(slices.Clone(f.people), func(person *Identity) bool { return person.outOfReach })
	return people[n%len(people)]
}

// openPages opens every page in every way.
func (ep *endpoint) openPages(ctx context.Context, g *group, run string) (visits []visitEvidence, err error) {
	for n, p := range pages() {
		person := g.fixture.visitor(n)
		client := ep.client(person)
		defer client.CloseIdleConnections()
		for way := range pageVisits {
			v := &visit{ep: ep, client: client, who: person, marker: fmt.Sprintf("%s-page-%d-%d", run, n, way)}
			_, v.requests = p.reviewsOf(person, g.fixture.namespaces[0])
			if way == allAtOnce {
				v.concurrent = len(v.requests)
			}
			evidence, err := v.open(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", p.Page, pageVisits[way], err)
			}
			visits = append(visits, *evidence)
		}
	}
	return visits, nil
}

// visit is a page that somebody opens.
type visit struct {
	ep         *endpoint
	client     *http.Client
	who        *Identity
	requests   []*scenarios.Request
	concurrent int // how many reviews are sent at once; 0 means one after another
	marker     string
}

// open sends the reviews of the page, and records what the authorizer is asked meanwhile.
func (v *visit) open(ctx context.Context) (*visitEvidence, error) {
	evidence := &visitEvidence{}
	if v.ep.plane == nil {
		return evidence, v.send(ctx, evidence)
	}
	batch, err := v.ep.plane.OpenBatch()
	if err != nil {
		return nil, err
	}
	err = v.send(ctx, evidence)
	batched, closing := batch.Close(ctx)
	if err != nil {
		return nil, err
	}
	if closing != nil {
		return nil, closing
	}
	evidence.Authorizer = slices.DeleteFunc(batched.Reviews, func(r verdicts.Review) bool {
		isAboutPage := r.Spec.User == v.who.Name || r.Spec.User == proxyName
		return r.Point != string(recorder.Front) || !isAboutPage
	})
	return evidence, nil
}

// send sends the reviews of the page, and keeps their answers.
func (v *visit) send(ctx context.Context, evidence *visitEvidence) error {
	evidence.Reviews = make([]*verdicts.Observation, len(v.requests))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, v.concurrent))
	for i, r := range v.requests {
		group.Go(func() (err error) {
			evidence.Reviews[i], err = v.ep.ask(groupCtx, v.client, v.who, r, fmt.Sprintf("%s-%d", v.marker, i))
			return err
		})
	}
	return group.Wait()
}

// describeQuestion returns a question to an authorizer on one line.
func describeQuestion(a *authorizationv1.ResourceAttributes) string {
	return strings.Join([]string{a.Verb, scenarios.FullResource(a.Resource, a.Subresource), a.Group, a.Version, a.Namespace, a.Name}, " ")
}
