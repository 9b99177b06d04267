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

	"github.com/authzconf/authzconf/scenarios"
)

// claims are those of a service account's token (Claims of k8s.io/kubernetes/pkg/serviceaccount/claims.go).
type claims struct {
	ID         string   `json:"jti"`
	Subject    string   `json:"sub"`
	Audiences  []string `json:"aud"`
	IssuedAt   int64    `json:"iat"`
	NotBefore  int64    `json:"nbf"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Namespace                         string
		ServiceAccount, Pod, Secret, Node named
		WarnAfter                         int64
	} `json:"kubernetes.io"`
}

type named struct{ Name, UID string }

// payload is what a token says, as JSON; nil if it is none.
func payload(token string) json.RawMessage {
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

// ClaimsIn are the claims of the token that a TokenReview asks about, or that a TokenRequest is answered with; nil where there
// is none. They are evidence, and the token, which somebody could use, is not.
func ClaimsIn(body []byte) json.RawMessage {
	var object struct{ Spec, Status struct{ Token string } }
	_ = json.Unmarshal(body, &object) // of another kind there is no token
	return payload(object.Spec.Token + object.Status.Token)
}

// TokenUser is who a service account's token is of; nil if it is no such token.
func TokenUser(token string) *scenarios.User { return userOf(payload(token)) }

// userOf reads claims as Validate of that file does.
func userOf(raw json.RawMessage) *scenarios.User {
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

// minted judges the token that a TokenRequest is answered with by what the answer itself says that was asked for, and when.
func (v *stepJudge) minted() {
	var told authenticationv1.TokenRequest
	var got claims
	_, _ = json.Unmarshal([]byte(v.o.Response.Body), &told), json.Unmarshal(v.o.Response.Claims, &got) // what cannot be read says nothing
	want, ref := got, ptr.Deref(told.Spec.BoundObjectRef, authenticationv1.BoundObjectReference{})
	want.ID = cmp.Or(got.ID, "some")
	want.Subject, want.Audiences = serviceaccount.MakeUsername(told.Namespace, told.Name), told.Spec.Audiences
	k := &want.Kubernetes
	k.Namespace, k.ServiceAccount = told.Namespace, named{told.Name, string(told.UID)}
	for kind, bound := range map[string]*named{"Pod": &k.Pod, "Secret": &k.Secret, "Node": &k.Node} {
		switch {
		case ref.Kind == kind:
			*bound = named{ref.Name, cmp.Or(string(ref.UID), bound.UID, "some")}
		case kind != "Node" || ref.Kind != "Pod": // whose node is told with it
			*bound = named{}
		}
	}
	if off := time.Unix(got.IssuedAt, 0).Sub(v.o.Sent); off.Abs() > time.Minute { // as far as clocks may differ
		want.IssuedAt = v.o.Sent.Unix()
	}
	want.NotBefore = want.IssuedAt
	end := want.IssuedAt + ptr.Deref(told.Spec.ExpirationSeconds, 0)
	if want.Expires = end; k.WarnAfter != 0 { // it is to be replaced then, and good for longer
		k.WarnAfter, want.Expires = end, max(end, got.Expires)
	}
	v.compare("token", fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
	at := told.Status.ExpirationTimestamp.Time
	v.compare("status.expirationTimestamp", "that of the token", orElse(at.Sub(time.Unix(end, 0)).Abs() > time.Second, at.String(), "that of the token"))
}

// reviewed judges what a TokenReview says of a requestor's token: unless the scenario states an error, that it is good, and
// whose it is, by its claims.
func (v *stepJudge) reviewed() {
	var told authenticationv1.TokenReview
	var c claims
	_, _ = json.Unmarshal([]byte(v.o.Response.Body), &told), json.Unmarshal(v.o.Request.Claims, &c) // as above
	var who scenarios.User
	good, audiences := v.expect.Message+v.expect.MessageMatches == "", []string(nil)
	if u := userOf(v.o.Request.Claims); good && u != nil {
		who, audiences = *u, slices.DeleteFunc(slices.Clone(c.Audiences), func(a string) bool {
			return len(told.Spec.Audiences) > 0 && !slices.Contains(told.Spec.Audiences, a)
		})
		who.Groups = append(who.Groups, user.AllAuthenticated)
		v.compare("status.error", noReason, cmp.Or(told.Status.Error, noReason))
	}
	u := told.Status.User
	v.compare("status.authenticated", fmt.Sprint(good), fmt.Sprint(told.Status.Authenticated))
	v.compare("status.user", who.Render(), scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render())
	v.compare("status.audiences", scenarios.List(audiences), scenarios.List(told.Status.Audiences))
}
