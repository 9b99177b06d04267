package gate

import (
	"context"
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
)

// VectorEvidence is what was seen of one vector on one API server.
type VectorEvidence struct {
	Vector string `json:"vector"`
	// Starts is whether an API server with the configuration of the vector starts. If it does not, all other fields are
	// empty.
	Starts bool `json:"starts"`
	// Form is the form in which the API server's configuration names the context for conditions.
	Form string `json:"form,omitempty"`
	// Review is the answer to a SubjectAccessReview about the request, and ReviewEvents are the webhooks that were
	// asked for it. Reviews are the answers to the other kinds of reviews.
	Review       *vectors.SubjectAccessReviewStatus            `json:"review,omitempty"`
	ReviewEvents []string                                      `json:"reviewEvents,omitempty"`
	Reviews      map[string]*vectors.SubjectAccessReviewStatus `json:"reviews,omitempty"`
	// Request is the request with all its checks. Alone is the request with a second check that allows it. Behind is
	// the same as Alone, with an authorizer behind the chain that allows the request: it decides if the chain ends
	// without an opinion.
	Request *Sent `json:"request,omitempty"`
	Alone   *Sent `json:"alone,omitempty"`
	Behind  *Sent `json:"behind,omitempty"`
}

// Sent is a request that was sent, with its answer and the events that the webhooks saw, in order.
type Sent struct {
	Code   int      `json:"code"`
	Events []string `json:"events"`
	// Message is the message of the Status that the request was answered with. Annotations are the annotations of its
	// audit event.
	Message     string            `json:"message,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// admitted reports whether the request went through. It may be about an object that is not there.
func (s *Sent) admitted() bool { return s.Code < 300 || s.Code == http.StatusNotFound }

// proceeded reports whether it went past the filter.
func (s *Sent) proceeded() bool { return s.admitted() || slices.Contains(s.Events, admission) }

// player runs vectors on one API server. Each request has its own user and objects.
type player struct {
	*server.Server
	hooks *recorder.Server
	said  *webhooks
	audit *auditLog
	form  string // the form of the configuration that the API server accepts
	n     int
}

const userPrefix = "authzconf:vector:"

// under does something while the webhooks follow a script.
func (p *player) under(s *script, do func() (answer, error)) (answer, error) {
	s.answeredSets = map[string][]vectors.ConditionSet{}
	p.said.follow(s)
	defer p.said.follow(nil)
	return do()
}

func (p *player) play(ctx context.Context, v *vectors.Vector) (observation VectorEvidence, err error) {
	m := v.APIServer
	observation = VectorEvidence{Vector: v.ID, Starts: true, Form: p.form}
	if err = p.review(ctx, m, &observation); err != nil || m.Request.Mode == "None" {
		return observation, err
	}
	send := func(behind vectors.Decision, compound []vectors.Authorizer) (out *Sent) {
		if err == nil {
			out, err = p.send(ctx, m, &script{verb: m.Request.Verb, chain: m.Chain, compound: compound, behind: behind})
		}
		return out
	}
	// If the vector has no second check, a second check is allowed.
	allowed := []vectors.Authorizer{{Name: "a0", FailureMode: vectors.FailDeny, Decision: vectors.Allow}}
	observation.Alone = send(vectors.NoOpinion, allowed)
	if observation.Request = observation.Alone; m.Compound != nil {
		compound := slices.Clone(m.Compound)
		for i, a := range compound { // makes these conditions differ from those of the first check
			compound[i].Conditions = slices.Clone(a.Conditions)
			for j := range a.Conditions {
				compound[i].Conditions[j].Condition.Condition += " of create"
			}
		}
		observation.Request = send(vectors.NoOpinion, compound)
	}
	if err == nil && !observation.Alone.admitted() {
		observation.Behind = send(vectors.Allow, allowed)
	}
	return observation, err
}
