package verdicts

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"reflect"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// NotSent says how the request that was recorded is not one that a requestor was to send; empty if it is.
func NotSent(r *scenarios.Request, by scenarios.Requestor, o *Observation) string {
	return (&stepJudge{request: r, requestor: by, o: o}).sent()
}

// sent holds what was sent to what the scenario states: another request would say nothing about the API server.
func (v *stepJudge) sent() (problem string) {
	got, want := v.o.Request, v.requestor
	if got.Requestor != want.Username() {
		return fmt.Sprintf("the request was sent by %q, and the scenario wants %q", got.Requestor, want.Username())
	}
	headers := v.request.WireHeaders()
	if v.client {
		// A client's other headers are its own; method and path are compared with what it must send.
		got.Headers = impersonationHeaders(got)
	} else {
		uri := v.request.URI()
		if u, err := url.Parse(uri); err == nil {
			uri = u.RequestURI()
		}
		if line := v.request.Method() + " " + uri; got.Method+" "+got.URL != line {
			return fmt.Sprintf("%s %s was sent, and the scenario wants %s", got.Method, got.URL, line)
		}
		if want := v.request.UserAgent(); got.UserAgent != want {
			return fmt.Sprintf("the user agent %.200q was sent, and the scenario wants %.200q", got.UserAgent, want)
		}
		var asked authenticationv1.TokenReview // whose token is not evidence
		_ = json.Unmarshal(got.Body, &asked)
		body, err := v.request.WithTokens(map[string]string{v.request.Reviewed(): asked.Spec.Token}).Content()
		if err != nil || !sameJSON(body, got.Body) {
			return fmt.Sprintf("the body %.200s was sent, and the scenario wants %.200s", got.Body, body)
		}
	}
	if !maps.EqualFunc(headers, got.Headers, slices.Equal) {
		return fmt.Sprintf("the headers %s were sent, and the scenario wants %s", scenarios.RenderExtra(got.Headers), scenarios.RenderExtra(headers))
	}
	if of := v.request.Reviewed(); of != "" {
		if problem := v.credential(userOf(got.Claims), v.s.Requestors[of]); problem != "" {
			return "of the token to review, " + problem
		}
	}
	return v.credential(got.Credential, want)
}

func impersonationHeaders(r SentRequest) map[string][]string {
	out := map[string][]string{}
	for name, values := range r.Headers {
		if strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			out[name] = values
		}
	}
	return out
}

// credential holds a credential that was sent to the requestor that it is to be of.
func (v *stepJudge) credential(c *scenarios.User, r scenarios.Requestor) (problem string) {
	if c == nil || r.Anonymous {
		if (c == nil) != r.Anonymous {
			return fmt.Sprintf("the request was to be sent by %q, and whose credential it carried is not what was recorded", r.Username())
		}
		return ""
	}
	want := scenarios.User{Name: r.Username(), UID: r.UID, Groups: r.Groups, Extra: maps.Clone(r.Extra)}
	maps.DeleteFunc(want.Extra, func(_ string, values []string) bool { return len(values) == 0 }) // of it nothing is sent
	if sa := r.ServiceAccount; sa != nil {
		want.UID, want.Extra = c.UID, map[string][]string{}
		maps.Copy(want.Extra, c.Extra)
		want.Groups = serviceaccount.MakeGroupNames(sa.Namespace)
		for key, name := range map[string]string{serviceaccount.PodNameKey: sa.Pod, serviceaccount.NodeNameKey: sa.Node} {
			delete(want.Extra, key)
			if name != "" {
				want.Extra[key] = []string{name}
			}
		}
	}
	if want.Render() == c.Render() {
		return ""
	}
	if v.mintedWrongly(r, c.Name) {
		v.compare("credential", want.Render(), c.Render())
		return ""
	}
	return fmt.Sprintf("the credential that was sent is of %s, and the scenario wants %s", c.Render(), want.Render())
}

// mintedWrongly says whether a credential which is not the requestor's is the API server's fault: it is a token that was asked
// for, of that account or of none that can be, and of no other requestor, whose token might have been sent in its place.
func (v *stepJudge) mintedWrongly(r scenarios.Requestor, name string) bool {
	sa := r.ServiceAccount
	if sa == nil || sa.Running || len(sa.Times) > 0 { // a kubelet asked for it, or it was signed here
		return false
	}
	for _, other := range v.s.Requestors {
		if other.ServiceAccount != sa && other.Username() == name {
			return false
		}
	}
	return name == r.Username() || strings.Contains(name+":", "::")
}

// asker is the requestor as the API server has to know it by the credential that was sent.
func (v *stepJudge) asker() scenarios.User {
	c := v.o.Request.Credential
	if c == nil {
		return scenarios.User{Name: v.requestor.Username(), Groups: []string{user.AllUnauthenticated}}
	}
	u := *c
	if !slices.Contains(u.Groups, user.AllAuthenticated) {
		u.Groups = append(slices.Clone(u.Groups), user.AllAuthenticated)
	}
	return u
}

// associatedNodeKeys stands in reviews of the associated-node mode for all extra of the requestor, whose keys are its
// values: associatedNodeImpersonationRequestorUserInfo of k8s.io/apiserver/pkg/endpoints/filters/impersonation.
const associatedNodeKeys = "authentication.kubernetes.io/associated-node-keys"

// askerIn is the requestor as a review with a verb has to show it.
func (v *stepJudge) askerIn(verb string) scenarios.User {
	u := v.asker()
	if mode, ok := scenarios.ImpersonationMode(verb); ok && mode == "associated-node" {
		u.Extra = map[string][]string{associatedNodeKeys: slices.Sorted(maps.Keys(u.Extra))}
	}
	return u
}

// sameJSON says whether two texts are the same JSON; none is the same as none.
func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
