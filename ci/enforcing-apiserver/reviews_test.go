package enforcing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// accessKinds are the kinds of access reviews, by their resources.
var accessKinds = map[string]string{
	"subjectaccessreviews":      "SubjectAccessReview",
	"localsubjectaccessreviews": "LocalSubjectAccessReview",
	"selfsubjectaccessreviews":  "SelfSubjectAccessReview",
}

// reviews answers each access review that asks for conditions, and each AuthorizationConditionsReview, which are no business of
// the storage of 1.37.
func (e *enforcer) reviews(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !e.on || !ok || info.APIGroup != "authorization.k8s.io" || info.Verb != "create" {
			next.ServeHTTP(w, req)
			return
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, 4<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var answer []byte
		switch kind := accessKinds[info.Resource]; {
		case kind != "":
			answer, err = e.answerAccess(req.Context(), kind, body)
		case info.Resource == "authorizationconditionsreviews":
			answer, err = e.answerConditions(req.Context(), body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if answer == nil {
			req.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}

// answerAccess answers a review of a kind, or leaves it to the storage: one that asks for no conditions.
func (e *enforcer) answerAccess(ctx context.Context, kind string, body []byte) ([]byte, error) {
	var review map[string]any
	if json.Unmarshal(body, &review) != nil {
		return nil, nil
	}
	review["kind"] = "SubjectAccessReview"
	if spec, isSpec := review["spec"].(map[string]any); isSpec && kind == "SelfSubjectAccessReview" {
		by, _ := request.UserFrom(ctx)
		spec["user"] = by.GetName()
	}
	asked, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	q, err := e.wire.DecodeAccess(asked)
	if err != nil || q.Mode() == vectors.None || q.ResourceAttributes == nil {
		return nil, nil //nolint:nilerr // it is answered by what Kubernetes has
	}
	r, mode := q.ResourceAttributes, q.Mode()
	if kind == "SelfSubjectAccessReview" && e.fault == "self-without-conditions" {
		mode = vectors.None
	}
	answer, err := e.wire.AnswerAccess(e.status(ctx, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: q.User, UID: q.UID, Groups: q.Groups}, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group,
		APIVersion: cmp.Or(r.Version, "*"), Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}, mode))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, err
	}
	review["kind"] = kind
	return json.Marshal(review)
}

// answerConditions evaluates the sets of an access review by the webhooks that they are named after, until one decides.
func (e *enforcer) answerConditions(ctx context.Context, body []byte) ([]byte, error) {
	if e.fault == "no-conditions-reviews" {
		return nil, nil
	}
	q, err := e.wire.DecodeConditions(body)
	if err != nil {
		return nil, err
	}
	var out vectors.SubjectAccessReviewStatus
	for _, set := range q.ConditionSets {
		if out = (vectors.SubjectAccessReviewStatus{Allowed: set.Allowed, Denied: set.Denied}); !set.Allowed && !set.Denied {
			i := slices.IndexFunc(e.webhooks(), func(w *webhook) bool { return w.name == set.AuthorizerName })
			if i < 0 {
				return nil, fmt.Errorf("there is no authorizer %q", set.AuthorizerName)
			}
			out, _ = e.webhooks()[i].evaluate(
				ctx,
				vectors.AuthorizationConditionsRequest{ConditionSets: []vectors.ConditionSet{set}, ConditionData: q.ConditionData},
			)
		}
		if out.Allowed || out.Denied {
			break
		}
	}
	return e.wire.AnswerConditions(q.UID, out)
}
