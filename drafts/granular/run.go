package granular

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// parallel is how many attempts are under way at once: they wait more than they work.
const parallel = 8

// Result is what became of an attempt.
type Result struct {
	Scenario string `json:"scenario"`
	Section  string `json:"section"`
	Attempt  string `json:"attempt"`
	// Problems are the differences between what was expected and what was seen; none is a pass.
	Problems []string `json:"problems,omitempty"`
	// Invalid says that it could not be judged, NotApplicable that what enforces can make nothing of it.
	Invalid       string           `json:"invalid,omitempty"`
	NotApplicable string           `json:"notApplicable,omitempty"`
	Checks        []enforcer.Check `json:"checks"`
	Fields        int              `json:"fields"`
	Took          time.Duration    `json:"took"`
}

// Piece is the name of the evidence in a report.
const Piece = "attempts"

// Evidence is what was seen of attempts.
type Evidence struct {
	Target       reports.Found    `json:"target"`
	Descriptions *permissions.Set `json:"descriptions"` // those that the attempts were made by
	Took         time.Duration    `json:"took"`         // how long all of them took
	Attempts     []*Attempted     `json:"attempts"`     // in the order of the scenarios
	// Reviews are what the recorder has seen of granular verbs, before any authorizer.
	Reviews []verdicts.Review `json:"reviews"`
}

// Attempted is what was seen of an attempt.
type Attempted struct {
	Scenario  string               `json:"scenario"`
	Attempt   string               `json:"attempt"`
	Request   verdicts.SentRequest `json:"request"` // what the actor sent, Code and Message what it was told
	Code      int                  `json:"code"`
	Message   string               `json:"message,omitempty"`
	Decisions []enforcer.Decision  `json:"decisions"` // what the reference says that it has decided meanwhile
	// Before and After are the stored object, Result what a dry run by the admin made of it; nil where that was refused.
	Before map[string]any `json:"before,omitempty"`
	After  map[string]any `json:"after,omitempty"`
	Result map[string]any `json:"result,omitempty"`
	// Invalid says what broke.
	Invalid string        `json:"invalid,omitempty"`
	Took    time.Duration `json:"took"`
}

// Observe makes every attempt of scenarios that is applicable to what enforces.
func (b *Bench) Observe(ctx context.Context, by By, scenarios []*Scenario) (*Evidence, error) {
	g, err := b.open(ctx, by)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	batch, err := b.target.OpenBatch()
	if err != nil {
		return nil, err
	}
	e, begun := &Evidence{Target: b.target.Found(), Descriptions: by.Descriptions}, time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range scenarios {
		for _, a := range s.Attempts {
			if !a.applies(by.Kind) {
				continue
			}
			one := &Attempted{Scenario: s.ID, Attempt: a.Name}
			e.Attempts = append(e.Attempts, one)
			group.Go(func() error {
				start := time.Now()
				if err := b.attempt(groupCtx, g, s, a, one); err != nil {
					one.Invalid = err.Error()
				}
				one.Took = time.Since(start)
				if strings.Contains(one.Message, "failed to call webhook") { // a verdict would be one on what did not answer
					return fmt.Errorf("%s does not answer as an admission webhook does: %s", by.URL, one.Message)
				}
				return groupCtx.Err()
			})
		}
	}
	err = group.Wait()
	recorded, closeErr := batch.Close(ctx)
	if err := errors.Join(err, closeErr, b.target.Err()); err != nil {
		return nil, err
	}
	e.Took, e.Reviews = time.Since(begun), slices.DeleteFunc(recorded.Reviews, func(r verdicts.Review) bool { return !granular(r) })
	return e, nil
}

// granular says whether a review is one that the recorder has seen of granular verbs.
func granular(r verdicts.Review) bool {
	a := r.Spec.ResourceAttributes
	return r.Point == verdicts.Front && a != nil && strings.HasPrefix(a.Verb, permissions.GeneralVerb)
}

// Judge makes the report of scenarios on a target from what was seen.
func Judge(scenarios []*Scenario, e *Evidence, on server.Options, by By) (*Report, error) {
	if err := server.Hold(e.Target, on.Wanted()); err != nil {
		return nil, err
	}
	results, err := judgeAll(by.Kind, scenarios, e)
	if err != nil {
		return nil, err
	}
	r := &Report{Enforcer: cmp.Or(by.URL, by.Kind), Notice: noImplementation + notices[by.Kind], Kubernetes: strings.TrimPrefix(e.Target.Witness.GitVersion, "v"), Took: fmt.Sprintf("%.1f s", e.Took.Seconds()), Results: results}
	r.Conclude(slices.ContainsFunc(results, func(r *Result) bool { return len(r.Problems) > 0 }),
		slices.ContainsFunc(results, func(r *Result) bool { return r.Invalid != "" }))
	return r, nil
}

// judgeAll judges every attempt that could be made by itself and by what the recorder has seen of granular verbs. An
// error says that the evidence is not of these scenarios.
func judgeAll(kind string, all []*Scenario, e *Evidence) (results []*Result, err error) {
	asked := map[string][]*authorizationv1.SubjectAccessReviewSpec{} // by user: each attempt has one of its own
	for _, r := range e.Reviews {
		if r.APIVersion != authorizationv1.SchemeGroupVersion.String() {
			return nil, fmt.Errorf("there is evidence of a review of %q", r.APIVersion)
		}
		if granular(r) {
			asked[r.Spec.User] = append(asked[r.Spec.User], &r.Spec)
		}
	}
	left := e.Attempts
	for _, s := range all {
		for _, a := range s.Attempts {
			r := &Result{Scenario: s.ID, Section: s.Section, Attempt: a.Name, Fields: -1}
			results = append(results, r)
			if !a.applies(kind) {
				r.NotApplicable = "without the ordinary permission the API server refuses before admission"
				continue
			}
			if len(left) == 0 || left[0].Scenario != s.ID || left[0].Attempt != a.Name {
				return nil, fmt.Errorf("there is no evidence of %s %s where it has to be", s.ID, a.Name)
			}
			one := left[0]
			left = left[1:]
			who := actorOf(s.ID + "/" + a.Name).user
			questions := asked[who]
			delete(asked, who)
			if r.Took, r.Invalid = one.Took, one.Invalid; r.Invalid != "" {
				continue
			}
			o, err := one.observation(e.Descriptions, s, a)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", s.ID, a.Name, err)
			}
			others := o.ask(questions)
			wanted := o.decided(kind, a)
			if o.decision != nil {
				r.Checks, r.Fields = o.decision.Checks, o.decision.Fields
			}
			r.Problems = append(judge(kind, wanted, s.Wanted(a), o), others...)
		}
	}
	for who := range asked {
		return nil, fmt.Errorf("there is evidence of reviews about %s, who makes no attempt", who)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("there is evidence of %s %s, which is not asked for", left[0].Scenario, left[0].Attempt)
	}
	return results, nil
}

type observation struct {
	*Attempted
	actor actor
	place
	decision *enforcer.Decision
	asked    []*authorizationv1.ResourceAttributes // what the recorder has seen of granular verbs
	// chains is what the model predicts; predicted says whether it could.
	chains    []permissions.Chain
	predicted bool
}

// ask takes what the recorder has seen, and says of whom it was asked but of who sent the request.
func (o *observation) ask(questions []*authorizationv1.SubjectAccessReviewSpec) (others []string) {
	sent := *o.Request.Credential
	sent.Groups = append(slices.Clone(sent.Groups), user.AllAuthenticated)
	for _, q := range questions {
		if who := scenarios.UserOf(q.User, q.UID, q.Groups, q.Extra); who.Render() != sent.Render() {
			others = append(others, fmt.Sprintf("the authorizer was asked about %s, and the request was of %s", who.Render(), sent.Render()))
		}
		o.asked = append(o.asked, q.ResourceAttributes)
	}
	return others
}

// about is whose attempt it is, and at which object.
func (s *Scenario) about(a *Attempt) *observation {
	object, who := s.Object, actorOf(s.ID+"/"+a.Name)
	if object == nil {
		object, _ = s.Wanted(a).Change.(map[string]any)
	}
	return &observation{actor: who, place: placeOf(object, s.Wanted(a).Version, who.namespace)}
}

func (b *Bench) attempt(ctx context.Context, g *gate, s *Scenario, a *Attempt, one *Attempted) (err error) {
	o := s.about(a)
	if o.actor, err = b.actor(ctx, s.ID+"/"+a.Name, o.resource, a.Grants, a.Names); err != nil {
		return err
	}
	first := o.place
	if s.Object != nil {
		first = placeOf(s.Object, "", o.actor.namespace)
	}
	if err := b.restore(ctx, first, s.Object); err != nil {
		return fmt.Errorf("restoring the object: %w", err)
	}
	return b.observe(ctx, g, s.Wanted(a), o, one)
}

func (b *Bench) observe(ctx context.Context, g *gate, wanted *Request, o *observation, one *Attempted) (err error) {
	if one.Before, err = o.stored(ctx, b.admin); err != nil {
		return err
	}
	s := &sending{wanted, o.place, one.Before}
	if result, err := s.send(ctx, b.admin, true); err == nil { // what the server refuses changes nothing
		one.Result = result.Object
	}
	config := g.config(o.actor.token)
	config.Wrap(recording(&one.Request))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	g.take(o.actor.user)
	_, failure := s.send(ctx, client, wanted.DryRun)
	one.Code = http.StatusOK
	if failure != nil {
		var status apierrors.APIStatus
		if !errors.As(failure, &status) {
			return failure
		}
		one.Code, one.Message = int(status.Status().Code), status.Status().Message
	}
	one.Decisions = g.take(o.actor.user)
	one.After, err = o.stored(ctx, b.admin)
	return err
}

func recording(shown *verdicts.SentRequest) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		return server.Tapped(rt, func(sent *http.Request) {
			replay.Record(shown, sent)
			shown.UserAgent = "" // that of client-go, with the name of the program
		})
	}
}

// observation is what was seen, with what follows from it. An error says that another request was sent.
func (one *Attempted) observation(set *permissions.Set, s *Scenario, a *Attempt) (*observation, error) {
	o := s.about(a)
	o.Attempted = one
	if d := one.Decisions; len(d) == 1 && d[0].User == o.actor.user {
		o.decision = &d[0]
	}
	sending := &sending{s.Wanted(a), o.place, one.Before}
	want, err := sending.rendered()
	if err != nil {
		return nil, err
	}
	groups := serviceaccount.MakeGroupNames(o.actor.namespace)
	if c := one.Request.Credential; c == nil || c.Name != o.actor.user || !slices.Equal(c.Groups, groups) {
		return nil, fmt.Errorf("the request was not sent by %s in the groups %q", o.actor.user, groups)
	}
	want.Credential = one.Request.Credential
	if why := reports.Change(one.Request, want); why != "" {
		return nil, fmt.Errorf("another request was sent: %s", why)
	}
	for what, object := range map[string]map[string]any{"before": one.Before, "after": one.After, "result": one.Result} {
		at := place{o.resource, (&unstructured.Unstructured{Object: object}).GetNamespace(), (&unstructured.Unstructured{Object: object}).GetName()}
		if object != nil && at != o.place {
			return nil, fmt.Errorf("the object of %q is %q in the namespace %q, and the attempt was at %q in %q", what, at.name, at.namespace, o.name, o.namespace)
		}
	}
	o.predict(set, sending)
	return o, nil
}

func (s *sending) rendered() (shown verdicts.SentRequest, err error) {
	nowhere := recording(&shown)(http.NewFileTransport(http.FS(embed.FS{})))
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://localhost"}, &http.Client{Transport: nowhere})
	if err == nil {
		_, _ = s.send(context.Background(), client, s.DryRun)
	}
	return shown, err
}

// predict lets the model say which permissions the request needs, from what the dry run has made of the object.
func (o *observation) predict(set *permissions.Set, s *sending) {
	if o.Result == nil {
		return
	}
	root := set.Tree(o.resource.Group, o.resource.Version, o.resource.Resource)
	o.predicted = true
	if o.Before != nil {
		o.chains = model.Update(root, o.Before, o.Result)
		return
	}
	sent, err := s.body()
	if err != nil || sent == nil {
		sent = &unstructured.Unstructured{}
	}
	o.chains = model.Create(root, sent.Object, o.Result)
}
