package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// The kinds of access reviews. The last two are asked about the same request as the first.
const (
	subjectReview = "SubjectAccessReview"
	localReview   = "LocalSubjectAccessReview"
	selfReview    = "SelfSubjectAccessReview"
)

// review asks the API server about the request of a vector, by reviews of all kinds.
func (p *player) review(ctx context.Context, m *vectors.APIServer, observation *VectorEvidence) (err error) {
	q, spec := sentFor(m), vectors.SubjectAccessReviewSpec{}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:        q.Verb,
		Group:       q.APIGroup,
		Version:     q.APIVersion,
		Resource:    q.Resource,
		Subresource: q.Subresource,
		Namespace:   "default",
	}
	if q.Mode != "None" {
		spec.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Mode(q.Mode)}
	}
	if observation.Review, observation.ReviewEvents, err = p.reviewAs(ctx, subjectReview, spec, m.Chain); err != nil {
		return err
	}
	observation.Reviews = map[string]*vectors.SubjectAccessReviewStatus{}
	for _, kind := range []string{localReview, selfReview} {
		if observation.Reviews[kind], _, err = p.reviewAs(ctx, kind, spec, m.Chain); err != nil {
			return err
		}
	}
	return nil
}

// reviewAs posts a review of a kind about a request, and returns its status and the webhooks that were asked.
func (p *player) reviewAs(
	ctx context.Context,
	kind string,
	spec vectors.SubjectAccessReviewSpec,
	chain []vectors.Authorizer,
) (*vectors.SubjectAccessReviewStatus, []string, error) {
	s := &script{verb: spec.ResourceAttributes.Verb, chain: chain}
	status, err := p.reviewUnder(ctx, kind, spec, s)
	return status, s.events, err
}

// reviewUnder posts a review of a kind under a script and returns its status. The review is about a new user, or posted
// by that user.
func (p *player) reviewUnder(
	ctx context.Context,
	kind string,
	spec vectors.SubjectAccessReviewSpec,
	s *script,
) (*vectors.SubjectAccessReviewStatus, error) {
	p.n++
	s.user = fmt.Sprintf("%s%d", userPrefix, p.n)
	spec.User = s.user
	authorizer, body, err := p.askAccess(kind, spec)
	if err != nil {
		return nil, err
	}
	path := "/apis/authorization.k8s.io/v1/" + strings.ToLower(kind) + "s"
	if kind == localReview {
		path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
	}
	a, err := p.under(s, func() (answer, error) { return p.exchange(ctx, authorizer, http.MethodPost, path, "", body) })
	if err == nil && a.code != http.StatusCreated {
		err = fmt.Errorf("a %s is answered %d: %.200s", kind, a.code, a.body)
	}
	if err != nil {
		return nil, err
	}
	return p.readAccess(kind, a.body)
}

// askAccess returns the user who posts a review of a kind, and the body of the review. The user is empty for the admin.
// A revision can write only a SubjectAccessReview; the other kinds differ from it in few fields.
func (p *player) askAccess(kind string, spec vectors.SubjectAccessReviewSpec) (authorizer string, body map[string]any, err error) {
	raw, err := p.said.wire.AskAccess(spec)
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err != nil {
		return "", nil, err
	}
	body["kind"] = kind
	switch kind {
	case localReview:
		body["metadata"] = map[string]any{"namespace": "default"}
	case selfReview:
		authorizer = spec.User
		spec, _ := body["spec"].(map[string]any)
		maps.DeleteFunc(spec, func(field string, _ any) bool {
			return slices.Contains([]string{"user", "groups", "uid", "extra"}, field)
		})
	}
	return authorizer, body, nil
}

// readAccess reads the status of a review of a kind.
func (p *player) readAccess(kind string, raw []byte) (*vectors.SubjectAccessReviewStatus, error) {
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	if body["kind"] != kind {
		return nil, fmt.Errorf("a %s is answered with a %v", kind, body["kind"])
	}
	body["kind"] = subjectReview
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return p.said.wire.ReadAccess(raw)
}
