package cost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// evaluator has the reference authorizer evaluate conditions, by TLS, as an API server would that knows the KEP.
type evaluator struct {
	server *webhook.Server
	poster *certify.Poster
}

func serveEvaluator(a *reference.Authorizer) (_ *evaluator, err error) {
	e := &evaluator{}
	if e.server, err = webhook.Start(reference.Handler(a), nil); err != nil {
		return nil, err
	}
	raw, err := reference.Kubeconfig(e.server)
	var w *certify.Webhook
	if err == nil {
		w, err = certify.ParseWebhook(raw, reference.ConditionsContext)
	}
	if err == nil {
		e.poster, err = w.Poster()
	}
	if err != nil {
		return nil, errors.Join(err, e.server.Close())
	}
	return e, nil
}

// allows says whether a condition lets a request through.
func (e *evaluator) allows(ctx context.Context, name, text string, data vectors.ConditionData) (bool, error) {
	in := vectors.AuthorizationConditionsReview{Request: &vectors.AuthorizationConditionsRequest{
		ConditionSets: []vectors.ConditionSet{{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{
			{ID: name, Effect: vectors.Allow, Type: reference.TypeCEL, Condition: text},
		}}},
		ConditionData: data,
	}}
	in.APIVersion, in.Kind = vectors.ConditionsVersion, vectors.ConditionsKind
	body, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	code, answer, fault := e.poster.Post(ctx, body)
	if fault != "" || code != http.StatusOK {
		return false, fmt.Errorf("the webhook does not answer: %d %s", code, fault)
	}
	if err := json.Unmarshal(answer, &in); err != nil {
		return false, err
	}
	if in.Response == nil || in.Response.Allowed && in.Response.Denied {
		return false, errors.New("the response is not valid")
	}
	return in.Response.Allowed, nil
}

func (e *evaluator) close() error {
	e.poster.Close()
	return e.server.Close()
}
