package deputy

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

//go:embed buttons.yaml
var buttonsFile []byte

// buttons are the pages of a dashboard, by what each asks before it is shown.
var buttons = sync.OnceValue(func() []page { return fixtures.Table[[]page]("buttons.yaml", buttonsFile) })

type page struct {
	Page string   `json:"page"`
	Asks []string `json:"asks"`
}

// opened is how a page is opened: its reviews one after another, the same again, and all at once.
var opened = []string{"opened", "opened again", "opened all at once"}

// atOnce is the last of them.
const atOnce = 2

// visitEvidence is a page as somebody opened it, and what the authorizer was asked meanwhile, where that can be seen.
type visitEvidence struct {
	Reviews []*verdicts.Observation `json:"reviews"`
	Asked   []verdicts.Review       `json:"asked,omitempty"`
}

// Cost is what the self-subject reviews of a page cost. Times are told, and not judged.
type Cost struct {
	Page    string `json:"page"`
	Reviews int    `json:"reviews"`
	// Asked is how many access reviews the authorizer got for them by how the page was opened; absent where it cannot be seen.
	Asked []int `json:"asked,omitempty"`
	// Took is how long that took, in milliseconds. Median and Slowest are of single reviews, one after another.
	Took    []float64 `json:"took"`
	Median  float64   `json:"median"`
	Slowest float64   `json:"slowest"`
	// Rules says that the page asks for the rules, Incomplete that these are not all.
	Rules      bool `json:"rules,omitempty"`
	Incomplete bool `json:"incomplete,omitempty"`
}

func (g page) asks(who *Identity, namespace string) (questions []pair, requests []*scenarios.Request) {
	for _, text := range g.Asks {
		verb, what, _ := strings.Cut(text, " ")
		what, group, _ := strings.Cut(what, ".")
		resource, sub, _ := strings.Cut(what, "/")
		q := pair{who: who, verb: verb, kind: kind{group: group, version: "v1", resource: resource, sub: sub}, namespace: namespace}
		questions, requests = append(questions, q), append(requests, q.review())
	}
	if questions == nil {
		requests = append(requests, selfReview("SelfSubjectRulesReview", map[string]any{"namespace": namespace}))
	}
	return questions, requests
}

// visitor opens the page of a number: somebody in the proxy's reach, who has asked nothing before if there are enough people.
func (f *fixture) visitor(n int) *Identity {
	people := slices.DeleteFunc(slices.Clone(f.people), func(who *Identity) bool { return who.outOfReach })
	return people[n%len(people)]
}

func (ep *endpoint) visit(ctx context.Context, s *suite, run string) (out []visitEvidence, err error) {
	for n, g := range buttons() {
		who := s.fixture.visitor(n)
		client := ep.client(who)
		defer client.CloseIdleConnections()
		for way := range opened {
			one, err := ep.openPage(ctx, client, who, g, s.fixture.namespaces[0], way == atOnce, fmt.Sprintf("%s-page-%d-%d", run, n, way))
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", g.Page, opened[way], err)
			}
			out = append(out, *one)
		}
	}
	return out, nil
}

func (ep *endpoint) openPage(ctx context.Context, client *http.Client, who *Identity, g page, namespace string, together bool, marker string) (*visitEvidence, error) {
	_, requests := g.asks(who, namespace)
	one := &visitEvidence{Reviews: make([]*verdicts.Observation, len(requests))}
	group, groupCtx := errgroup.WithContext(ctx)
	if group.SetLimit(1); together {
		group.SetLimit(len(requests))
	}
	asked := func() error { return nil }
	if ep.plane != nil {
		batch, err := ep.plane.OpenBatch()
		if err != nil {
			return nil, err
		}
		asked = func() error {
			seen, err := batch.Close(ctx)
			if err == nil {
				one.Asked = slices.DeleteFunc(seen.Reviews, func(r verdicts.Review) bool {
					return r.Point != string(recorder.Front) || r.Spec.User != who.Name && r.Spec.User != proxyName
				})
			}
			return err
		}
	}
	for i, r := range requests {
		group.Go(func() (err error) {
			one.Reviews[i], err = ep.ask(groupCtx, client, who, r, fmt.Sprintf("%s-%d", marker, i))
			return err
		})
	}
	err := group.Wait()
	if closing := asked(); err == nil {
		err = closing
	}
	return one, err
}

// judgeVisits holds the reviews of pages to the grants, and what the authorizer was asked to what they ask.
func (e *preflightEvidence) judgeVisits(part *Part, s *suite) error {
	if want := len(buttons()) * len(opened); len(e.Visits) != want {
		return fmt.Errorf("there is evidence of %d visits to pages, not of %d", len(e.Visits), want)
	}
	for n, g := range buttons() {
		cost, each := Cost{Page: g.Page}, []time.Duration(nil)
		for way, visit := range e.Visits[n*len(opened):][:len(opened)] {
			took, err := visit.judge(part, s, g, s.fixture.visitor(n), opened[way], &cost)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", g.Page, opened[way], err)
			}
			if way != atOnce {
				each = append(each, took...)
			}
		}
		slices.Sort(each)
		cost.Median, cost.Slowest = milliseconds(each[len(each)/2]), milliseconds(each[len(each)-1])
		part.Pages = append(part.Pages, cost)
	}
	return nil
}

// judge judges a visit, and says how long each review took. About who opens the page the authorizer has to be asked whether each
// review may be made, and what it is about; what it is asked about the proxy depends on what the API server remembers, and is counted.
func (v visitEvidence) judge(part *Part, s *suite, g page, who *Identity, way string, cost *Cost) (each []time.Duration, err error) {
	questions, requests := g.asks(who, s.fixture.namespaces[0])
	if len(v.Reviews) != len(requests) {
		return nil, fmt.Errorf("there is evidence of %d reviews, not of %d", len(v.Reviews), len(requests))
	}
	part.Checks++
	name := fmt.Sprintf("%s, %s by %s", g.Page, way, who.Name)
	var want, got []string
	var began, ended time.Time
	for i, o := range v.Reviews {
		if err := part.sent(who, requests[i], o); err != nil {
			return nil, err
		}
		if each = append(each, o.Answered.Sub(o.Sent)); i == 0 || o.Sent.Before(began) {
			began = o.Sent
		}
		if o.Answered.After(ended) {
			ended = o.Answered
		}
		want = append(want, question(&authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Version: "v1", Resource: requests[i].Resource}))
		if questions == nil {
			var rules authorizationv1.SelfSubjectRulesReview
			if a, err := answered(o, &rules); err != nil || a != yes {
				part.fail("%s: the rules are %q (%v)", name, a, err)
			}
			cost.Rules, cost.Incomplete = true, rules.Status.Incomplete
			continue
		}
		want = append(want, question(questions[i].attributes()))
		said, _, err := reviewed(o)
		if granted := map[bool]answer{true: yes, false: no}[s.fixture.granted(questions[i])]; err != nil || s.kind != existingCluster && said != granted {
			part.fail("%s: the review of %s says %q, by the grants it is %q (%v)", name, g.Asks[i], said, granted, err)
		}
	}
	cost.Reviews, cost.Took = len(requests), append(cost.Took, milliseconds(ended.Sub(began)))
	if s.kind == existingCluster {
		return each, nil
	}
	cost.Asked = append(cost.Asked, len(v.Asked))
	for _, r := range v.Asked {
		if r.Spec.User == who.Name && r.Spec.ResourceAttributes != nil {
			got = append(got, question(r.Spec.ResourceAttributes))
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		part.fail("%s: the authorizer was asked %q about %s, and has to be asked %q", name, got, who.Name, want)
	}
	return each, nil
}

// String is a cost on one line.
func (c Cost) String() string { return said("cost", c) }

func question(a *authorizationv1.ResourceAttributes) string {
	return strings.Join([]string{a.Verb, scenarios.FullResource(a.Resource, a.Subresource), a.Group, a.Version, a.Namespace, a.Name}, " ")
}

func milliseconds(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond)) / 1e6 }
