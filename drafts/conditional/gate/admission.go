package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

const (
	registrationPath = "/apis/admissionregistration.k8s.io/v1/"
	registered       = "authzconf.dev" // the name of everything that is registered
	// policyAnnotation is the annotation that the ValidatingAdmissionPolicy adds to the audit event of a request that
	// it has evaluated.
	policyAnnotation = registered + "/evaluated"
)

// register registers a mutating webhook, a validating webhook and a ValidatingAdmissionPolicy for the users of vectors,
// and waits until the API server uses them.
func (p *player) register(ctx context.Context) error {
	condition := []any{map[string]any{"name": "users", "expression": fmt.Sprintf("request.userInfo.username.startsWith('%s')", userPrefix)}}
	rule := map[string]any{
		"apiGroups":   []string{"*"},
		"apiVersions": []string{"*"},
		"resources":   []string{"*/*"},
		"operations":  []string{"*"},
	}
	webhook := func(path string) map[string]any {
		return map[string]any{"webhooks": []any{map[string]any{
			"name":                    "vectors." + registered,
			"admissionReviewVersions": []string{"v1"},
			"sideEffects":             "None",
			"failurePolicy":           "Fail",
			"timeoutSeconds":          5,
			"clientConfig":            map[string]any{"url": p.hooks.URL + path, "caBundle": base64.StdEncoding.EncodeToString(p.hooks.CA)},
			"rules":                   []any{rule},
			"matchConditions":         condition,
		}}}
	}
	policy := map[string]any{"spec": map[string]any{
		"failurePolicy": "Fail", "matchConstraints": map[string]any{"resourceRules": []any{rule}}, "matchConditions": condition,
		"auditAnnotations": []any{map[string]any{"key": "evaluated", "valueExpression": "'true'"}},
	}}
	binding := map[string]any{"spec": map[string]any{"policyName": registered, "validationActions": []string{"Audit"}}}
	for _, one := range []struct {
		kind, resource string
		object         map[string]any
	}{
		{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", webhook("/mutate/")},
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", webhook("/validate/")},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", policy},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", binding},
	} {
		one.object["apiVersion"], one.object["kind"], one.object["metadata"] = "admissionregistration.k8s.io/v1", one.kind, map[string]any{
			"name": registered,
		}
		if err := p.make(ctx, registrationPath+one.resource, one.object); err != nil {
			return err
		}
	}
	return p.waitForAdmission(ctx)
}

// waitForAdmission sends requests until both webhooks and the policy see them.
func (p *player) waitForAdmission(ctx context.Context) error {
	probe := &vectors.APIServer{Request: vectors.Request{Verb: "create", APIVersion: "v1", Resource: "configmaps"}}
	var last *Sent
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (_ bool, err error) {
		last, err = p.send(ctx, probe, &script{verb: "create", behind: vectors.Allow})
		if err != nil {
			return false, err
		}
		isCalled := slices.Contains(last.Events, admission) && slices.Contains(last.Events, validation)
		return isCalled && last.Annotations[policyAnnotation] != "", nil
	})
	if err != nil {
		err = fmt.Errorf("waiting for the admission webhooks and the policy: %w (last seen: %+v)", err, last)
	}
	return err
}

// mutate and validate are the two admission webhooks. They let every request pass unchanged, and record that they were
// called.
func (w *webhooks) mutate(s *script, _ string, body []byte) ([]byte, error) {
	return admit(s, admission, body)
}

func (w *webhooks) validate(s *script, _ string, body []byte) ([]byte, error) {
	return admit(s, validation, body)
}

func admit(s *script, event string, body []byte) ([]byte, error) {
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		return nil, errors.New("the body is not an AdmissionReview with a request")
	}
	if in.Request.UserInfo.Username == s.user {
		if !slices.Contains(s.events, event) {
			s.events = append(s.events, event)
		}
		if s.isExposed(string(body)) {
			s.events = append(s.events, event+exposed)
		}
	}
	return json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}})
}

// isExposed reports whether a text reveals anything about the conditions that were answered: the name of an authorizer,
// or the annotation that says that there are conditions.
func (s *script) isExposed(text string) bool {
	if strings.Contains(text, conditionalAnnotation) {
		return true
	}
	for i, a := range slices.Concat(s.chain, s.compound) {
		if strings.Contains(text, `"`+placeOf(i, a.FailureMode)+`"`) {
			return true
		}
		for _, c := range a.Conditions {
			isText := len(c.Condition.Condition) > 8 && strings.Contains(text, c.Condition.Condition)
			isDescription := len(c.Description) > 8 && strings.Contains(text, c.Description)
			if isText || isDescription {
				return true
			}
		}
	}
	return false
}

// isCalled reports whether an admission plugin that validates, and is not the enforcer, was asked about a request.
func (s *Sent) isCalled() bool {
	return slices.Contains(s.Events, validation) || s.Annotations[policyAnnotation] != ""
}

// isForbidden reports whether admission has refused a request.
func (s *Sent) isForbidden() bool {
	return s.Code == http.StatusForbidden && slices.Contains(s.Events, admission)
}
