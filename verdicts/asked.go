package verdicts

import (
	"encoding/json"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// question is the access review that the request asks for, if it is one: about whom it says, or about who it is sent as.
func (v *stepJudge) question() (spec authorizationv1.SubjectAccessReviewSpec, ok bool) {
	if spec, ok = scenarios.Asked(v.o.Request.Body); !ok || v.o.Response.Code != codeCreated {
		return spec, false
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		u := v.asker()
		if v.event != nil && v.event.ImpersonatedUser != nil {
			i := v.event.ImpersonatedUser
			u = scenarios.UserOf(i.Username, i.UID, i.Groups, i.Extra)
		}
		spec.User, spec.UID, spec.Groups, spec.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
		for key, values := range u.Extra {
			spec.Extra[key] = values
		}
	}
	return spec, true
}

// passedOn judges an access review that was asked for: the authorizers are asked exactly that at last, and the answer is what
// they decided.
func (v *stepJudge) passedOn() {
	spec, ok := v.question()
	if !ok || !v.has(scenarios.Reviews) || v.event == nil || slices.Contains(spec.Groups, user.SystemPrivilegedGroup) {
		return
	}
	says := func(spec authorizationv1.SubjectAccessReviewSpec) string {
		r := Describe(Decided{Spec: spec})
		return fmt.Sprintf("%s %s of version %q, fields %s, labels %s", reviewUser(spec).Render(), r.Verb+" "+RenderAbout(r), r.Version, r.FieldSelector, r.LabelSelector)
	}
	var told authorizationv1.SubjectAccessReview
	if len(v.decided) == 0 || json.Unmarshal([]byte(v.o.Response.Body), &told) != nil {
		v.compare("reviews (asked for)", says(spec), noReason)
		return
	}
	last := v.decided[len(v.decided)-1]
	v.compare("reviews (asked for)", says(spec), says(last.Spec))
	v.compare("status of the answer", decides(last.Decision == scenarios.Allow, last.Decision == scenarios.Deny), decides(told.Status.Allowed, told.Status.Denied))
}

func decides(allowed, denied bool) string {
	return fmt.Sprintf("allowed %t, denied %t", allowed, denied)
}
