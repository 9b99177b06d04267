package verdicts

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// claims are the claims in a service account's token (Claims of k8s.io/kubernetes/pkg/serviceaccount/claims.go).
type claims struct {
	ID         string   `json:"jti"`
	Subject    string   `json:"sub"`
	Audiences  []string `json:"aud"`
	IssuedAt   int64    `json:"iat"`
	NotBefore  int64    `json:"nbf"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Namespace                         string
		ServiceAccount, Pod, Secret, Node namedObject
		WarnAfter                         int64
	} `json:"kubernetes.io"`
}

// namedObject is an object that a token names.
type namedObject struct{ Name, UID string }

// decodePayload returns the payload of a token as JSON, or nil if the text is not a token.
func decodePayload(token string) json.RawMessage {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !json.Valid(raw) {
		return nil
	}
	return raw
}

// ClaimsIn returns the claims of the token that a TokenReview asks about or that the answer to a TokenRequest has, and
// nil if there is no token. The claims are evidence; the token is not, because somebody could use it.
func ClaimsIn(body []byte) json.RawMessage {
	var object struct{ Spec, Status struct{ Token string } }
	_ = json.Unmarshal(body, &object) // objects of other kinds have no token
	return decodePayload(object.Spec.Token + object.Status.Token)
}

// TokenUser returns the user whom a service account's token names, or nil if it is not such a token.
func TokenUser(token string) *scenarios.User { return userFromClaims(decodePayload(token)) }

// userFromClaims reads claims as Validate of claims.go does. It returns nil if they are not JSON.
func userFromClaims(raw json.RawMessage) *scenarios.User {
	var c claims
	if json.Unmarshal(raw, &c) != nil {
		return nil
	}
	k := c.Kubernetes
	u := scenarios.UserFrom((&serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: k.ServiceAccount.UID, CredentialID: jwt.CredentialIDForJTI(c.ID),
		PodName: k.Pod.Name, PodUID: k.Pod.UID, NodeName: k.Node.Name, NodeUID: k.Node.UID,
	}).UserInfo())
	return &u
}

// checkTokenRequest demands that the token in the answer to a TokenRequest has the claims that follow from the answer:
// the account, audiences, bound object and lifetime that the answer repeats, and the time at which it was sent.
//
// Source: the reference page on service accounts; Claims in k8s.io/kubernetes/pkg/serviceaccount/claims.go.
func (v *stepJudge) checkTokenRequest() {
	var answer authenticationv1.TokenRequest
	var got claims
	_ = json.Unmarshal([]byte(v.o.Response.Body), &answer) // what cannot be read stays empty, and differs
	_ = json.Unmarshal(v.o.Response.Claims, &got)
	want := v.expectedClaims(&answer, got)
	v.compare("token", fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
	const sameTime = "that of the token"
	expires, end := answer.Status.ExpirationTimestamp.Time, time.Unix(requestedEnd(&answer, want), 0)
	v.compare("status.expirationTimestamp", sameTime, textIf(expires.Sub(end).Abs() > time.Second, expires.String(), sameTime))
}

// expectedClaims returns the claims that the token in an answer must have. IDs that the API server generates are taken
// from the token, and must not be empty.
func (v *stepJudge) expectedClaims(answer *authenticationv1.TokenRequest, got claims) claims {
	want := got
	want.ID = cmp.Or(got.ID, "some")
	want.Subject, want.Audiences = serviceaccount.MakeUsername(answer.Namespace, answer.Name), answer.Spec.Audiences
	k := &want.Kubernetes
	accountUID := cmp.Or(string(answer.UID), got.Kubernetes.ServiceAccount.UID, "some") // answers of Kubernetes 1.33 have no UID
	k.Namespace, k.ServiceAccount = answer.Namespace, namedObject{answer.Name, accountUID}
	bound := ptr.Deref(answer.Spec.BoundObjectRef, authenticationv1.BoundObjectReference{})
	k.Pod, k.Secret = boundObject(bound, "Pod", k.Pod), boundObject(bound, "Secret", k.Secret)
	if bound.Kind != "Pod" { // a token for a pod also names the pod's node
		k.Node = boundObject(bound, "Node", k.Node)
	}
	const clockTolerance = time.Minute
	if delay := time.Unix(got.IssuedAt, 0).Sub(v.o.Sent); delay.Abs() > clockTolerance {
		want.IssuedAt = v.o.Sent.Unix()
	}
	want.NotBefore = want.IssuedAt
	want.Expires = requestedEnd(answer, want)
	if k.WarnAfter != 0 { // the token should be replaced at that time, but is valid for longer
		k.WarnAfter, want.Expires = want.Expires, max(want.Expires, got.Expires)
	}
	return want
}

// requestedEnd returns when a token ends that was issued at the time in the claims, in seconds since 1970.
func requestedEnd(answer *authenticationv1.TokenRequest, c claims) int64 {
	return c.IssuedAt + ptr.Deref(answer.Spec.ExpirationSeconds, 0)
}

// boundObject returns the object of a kind that a token must name: the one that the token is bound to, with any UID, or
// none.
func boundObject(bound authenticationv1.BoundObjectReference, kind string, got namedObject) namedObject {
	if bound.Kind != kind {
		return namedObject{}
	}
	return namedObject{bound.Name, cmp.Or(string(bound.UID), got.UID, "some")}
}

// checkTokenReview demands that a TokenReview of a requestor's token says that the token is good and whose it is, by
// its claims. Where the scenario expects an error, it demands that the token is not good and that no user is named.
//
// Source: the type TokenReview of authentication.k8s.io/v1; k8s.io/kubernetes/pkg/registry/authentication/tokenreview/storage.go.
func (v *stepJudge) checkTokenReview() {
	var answer authenticationv1.TokenReview
	var c claims
	_ = json.Unmarshal([]byte(v.o.Response.Body), &answer) // what cannot be read stays empty, and differs
	_ = json.Unmarshal(v.o.Request.Claims, &c)
	var want scenarios.User
	var audiences []string
	isGood := v.expect.Message == "" && v.expect.MessageMatches == ""
	if owner := userFromClaims(v.o.Request.Claims); isGood && owner != nil {
		want = *owner
		want.Groups = append(want.Groups, user.AllAuthenticated)
		audiences = commonAudiences(c.Audiences, answer.Spec.Audiences)
		v.compare("status.error", noReason, cmp.Or(answer.Status.Error, noReason))
	}
	u := answer.Status.User
	v.compare("status.authenticated", fmt.Sprint(isGood), fmt.Sprint(answer.Status.Authenticated))
	v.compare("status.user", want.Render(), scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render())
	v.compare("status.audiences", scenarios.List(audiences), scenarios.List(answer.Status.Audiences))
}

// commonAudiences returns the audiences of a token that a TokenReview asks for, or all of them if it asks for none.
func commonAudiences(tokenAudiences, requested []string) []string {
	if len(requested) == 0 {
		return tokenAudiences
	}
	return seq.Filter(tokenAudiences, func(a string) bool { return slices.Contains(requested, a) })
}
