package verdicts

import (
	"cmp"
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

// CompareSentRequest returns how the recorded request differs from the one that a requestor was to send, or "" if it
// does not.
func CompareSentRequest(r *scenarios.Request, requestor scenarios.Requestor, o *Observation) string {
	return (&stepJudge{request: r, requestor: requestor, o: o}).checkSent()
}

// checkSent demands that the request which was sent is the scenario's.
//
// Source: the evidence itself: otherwise it says nothing about the API server.
func (v *stepJudge) checkSent() (problem string) {
	got, want := v.o.Request, v.requestor
	if got.Requestor != want.Username() {
		return fmt.Sprintf("the request was sent by %q, and the scenario wants %q", got.Requestor, want.Username())
	}
	if v.isFromClient {
		// The other headers are the client's own. Its method and path are compared with what it must send.
		got.Headers = impersonationHeaders(got)
	} else if problem := cmp.Or(v.checkRequestLine(), v.checkBody()); problem != "" {
		return problem
	}
	if headers := v.request.WireHeaders(); !maps.EqualFunc(headers, got.Headers, slices.Equal) {
		return fmt.Sprintf(
			"the headers %s were sent, and the scenario wants %s",
			scenarios.RenderExtra(got.Headers),
			scenarios.RenderExtra(headers),
		)
	}
	if alias := v.request.Reviewed(); alias != "" {
		if problem := v.checkCredential(userFromClaims(got.Claims), v.s.Requestors[alias]); problem != "" {
			return "of the token to review, " + problem
		}
	}
	if problem := v.checkFurtherCredentials(); problem != "" {
		return problem
	}
	return v.checkCredential(got.Credential, want)
}

// checkFurtherCredentials demands that the request carried the credentials of the other requestors whom the scenario
// names, and no more.
//
// Source: the evidence itself: otherwise it says nothing about the API server.
func (v *stepJudge) checkFurtherCredentials() (problem string) {
	users, aliases := v.o.Request.Others, v.request.With
	if len(users) != len(aliases) {
		return fmt.Sprintf("the request carried %d further credentials, and the scenario wants %d", len(users), len(aliases))
	}
	for i, alias := range aliases {
		if problem := v.checkCredential(users[i], v.s.Requestors[alias]); problem != "" {
			return fmt.Sprintf("of the credential of %s, %s", alias, problem)
		}
	}
	return ""
}

// checkRequestLine demands the scenario's method, path, query and user agent.
//
// Source: the evidence itself: otherwise it says nothing about the API server.
func (v *stepJudge) checkRequestLine() (problem string) {
	got, uri := v.o.Request, v.request.URI()
	if u, err := url.Parse(uri); err == nil {
		uri = u.RequestURI()
	}
	if line := v.request.Method() + " " + uri; got.Method+" "+got.URL != line {
		return fmt.Sprintf("%s %s was sent, and the scenario wants %s", got.Method, got.URL, line)
	}
	if want := v.request.UserAgent(); got.UserAgent != want {
		return fmt.Sprintf("the user agent %.200q was sent, and the scenario wants %.200q", got.UserAgent, want)
	}
	return ""
}

// checkBody demands the scenario's body. The token that a TokenReview asks about is not compared, because tokens are
// not evidence.
//
// Source: the evidence itself: otherwise it says nothing about the API server.
func (v *stepJudge) checkBody() (problem string) {
	got := v.o.Request.Body
	var review authenticationv1.TokenReview
	_ = json.Unmarshal(got, &review)
	want, err := v.request.WithTokens(map[string]string{v.request.Reviewed(): review.Spec.Token}).Content()
	if err != nil || !sameJSON(want, got) {
		return fmt.Sprintf("the body %.200s was sent, and the scenario wants %.200s", got, want)
	}
	return ""
}

// impersonationHeaders returns the headers that ask for impersonation.
func impersonationHeaders(r SentRequest) map[string][]string {
	out := map[string][]string{}
	for name, values := range r.Headers {
		if strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			out[name] = values
		}
	}
	return out
}

// checkCredential demands that the credential which was sent is the requestor's, and that an anonymous requestor sent
// none.
//
// Source: the evidence itself: otherwise it says nothing about the API server.
func (v *stepJudge) checkCredential(c *scenarios.User, r scenarios.Requestor) (problem string) {
	lacksCredential := c == nil
	if lacksCredential != r.Anonymous {
		return fmt.Sprintf("the request was to be sent by %q, and whose credential it carried is not what was recorded", r.Username())
	}
	if lacksCredential {
		return ""
	}
	want := expectedCredential(r, c)
	if want.Render() == c.Render() {
		return ""
	}
	if v.isIssuedWrongly(r, c.Name) {
		v.compare("credential", want.Render(), c.Render())
		return ""
	}
	return fmt.Sprintf("the credential that was sent is of %s, and the scenario wants %s", c.Render(), want.Render())
}

// expectedCredential returns the user whom the credential of a requestor has to name. The IDs in a token are chosen by
// the API server, so they are taken from the credential that was sent.
func expectedCredential(r scenarios.Requestor, got *scenarios.User) scenarios.User {
	want := scenarios.User{Name: r.Username(), UID: r.UID, Groups: r.Groups, Extra: maps.Clone(r.Extra)}
	maps.DeleteFunc(want.Extra, func(_ string, values []string) bool { return len(values) == 0 }) // no header is sent for a key without values
	sa := r.ServiceAccount
	if r.Certificate { // the digest of a certificate stands among its owner's extra
		want.Extra = map[string][]string{user.CredentialIDKey: got.Extra[user.CredentialIDKey]}
	}
	if sa == nil {
		return want
	}
	want.UID, want.Extra = got.UID, map[string][]string{}
	maps.Copy(want.Extra, got.Extra)
	want.Groups = serviceaccount.MakeGroupNames(sa.Namespace)
	for key, name := range map[string]string{serviceaccount.PodNameKey: sa.Pod, serviceaccount.NodeNameKey: sa.Node} {
		delete(want.Extra, key)
		if name != "" {
			want.Extra[key] = []string{name}
		}
	}
	return want
}

// isIssuedWrongly reports whether it is the API server's fault that a credential is not the requestor's. That is so if
// it is a token which the API server issued on request, for that account or for one that cannot exist, and if it is not
// the token of another requestor, which might have been sent by mistake.
func (v *stepJudge) isIssuedWrongly(r scenarios.Requestor, name string) bool {
	sa := r.ServiceAccount
	if sa == nil {
		return false
	}
	if sa.Running || len(sa.Times) > 0 { // the kubelet requested the token, or it was signed here
		return false
	}
	for _, other := range v.s.Requestors {
		if other.ServiceAccount != sa && other.Username() == name {
			return false
		}
	}
	hasEmptyPart := strings.Contains(name, "::") || strings.HasSuffix(name, ":")
	return hasEmptyPart || name == r.Username()
}

// authenticatedUser returns the requestor as the API server must know it from the credential that was sent.
func (v *stepJudge) authenticatedUser() scenarios.User {
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

// requestorInReview returns the requestor as a review with this verb must show it.
func (v *stepJudge) requestorInReview(verb string) scenarios.User {
	u := v.authenticatedUser()
	if mode, ok := scenarios.ImpersonationMode(verb); ok && mode == "associated-node" {
		u.Extra = map[string][]string{scenarios.AssociatedNodeKeysKey: slices.Sorted(maps.Keys(u.Extra))}
	}
	return u
}

// sameJSON reports whether two texts are the same JSON, or both are empty.
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
