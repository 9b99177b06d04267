package today

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// secondaryCheck is a check that an API server makes in addition to the check of the request.
type secondaryCheck struct {
	name string
	// about reports whether a review is about it.
	about func(authorizationv1.ResourceAttributes) bool
	// by sends the request, ann if it is nil.
	by           *User
	method, path string
	body         map[string]any
	// allowed and refused are the codes of the answers with and without the permission. An allowed request may fail
	// because an object is missing that the test does not create.
	allowed, refused int
	message          string // of the refusal
	// asks is the number of reviews about the check in one request if nobody has an opinion.
	asks int
	// version is the API version in the review. It is * if the API server has no version at hand. Then no condition can
	// be asked for.
	version string
}

func isVerb(verb string) func(authorizationv1.ResourceAttributes) bool {
	return func(a authorizationv1.ResourceAttributes) bool { return a.Verb == verb }
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// secondaryChecks returns the checks of an API server 1.37 that can be triggered by a single request. fixed are the
// objects that the checks are about.
func secondaryChecks(fixed map[string]map[string]any) []secondaryCheck {
	const csrs, pods = "/apis/certificates.k8s.io/v1/certificatesigningrequests", "/api/v1/namespaces/default/"
	owner := fixed["owner"]["metadata"].(map[string]any)
	ownedBy := func(blocks bool) map[string]any {
		return map[string]any{"generateName": "owned-", "ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"], "blockOwnerDeletion": blocks},
		}}
	}
	approved := withStatus(
		fixed["csr"],
		map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True", "reason": "Test", "message": "test"}}},
	)
	signed := withStatus(fixed["csr"], map[string]any{"certificate": fixed["certificate"]["pem"]})
	pod := fixed["pod"]["metadata"].(map[string]any)
	node := &User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	return []secondaryCheck{
		{
			name:   "bind",
			about:  isVerb("bind"),
			method: http.MethodPost,
			path:   rbacPath + "namespaces/default/rolebindings?dryRun=All",
			body: map[string]any{
				"metadata": map[string]any{"name": "any"},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			},
			allowed: http.StatusCreated,
			refused: http.StatusForbidden,
			message: "attempting to grant RBAC permissions not currently held",
			asks:    1,
			version: "*",
		},
		{
			name:   "escalate",
			about:  isVerb("escalate"),
			method: http.MethodPost,
			path:   rbacPath + "clusterroles?dryRun=All",
			body: map[string]any{
				"metadata": map[string]any{"name": "any"},
				"rules":    []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get"}}},
			},
			allowed: http.StatusCreated,
			refused: http.StatusForbidden,
			message: "attempting to grant RBAC permissions not currently held",
			asks:    1,
			version: "*",
		},
		{
			name:    "approve",
			about:   isVerb("approve"),
			method:  http.MethodPut,
			path:    csrs + "/signed/approval?dryRun=All",
			body:    approved,
			allowed: http.StatusOK,
			refused: http.StatusForbidden,
			message: "user not permitted to approve requests with signerName",
			asks:    2,
			version: "*",
		},
		{
			name:    "sign",
			about:   isVerb("sign"),
			method:  http.MethodPut,
			path:    csrs + "/signed/status?dryRun=All",
			body:    signed,
			allowed: http.StatusOK,
			refused: http.StatusForbidden,
			message: "user not permitted to sign requests with signerName",
			asks:    2,
			version: "*",
		},
		{
			name: "finalizers of an owner that must stay",
			about: func(a authorizationv1.ResourceAttributes) bool {
				return a.Verb == "update" && a.Subresource == "finalizers"
			},
			// The API server first asks about the permission for all objects.
			method:  http.MethodPost,
			path:    configMaps,
			body:    map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": ownedBy(true)},
			allowed: http.StatusCreated,
			refused: http.StatusForbidden,
			message: "cannot set blockOwnerDeletion",
			asks:    2,
			version: "v1",
		},
		{
			name:    "delete of what gets an owner",
			about:   isVerb("delete"),
			method:  http.MethodPatch,
			path:    "/api/v1/namespaces/default/configmaps/unowned?dryRun=All",
			body:    map[string]any{"metadata": map[string]any{"ownerReferences": ownedBy(false)["ownerReferences"]}},
			allowed: http.StatusOK,
			refused: http.StatusForbidden,
			message: "cannot set an ownerRef on a resource you can't delete",
			asks:    1,
			version: "v1",
		},
		{
			name:   "parameters of a policy",
			about:  func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "get" && a.Resource == "configmaps" },
			method: http.MethodPost,
			path:   webhooksPath + "validatingadmissionpolicies?dryRun=All",
			body: map[string]any{"metadata": map[string]any{"name": "any"}, "spec": map[string]any{
				"paramKind":   map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
				"validations": []any{map[string]any{"expression": "true"}},
				"matchConstraints": map[string]any{
					"resourceRules": []any{
						map[string]any{
							"apiGroups":   []string{""},
							"apiVersions": []string{"v1"},
							"resources":   []string{"pods"},
							"operations":  []string{"CREATE"},
						},
					},
				},
			}},
			allowed: http.StatusCreated,
			refused: http.StatusUnprocessableEntity,
			message: `must have "get" permission on all objects`,
			asks:    1,
			version: "v1",
		},
		{
			name:   "the parameter of a binding",
			about:  func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "get" && a.Resource == "configmaps" },
			method: http.MethodPost,
			path:   webhooksPath + "validatingadmissionpolicybindings?dryRun=All",
			body: map[string]any{"metadata": map[string]any{"name": "any"}, "spec": map[string]any{
				"policyName": "with-parameters", "validationActions": []string{"Deny"},
				"paramRef": map[string]any{"name": "owner", "namespace": "default", "parameterNotFoundAction": "Deny"},
			}},
			allowed: http.StatusCreated,
			refused: http.StatusUnprocessableEntity,
			message: `does not have "get" permission on the object referenced by paramRef`,
			asks:    1,
			version: "v1",
		},
		{
			name:   "audience of a node's token",
			about:  isVerb("request-serviceaccounts-token-audience"),
			by:     node,
			method: http.MethodPost,
			path:   pods + "serviceaccounts/builder/token",
			body: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{
				"audiences":      []string{"vault"},
				"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]},
			}},
			allowed: http.StatusCreated,
			refused: http.StatusForbidden,
			message: `not authorized to request tokens for audience "vault"`,
			asks:    1,
			version: "v1",
		},
		{
			name:   "unsafe delete",
			about:  isVerb("unsafe-delete-ignore-read-errors"),
			method: http.MethodDelete,
			path:   "/api/v1/namespaces/default/configmaps/unowned?dryRun=All",
			body:   map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential": true},
			// A readable object must not be deleted in this way by anybody.
			allowed: http.StatusConflict,
			refused: http.StatusForbidden,
			message: "not permitted to do",
			asks:    1,
			version: "v1",
		},
	}
}

// withStatus is an object with another status.
func withStatus(o, status map[string]any) map[string]any {
	return map[string]any{"apiVersion": o["apiVersion"], "kind": o["kind"], "metadata": o["metadata"], "spec": o["spec"], "status": status}
}

// makeFixed creates the objects of the checks as the admin.
func (c *Cluster) makeFixed(t *testing.T) map[string]map[string]any {
	t.Helper()
	made := map[string]map[string]any{"certificate": {"pem": c.server.CA}}
	for name, m := range map[string]Made{
		"owner":   {"/api/v1/namespaces/default/configmaps", map[string]any{"metadata": map[string]any{"name": "owner"}}},
		"unowned": {"/api/v1/namespaces/default/configmaps", map[string]any{"metadata": map[string]any{"name": "unowned"}}},
		"account": {"/api/v1/namespaces/default/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "builder"}}},
		"node":    {"/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": "n1"}}},
		"policy": {webhooksPath + "validatingadmissionpolicies", map[string]any{"metadata": map[string]any{"name": "with-parameters"}, "spec": map[string]any{
			"paramKind":        map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
			"validations":      []any{map[string]any{"expression": "true"}},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"pods"}, "operations": []string{"CREATE"}}}},
		}}},
		"csr": {"/apis/certificates.k8s.io/v1/certificatesigningrequests", signingRequest(t)},
	} {
		made[name] = c.mustMake(t, m)
	}
	made["pod"] = c.mustMake(
		t,
		Made{"/api/v1/namespaces/default/pods", map[string]any{"metadata": map[string]any{"name": "on-n1"}, "spec": map[string]any{
			"nodeName": "n1", "serviceAccountName": "builder", "containers": []any{map[string]any{"name": "c", "image": "i"}},
		}}},
	)
	return made
}

// mustMake creates an object as the admin and returns it.
func (c *Cluster) mustMake(t *testing.T, m Made) (out map[string]any) {
	t.Helper()
	r, err := c.Send(t.Context(), nil, http.MethodPost, m.Path, "", m.Object)
	if err != nil || r.Code != http.StatusCreated {
		t.Fatalf("making an object at %s: %d %s, %v", m.Path, r.Code, r.Status(), err)
	}
	if err := json.Unmarshal(r.Body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// signingRequest returns the signing request of the case signer-name, under another name.
func signingRequest(t *testing.T) map[string]any {
	t.Helper()
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c Case) bool { return c.ID == "signer-name" })
	body := all[i].Requests[0].Body
	return map[string]any{"metadata": map[string]any{"name": "signed"}, "spec": body["spec"]}
}

// TestSecondaryChecksOfTheServer checks that no additional check, in any part of the API server, asks for conditions,
// and that all of them fail closed if an answer has conditions nevertheless (section "Other Kubernetes authorization
// enforcement points, with and without conditions-awareness").
func TestSecondaryChecksOfTheServer(t *testing.T) {
	c := startForTest(t, StartOptions{Args: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement,NodeRestriction"}})
	s := &signing{}
	c.answer(s)
	for _, check := range secondaryChecks(c.makeFixed(t)) {
		t.Run(check.name, func(t *testing.T) {
			s.about = check.about
			for _, step := range []struct {
				name, status string
				code         int
			}{
				{"no opinion", `{"allowed":false}`, check.refused},
				{"conditions that would allow", `{"allowed":false,` + fmt.Sprintf(chain, "Allow") + `}`, check.refused},
				{"allowed", `{"allowed":true}`, check.allowed},
			} {
				s.say(step.status)
				check.play(t, c, s, step.name, step.code)
			}
		})
	}
}

// play sends the request, and compares the answer and the reviews with what is expected.
func (check secondaryCheck) play(t *testing.T, c *Cluster, s *signing, name string, code int) {
	t.Helper()
	by, contentType := check.by, ""
	if by == nil {
		by = &User{Name: "ann"}
	}
	if check.method == http.MethodPatch {
		contentType = patchTypes["merge"]
	}
	r, err := c.Send(t.Context(), by, check.method, check.path, contentType, check.body)
	refused := code == check.refused
	if err != nil || r.Code != code || strings.Contains(r.Status(), check.message) != refused {
		t.Errorf("%s: code %d (%s), %v; want %d, refused %t", name, r.Code, r.Status(), err, code, refused)
	}
	asks := check.asks
	if !refused {
		asks = 1
	}
	if len(s.asked) != asks {
		t.Errorf("%s: it is asked %d times, want %d: %s", name, len(s.asked), asks, s.raw)
		return
	}
	last := s.asked[asks-1].ResourceAttributes
	isExpected := last.Version == check.version || !refused
	if !isExpected || strings.Contains(s.raw[asks-1], "conditionalAuthorization") {
		t.Errorf("%s: it is asked %s, want version %s and no conditions", name, s.raw[asks-1], check.version)
	}
}
