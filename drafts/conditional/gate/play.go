package gate

import (
	"context"
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
)

// Seen is what was seen of one vector on one API server.
type Seen struct {
	Vector string `json:"vector"`
	// Starts is whether an API server so configured starts; nothing else is there if it does not.
	Starts bool `json:"starts"`
	// Form is how the API server's configuration names the context for conditions.
	Form string `json:"form,omitempty"`
	// Review is what a SubjectAccessReview about the request shows, and ReviewEvents who was asked for it. Reviews are
	// what the other kinds show.
	Review       *vectors.SubjectAccessReviewStatus            `json:"review,omitempty"`
	ReviewEvents []string                                      `json:"reviewEvents,omitempty"`
	Reviews      map[string]*vectors.SubjectAccessReviewStatus `json:"reviews,omitempty"`
	// Request is the request with all its checks, Alone with a second check that allows it, Behind moreover with an
	// authorizer that allows it behind the chain: a chain that ends with no opinion leaves the decision to that one.
	Request *Sent `json:"request,omitempty"`
	Alone   *Sent `json:"alone,omitempty"`
	Behind  *Sent `json:"behind,omitempty"`
}

// Sent is a request that was sent, and what the webhooks saw of it, in order.
type Sent struct {
	Code   int      `json:"code"`
	Events []string `json:"events"`
	// Message is that of the Status that it was answered with, and Annotations are those of its audit event.
	Message     string            `json:"message,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// admitted reports whether the request went through. It may be about an object that is not there.
func (s *Sent) admitted() bool { return s.Code < 300 || s.Code == http.StatusNotFound }

// proceeded reports whether it went past the filter.
func (s *Sent) proceeded() bool { return s.admitted() || slices.Contains(s.Events, admission) }

// player plays vectors on one API server. Each request has a user and objects of its own.
type player struct {
	*server.Server
	hooks *recorder.Server
	said  *webhooks
	audit *auditLog
	form  string // of the configuration that the API server takes
	n     int
}

const userPrefix = "authzconf:vector:"

// under does something while the webhooks follow a script.
func (p *player) under(s *script, do func() (answer, error)) (answer, error) {
	s.answered = map[string][]vectors.ConditionSet{}
	p.said.follow(s)
	defer p.said.follow(nil)
	return do()
}

func (p *player) play(ctx context.Context, v *vectors.Vector) (seen Seen, err error) {
	m := v.APIServer
	seen = Seen{Vector: v.ID, Starts: true, Form: p.form}
	if err = p.review(ctx, m, &seen); err != nil || m.Request.Mode == "None" {
		return seen, err
	}
	send := func(behind vectors.Decision, compound []vectors.Authorizer) (out *Sent) {
		if err == nil {
			out, err = p.send(ctx, m, &script{verb: m.Request.Verb, chain: m.Chain, compound: compound, behind: behind})
		}
		return out
	}
	// Whose second check no vector is about, it is allowed.
	allowed := []vectors.Authorizer{{Name: "a0", FailureMode: vectors.FailDeny, Decision: vectors.Allow}}
	seen.Alone = send(vectors.NoOpinion, allowed)
	if seen.Request = seen.Alone; m.Compound != nil {
		compound := slices.Clone(m.Compound)
		for i, a := range compound { // whose conditions nobody could tell from those of the first check
			compound[i].Conditions = slices.Clone(a.Conditions)
			for j := range a.Conditions {
				compound[i].Conditions[j].Condition.Condition += " of create"
			}
		}
		seen.Request = send(vectors.NoOpinion, compound)
	}
	if err == nil && !seen.Alone.admitted() {
		seen.Behind = send(vectors.Allow, allowed)
	}
	return seen, err
}
