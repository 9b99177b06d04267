package today

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Today is the reference authorizer for API servers that do not know conditions (section "Do nothing, force
// implementers to implement all of this out of tree"). It over-grants every request that may become allowed, and
// Admission refuses the request later if its conditions are not met.
type Today struct {
	*reference.Authorizer
	// Careless also over-grants reads, which no admission sees, to show the consequences.
	Careless bool
}

// Review allows every request that can become allowed. About a request that can only become denied it has no opinion:
// after an Allow nobody behind it would be asked, and a Deny would refuse too much.
func (t Today) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	d := t.Snapshot().Decide(spec.SubjectAccessReviewSpec)
	switch {
	case len(d.Conditions) == 0:
		return concrete(d.Concrete, d.Reason, d.Err)
	case d.CanBecomeAllowed() &&
		(t.Careless || isVisible(spec.ResourceAttributes)):
		return concrete(vectors.Allow, "over-granted: admission decides", d.Err)
	}
	return concrete(vectors.NoOpinion, "admission decides", d.Err)
}

// isVisible reports whether admission sees a request: writes and connects. A review does not say which requests
// connect, so they are listed here.
func isVisible(r *authorizationv1.ResourceAttributes) bool {
	if r == nil {
		return false
	}
	if r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io" {
		// Reviews do not reach admission policies, and since 1.37 they do not reach webhooks
		// (ExcludeAdmissionWebhookVirtualResources; pkg/kubeapiserver/admission/exclusion).
		return false
	}
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	case "get":
		return slices.Contains([]string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"}, r.Resource+"/"+r.Subresource)
	}
	return false
}

// Namespaces returns a Namespace by its name, as JSON.
type Namespaces func(name string) ([]byte, error)

// Admission returns the validating webhook that belongs to Today. It evaluates all current policies a second time,
// because nothing in an AdmissionReview refers to the decision that let the request through.
func (t Today) Admission(namespaces Namespaces) http.Handler {
	return webhook.Posted(func(body []byte) ([]byte, error) {
		var in admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
			return nil, errors.New("the body is not an AdmissionReview with a request")
		}
		out := admissionv1.AdmissionReview{
			TypeMeta: in.TypeMeta,
			Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true},
		}
		if err := t.admit(in.Request, namespaces); err != nil {
			out.Response.Allowed = false
			out.Response.Result = &metav1.Status{Message: err.Error(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		}
		return json.Marshal(out)
	})
}

// admit refuses requests that an over-grant should not have let through.
func (t Today) admit(req *admissionv1.AdmissionRequest, namespaces Namespaces) error {
	data := vectors.ConditionData{Operation: string(req.Operation)}
	sent := map[*vectors.Object][]byte{&data.Options: req.Options.Raw, &data.Object: req.Object.Raw, &data.OldObject: req.OldObject.Raw}
	if req.Namespace != "" && namespaces != nil {
		raw, err := namespaces(req.Namespace)
		if err != nil {
			return fmt.Errorf("the namespace %s cannot be read", req.Namespace)
		}
		sent[&data.NamespaceObject] = raw
	}
	for into, raw := range sent {
		var err error
		if *into, err = parseObject(raw); err != nil {
			return errors.New("an object of the AdmissionReview cannot be read")
		}
	}
	known := data.Variables()
	s := t.Snapshot()
	for _, verb := range verbsOf(req) {
		d := s.Decide(reviewOf(req, verb))
		if len(d.Conditions) == 0 {
			continue
		}
		set := vectors.ConditionSet{AuthorizerName: t.Name, FailureMode: vectors.FailDeny, Conditions: d.Conditions}
		effect, reason, err := reference.EvaluateSet(
			set,
			func(c vectors.Condition) (bool, error) { return reference.Holds(c.Condition, known) },
		)
		switch {
		case effect == vectors.Deny, effect == vectors.NoOpinion && d.CanBecomeAllowed():
			return errors.Join(fmt.Errorf("%s: %s", t.Name, reason), err)
		}
	}
	return nil
}

// verbsOf returns the verbs that may belong to an operation: an AdmissionReview does not have the verb. A PATCH is an
// UPDATE with UpdateOptions (pkg/endpoints/handlers/patch.go, patchToUpdateOptions), and a delete of one object looks
// like a delete of all objects. A request of a user with conditions on either verb must meet the conditions of both.
func verbsOf(req *admissionv1.AdmissionRequest) []string {
	switch req.Operation {
	case admissionv1.Create:
		return []string{"create"}
	case admissionv1.Update:
		return []string{"update", "patch"}
	case admissionv1.Delete:
		return []string{"delete", "deletecollection"}
	}
	return []string{"create", "get", "update", "patch", "delete"} // CONNECT, by the method
}

// reviewOf returns the access review that belongs to an admission review.
func reviewOf(req *admissionv1.AdmissionRequest, verb string) authorizationv1.SubjectAccessReviewSpec {
	gvr := req.Resource
	if req.RequestResource != nil {
		gvr = *req.RequestResource
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Subresource: req.SubResource,
			Namespace: req.Namespace, Name: req.Name,
		},
	}
	if len(req.UserInfo.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range req.UserInfo.Extra {
			spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	return spec
}

// parseObject reads a JSON object. No text and null are no object.
func parseObject(raw []byte) (o vectors.Object, err error) {
	if len(raw) > 0 {
		err = o.UnmarshalJSON(raw)
	}
	return o, err
}

// admitPath is the path at which Admission answers.
const admitPath = "/admit"

// concrete is the answer of a decision without conditions.
func concrete(d vectors.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	out := vectors.SubjectAccessReviewStatus{Allowed: d == vectors.Allow, Denied: d == vectors.Deny, Reason: reason}
	if err != nil {
		out.EvaluationError = err.Error()
	}
	return out
}
