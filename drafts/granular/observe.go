package granular

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/verdicts"
)

// parallel is the number of attempts at the same time. Attempts spend most of their time waiting.
const parallel = 8

// trial is an attempt with the scenario that it belongs to.
type trial struct {
	scenario *Scenario
	attempt  *Attempt
}

// trialsOf returns every attempt of scenarios, in order.
func trialsOf(all []*Scenario) (trials []trial) {
	for _, s := range all {
		for _, a := range s.Attempts {
			trials = append(trials, trial{s, a})
		}
	}
	return trials
}

// ID returns the name of a trial, which is unique.
func (t trial) ID() string { return t.scenario.ID + "/" + t.attempt.Name }

// request returns the request that is sent.
func (t trial) request() *Request { return t.scenario.RequestOf(t.attempt) }

// place returns where the object of a trial is that its actor changes.
func (t trial) place() place {
	object := t.scenario.Object
	if object == nil {
		object, _ = t.request().Change.(map[string]any)
	}
	return placeOf(object, t.request().Version, actorOf(t.ID()).namespace)
}

// TrialEvidence is the evidence of a trial.
type TrialEvidence struct {
	// Request is the request that the actor sent. Code and Message are the answer.
	Request verdicts.SentRequest `json:"request"`
	Code    int                  `json:"code"`
	Message string               `json:"message,omitempty"`
	// Decisions are the decisions that the reference reported during the trial.
	Decisions []enforcer.Decision `json:"decisions,omitempty"`
	// Before and After are the stored object before and after the request. Result is the result of a dry run by the
	// admin. It is nil if the dry run was refused.
	Before map[string]any `json:"before,omitempty"`
	After  map[string]any `json:"after,omitempty"`
	Result map[string]any `json:"result,omitempty"`
	// Reviews are the reviews about the actor and granular verbs that the recorder saw before any authorizer.
	Reviews []verdicts.Review `json:"reviews,omitempty"`
	// Invalid says what broke during the trial.
	Invalid string  `json:"invalid,omitempty"`
	Seconds float64 `json:"seconds"`
}

// seenAll is the evidence of all trials.
type seenAll struct {
	// trials has the evidence in the order of the trials. It is nil for a trial that was interrupted.
	trials []*TrialEvidence
	// strays are the reviews of granular verbs about users who are not the actor of a trial.
	strays []verdicts.Review
}

// observe makes trials with an enforcement.
func (b *Bench) observe(ctx context.Context, enforcement Enforcement, trials []trial) (*seenAll, error) {
	g, err := b.open(ctx, enforcement)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	batch, err := b.server.OpenBatch()
	if err != nil {
		return nil, err
	}
	all := &seenAll{trials: make([]*TrialEvidence, len(trials))}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, t := range trials {
		group.Go(func() error {
			if groupCtx.Err() != nil {
				return nil //nolint:nilerr // the trial stays nil, and observe returns why the others ended, or Execute records the interruption
			}
			evidence := b.try(groupCtx, g, t)
			if strings.Contains(evidence.Message, "failed to call webhook") { // the webhook did not answer, so there is nothing to judge
				return fmt.Errorf("%s does not answer as an admission webhook does: %s", enforcement.URL, evidence.Message)
			}
			if groupCtx.Err() == nil {
				all.trials[i] = evidence
			}
			return nil
		})
	}
	err = group.Wait()
	recorded, closeErr := batch.Close(context.WithoutCancel(ctx))
	if err := errors.Join(err, closeErr, b.server.Err()); err != nil {
		return nil, err
	}
	all.addReviews(trials, recorded.Reviews)
	return all, nil
}

// addReviews adds reviews to the trial whose actor they are about. Each trial has its own actor.
func (all *seenAll) addReviews(trials []trial, reviews []verdicts.Review) {
	byUser := map[string]*TrialEvidence{}
	for i, t := range trials {
		evidence := all.trials[i]
		if evidence == nil {
			evidence = &TrialEvidence{} // the reviews of an interrupted trial are dropped
		}
		byUser[actorOf(t.ID()).user] = evidence
	}
	for _, r := range reviews {
		if !isGranular(r) {
			continue
		}
		if evidence := byUser[r.Spec.User]; evidence != nil {
			evidence.Reviews = append(evidence.Reviews, r)
		} else {
			all.strays = append(all.strays, r)
		}
	}
}

// isGranular reports whether a review is one of granular verbs that the recorder saw before any authorizer.
func isGranular(r verdicts.Review) bool {
	a := r.Spec.ResourceAttributes
	return r.Point == verdicts.Front && a != nil && strings.HasPrefix(a.Verb, permissions.GeneralVerb)
}

// try makes one trial. A failure is recorded as part of the evidence.
func (b *Bench) try(ctx context.Context, g *gate, t trial) *TrialEvidence {
	start, evidence := time.Now(), &TrialEvidence{}
	if err := b.attempt(ctx, g, t, evidence); err != nil {
		evidence.Invalid = err.Error()
	}
	evidence.Seconds = time.Since(start).Seconds()
	return evidence
}

func (b *Bench) attempt(ctx context.Context, g *gate, t trial, evidence *TrialEvidence) error {
	p := t.place()
	who, err := b.actor(ctx, t.ID(), p.resource, t.attempt.Grants, t.attempt.Names)
	if err != nil {
		return err
	}
	first := p
	if t.scenario.Object != nil {
		first = placeOf(t.scenario.Object, "", who.namespace)
	}
	if err := b.restore(ctx, first, t.scenario.Object); err != nil {
		return fmt.Errorf("restoring the object: %w", err)
	}
	if evidence.Before, err = p.readStored(ctx, b.admin); err != nil {
		return err
	}
	s := &readyRequest{t.request(), p, evidence.Before}
	if result, err := s.send(ctx, b.admin, true); err == nil { // a refused dry run has no result
		evidence.Result = result.Object
	}
	if err := s.sendAs(ctx, g, who, evidence); err != nil {
		return err
	}
	evidence.After, err = p.readStored(ctx, b.admin)
	return err
}

// sendAs sends the request of an actor through the gate. A refusal is recorded as part of the evidence.
func (s *readyRequest) sendAs(ctx context.Context, g *gate, who actor, evidence *TrialEvidence) error {
	config := g.config(who.token)
	config.Wrap(recordRequest(&evidence.Request))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	g.take(who.user)
	_, failure := s.send(ctx, client, s.DryRun)
	evidence.Code = http.StatusOK
	if failure != nil {
		var status apierrors.APIStatus
		if !errors.As(failure, &status) {
			return failure
		}
		evidence.Code, evidence.Message = int(status.Status().Code), status.Status().Message
	}
	evidence.Decisions = g.take(who.user)
	return nil
}

// recordRequest writes down the requests that are sent.
func recordRequest(sentRequest *verdicts.SentRequest) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		return server.Tapped(rt, func(req *http.Request) {
			replay.Record(sentRequest, req)
			sentRequest.UserAgent = "" // it would contain the name of the program
		})
	}
}
