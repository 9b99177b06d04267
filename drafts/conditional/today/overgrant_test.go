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

// Today is how the policies are enforced by API servers that know no conditions (section "Do nothing, force
// implementers to implement all of this out of tree"): what may become allowed is over-granted, and Admission
// takes it back.
type Today struct {
	*reference.Authorizer
	// Careless has reads over-granted too, which no admission sees: it shows what comes of that.
	Careless bool
}

// Review allows what can become allowed. What can only become denied has no opinion: an Allow would ask nobody
// behind, a Deny would refuse too much.
func (t Today) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	d := t.Snapshot().Decide(spec.SubjectAccessReviewSpec)
	switch {
	case len(d.Conditions) == 0:
		return concrete(d.Concrete, d.Reason, d.Err)
	case d.CanBecomeAllowed() && (t.Careless || isVisible(spec.ResourceAttributes)):
		return concrete(vectors.Allow, "over-granted: admission decides", d.Err)
	}
	return concrete(vectors.NoOpinion, "admission decides", d.Err)
}

// isVisible reports whether admission sees a request: writes, and what connects. Who asks is not told which request
// connects, so these are listed.
func isVisible(r *authorizationv1.ResourceAttributes) bool {
	if r == nil {
		return false
	}
	if r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io" {
		// pkg/kubeapiserver/admission/exclusion: reviews are kept from admission policies, and since 1.37 from
		// webhooks (ExcludeAdmissionWebhookVirtualResources).
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

// Namespaces finds a Namespace by name, as JSON.
type Namespaces func(name string) ([]byte, error)

// Admission is the validating webhook that belongs to Today. It evaluates all policies a second time, by those of
// the moment, for nothing ties an AdmissionReview to the decision that let the request through.
func (t Today) Admission(namespaces Namespaces) http.Handler {
	return webhook.Posted(func(body []byte) ([]byte, error) {
		var in admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
			return nil, errors.New("the body is not an AdmissionReview with a request")
		}
		out := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}}
		if err := t.admit(in.Request, namespaces); err != nil {
			out.Response.Allowed = false
			out.Response.Result = &metav1.Status{Message: err.Error(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		}
		return json.Marshal(out)
	})
}

// admit refuses what an over-grant may have let through.
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
		effect, reason, err := reference.EvaluateSet(set, func(c vectors.Condition) (bool, error) { return reference.Holds(c.Condition, known) })
		switch {
		case effect == vectors.Deny, effect == vectors.NoOpinion && d.CanBecomeAllowed():
			return errors.Join(fmt.Errorf("%s: %s", t.Name, reason), err)
		}
	}
	return nil
}

// verbsOf are the verbs that may have led to an operation: AdmissionReview does not tell. A PATCH is an UPDATE with
// UpdateOptions (pkg/endpoints/handlers/patch.go, patchToUpdateOptions), and the delete of one object is no other than that of
// all. Whoever may do either on conditions has to meet those of both.
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

// parseObject reads a JSON object; nothing and null are none.
func parseObject(raw []byte) (o vectors.Object, err error) {
	if len(raw) > 0 {
		err = o.UnmarshalJSON(raw)
	}
	return o, err
}

// admitPath is where Admission answers.
const admitPath = "/admit"

// concrete is the answer of a decision without conditions.
func concrete(d vectors.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	out := vectors.SubjectAccessReviewStatus{Allowed: d == vectors.Allow, Denied: d == vectors.Deny, Reason: reason}
	if err != nil {
		out.EvaluationError = err.Error()
	}
	return out
}
