package replay

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Record writes down a request as it leaves, with whose credential it carries in place of the credential.
func Record(shown *verdicts.SentRequest, sent *http.Request) {
	shown.Method, shown.URL, shown.Headers = sent.Method, sent.URL.RequestURI(), shownHeaders(sent.Header)
	shown.UserAgent = sent.UserAgent()
	shown.Credential = credentialOf(sent.Header)
	if sent.GetBody == nil {
		return
	}
	if body, err := sent.GetBody(); err == nil {
		if raw, err := io.ReadAll(body); err == nil && json.Valid(raw) {
			shown.Body = raw
		}
	}
}

// remote begins the headers in which a proxy names the user.
const remote = "X-Remote-"

// credential says whether a header is one that never becomes evidence.
func credential(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, remote)
}

// shownHeaders are the headers of a request without credentials and without
// those that every request has, or that are others each time.
func shownHeaders(h http.Header) map[string][]string {
	shown := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !credential(name) && name != "User-Agent" && name != "Accept" && name != auditIDHeader {
			shown[name] = scenarios.ShownValues(h[name])
		}
	}
	return shown
}

// credentialOf is who the credential of a request is of, as the API server reads it; nil if it carries none.
func credentialOf(h http.Header) *scenarios.User {
	if token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok {
		return tokenUser(token)
	}
	if _, ok := h[remote+"User"]; !ok {
		return nil
	}
	u := target.RemoteUser(h)
	return &u
}

// tokenUser reads the claims of a service account's token, as Validate of
// k8s.io/kubernetes/pkg/serviceaccount/claims.go does.
func tokenUser(token string) *scenarios.User {
	type ref struct{ Name, UID string }
	var claims struct {
		ID         string `json:"jti"`
		Kubernetes struct {
			Namespace                 string
			ServiceAccount, Pod, Node ref
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return nil
	}
	k := claims.Kubernetes
	u := scenarios.UserFrom((&serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: k.ServiceAccount.UID, CredentialID: jwt.CredentialIDForJTI(claims.ID),
		PodName: k.Pod.Name, PodUID: k.Pod.UID, NodeName: k.Node.Name, NodeUID: k.Node.UID,
	}).UserInfo())
	return &u
}
