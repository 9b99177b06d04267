package granular

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/scenarios"
)

// observation is what was seen of a trial, with the conclusions from it.
type observation struct {
	*TrialEvidence
	place
	actor actor
	// decision is the decision about the request. It is nil if it is unknown, or if there are several.
	decision *enforcer.Decision
	// reviewed are the questions that the recorder saw.
	reviewed []*authorizationv1.ResourceAttributes
	// chains are the permissions that the model predicts. They are unknown unless predicted is set.
	chains    []permissions.Chain
	predicted bool
}

// newObservation draws the conclusions from what was seen of a trial.
func newObservation(enforcement Enforcement, t trial, evidence *TrialEvidence) *observation {
	o := &observation{TrialEvidence: evidence, place: t.place(), actor: actorOf(t.ID())}
	for _, r := range evidence.Reviews {
		o.reviewed = append(o.reviewed, r.Spec.ResourceAttributes)
	}
	if enforces(enforcement.Kind) {
		o.predict(enforcement.Descriptions, &readyRequest{t.request(), o.place, evidence.Before})
	}
	if enforcement.Kind == Reference {
		o.decision = o.ownDecision()
	} else {
		o.decision = o.inferDecision(t.attempt)
	}
	return o
}

// ownDecision returns the decision about the actor that the reference reports.
func (o *observation) ownDecision() *enforcer.Decision {
	if d := o.Decisions; len(d) == 1 && d[0].User == o.actor.user {
		return &d[0]
	}
	return nil
}

// inferDecision returns the decision of an enforcer that reports none. It follows from the questions to the API
// server's authorizer. The ordinary permission is the first check of the scenario.
func (o *observation) inferDecision(a *Attempt) *enforcer.Decision {
	answer, verb, _ := strings.Cut(a.Checks[0], " ")
	first := enforcer.Check{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: verb}, Allowed: answer == "yes"}
	d := &enforcer.Decision{User: o.actor.user, Verb: verb, Checks: []enforcer.Check{first}, Fields: -1}
	for _, q := range o.reviewed {
		check := enforcer.Check{ResourceAttributes: *q, Allowed: a.isGranted(q.Verb)}
		if check.Verb == permissions.GeneralVerb {
			d.Granular = check.Allowed
		}
		d.Checks = append(d.Checks, check)
	}
	return d
}

// predict asks the model which permissions the request needs, by the result of the dry run.
func (o *observation) predict(set *permissions.Set, s *readyRequest) {
	if o.Result == nil {
		return
	}
	root := set.Tree(o.resource.Group, o.resource.Version, o.resource.Resource)
	o.predicted = true
	if o.Before != nil {
		o.chains = model.Update(root, o.Before, o.Result)
		return
	}
	object, err := s.body()
	if err != nil || object == nil {
		object = &unstructured.Unstructured{}
	}
	o.chains = model.Create(root, object.Object, o.Result)
}

// compareUsers returns where the recorder was asked about another user than the one who sent the request.
func (o *observation) compareUsers() (problems []string) {
	if len(o.Reviews) == 0 {
		return nil
	}
	sender := *o.Request.Credential
	sender.Groups = append(slices.Clone(sender.Groups), user.AllAuthenticated)
	for _, r := range o.Reviews {
		who := scenarios.UserOf(r.Spec.User, r.Spec.UID, r.Spec.Groups, r.Spec.Extra)
		if who.Render() != sender.Render() {
			problems = append(problems,
				fmt.Sprintf("the authorizer was asked about %s, and the request was of %s", who.Render(), sender.Render()),
			)
		}
	}
	return problems
}
