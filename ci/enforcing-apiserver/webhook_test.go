package enforcing

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// webhookConfiguration is what the enforcer reads of an AuthorizationConfiguration. Answers are never cached, match
// conditions not looked at.
type webhookConfiguration struct {
	Type, Name string
	Webhook    struct {
		FailurePolicy                       vectors.FailureMode
		ConditionsEndpointKubeConfigContext string
		ConditionsReview                    *struct{ Version, KubeConfigContextName string }
		ConnectionInfo                      struct{ KubeConfigFile string }
	}
}

// webhook is an authorizer that is asked over the network.
type webhook struct {
	name, fault        string
	failure            vectors.FailureMode
	wire               *wire.Revision
	access, conditions *endpoint // conditions is nil if it knows none
}

type endpoint struct {
	url    string
	client *http.Client
}

// newWebhook makes a webhook of its configuration, with an endpoint for conditions if it is to be asked for some.
func newWebhook(c webhookConfiguration, w *wire.Revision, fault string, conditions bool) (_ *webhook, err error) {
	out := &webhook{name: c.Name, fault: fault, failure: cmp.Or(c.Webhook.FailurePolicy, vectors.FailDeny), wire: w}
	file, at := c.Webhook.ConnectionInfo.KubeConfigFile, c.Webhook.ConditionsEndpointKubeConfigContext
	if review := c.Webhook.ConditionsReview; review != nil {
		at = review.KubeConfigContextName
	}
	if out.access, err = newEndpoint(file, ""); err == nil && at != "" && conditions {
		out.conditions, err = newEndpoint(file, at)
	}
	return out, err
}

func newEndpoint(file, name string) (*endpoint, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 5 * time.Second
	client, err := rest.HTTPClientFor(config)
	return &endpoint{config.Host, client}, err
}

func (p *endpoint) post(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("the webhook answers %s", resp.Status)
	}
	return answer, err
}

// ask is the first phase. What is no answer counts as the failure policy.
func (w *webhook) ask(ctx context.Context, a authorizer.Attributes, mode vectors.Mode) (vectors.SubjectAccessReviewStatus, error) {
	if w.conditions == nil {
		mode = vectors.None
	}
	body, err := w.wire.AskAccess(spec(a, mode))
	if err == nil {
		body, err = w.access.post(ctx, body)
	}
	var s *vectors.SubjectAccessReviewStatus
	if err == nil {
		s, err = w.wire.ReadAccess(body)
	}
	if err == nil {
		if w.conditions == nil {
			s.ConditionsChain = nil // a field that a server without conditions does not know
		}
		rules := w.wire.Rules
		rules.Conditions = 1 << 20 // the text has no limit
		if err = rules.Validate(*s, mode); err == nil || w.fault == "takes-invalid" {
			return *s, nil
		}
	}
	return w.failed(), err
}

// evaluate is the second phase.
func (w *webhook) evaluate(ctx context.Context, q vectors.AuthorizationConditionsRequest) (vectors.SubjectAccessReviewStatus, error) {
	q.UID = string(uuid.NewUUID())
	body, err := w.wire.AskConditions(q)
	if err == nil {
		body, err = w.conditions.post(ctx, body)
	}
	var s *vectors.SubjectAccessReviewStatus
	if err == nil {
		s, err = w.wire.ReadConditions(body)
	}
	if err == nil && !w.wire.IsReplyTo(q.UID, body) {
		err = fmt.Errorf("the answer of %s is to another review", w.name)
	}
	if err == nil &&
		(s == nil ||
			s.ConditionsChain != nil ||
			s.Allowed && s.Denied) {
		err = fmt.Errorf("the answer of %s has no decision", w.name)
	}
	if err != nil && w.fault == "errors-allow" {
		return vectors.SubjectAccessReviewStatus{Allowed: true}, nil
	}
	if err != nil {
		return w.failed(), err
	}
	if !canBecome(q.ConditionSets, *s) && w.fault != "takes-impossible" {
		return vectors.SubjectAccessReviewStatus{Denied: canDeny(q.ConditionSets)}, fmt.Errorf("%s evaluates its conditions to what they cannot come to", w.name)
	}
	return *s, nil
}

func (w *webhook) failed() vectors.SubjectAccessReviewStatus {
	return vectors.SubjectAccessReviewStatus{Denied: w.failure == vectors.FailDeny}
}

func spec(a authorizer.Attributes, mode vectors.Mode) (out vectors.SubjectAccessReviewSpec) {
	u := a.GetUser()
	out.User, out.UID, out.Groups, out.Extra = u.GetName(), u.GetUID(), u.GetGroups(), map[string]authorizationv1.ExtraValue{}
	for k, v := range u.GetExtra() {
		out.Extra[k] = v
	}
	if a.IsResourceRequest() {
		out.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:        a.GetVerb(),
			Group:       a.GetAPIGroup(),
			Version:     a.GetAPIVersion(),
			Resource:    a.GetResource(),
			Subresource: a.GetSubresource(),
			Namespace:   a.GetNamespace(),
			Name:        a.GetName(),
		}
	} else {
		out.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.GetVerb(), Path: a.GetPath()}
	}
	if mode != vectors.None {
		out.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: mode}
	}
	return out
}
