package today

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// answers is a webhook that gives everybody the same answer, and records its requests.
type answers struct {
	status string
	seen   []string
}

func (a *answers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	a.seen = append(a.seen, string(body))
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, a.status)
}

const chain = `"conditionsChain":[{"authorizerName":"a","failureMode":"Deny","conditions":[{"id":"a","effect":"%s","type":"k8s.io/authorization-cel","condition":"true"}]}]`

// TestUnaware checks how an API server that does not know conditions treats them.
func TestUnaware(t *testing.T) {
	c := startForTest(t, StartOptions{})
	t.Run("conditions are no opinion", func(t *testing.T) { conditionsAreNoOpinion(t, c) })
	t.Run("the mode is an unknown field", func(t *testing.T) { modeIsAnUnknownField(t, c) })
	t.Run("the reference is never conditional", func(t *testing.T) { referenceIsNeverConditional(t, c) })
}

// conditionsAreNoOpinion checks that an API server of today does not know the field and treats such an answer as no
// opinion (section "Changes to (Self)SubjectAccessReview": "Old implementers … will just safely assume it was a
// NoOpinion").
func conditionsAreNoOpinion(t *testing.T, c *Cluster) {
	for _, m := range mayCreateConfigMaps("maker") {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		name, status, user string
		code               int
	}{
		{"conditions that would allow", `{"allowed":false,` + fmt.Sprintf(chain, "Allow") + `}`, "anyone", http.StatusForbidden},
		{"control: allowed", `{"allowed":true}`, "anyone", http.StatusCreated},
		{"conditions that would deny, and RBAC behind grants", `{"allowed":false,` + fmt.Sprintf(chain, "Deny") + `}`, "maker", http.StatusCreated},
		{"control: denied", `{"allowed":false,"denied":true}`, "maker", http.StatusForbidden},
		{"the same, and RBAC behind does not grant", `{"allowed":false,` + fmt.Sprintf(chain, "Deny") + `}`, "other", http.StatusForbidden},
		{"conditions beside allowed", `{"allowed":true,` + fmt.Sprintf(chain, "Deny") + `}`, "other", http.StatusCreated},
	} {
		t.Run(step.name, func(t *testing.T) {
			a := &answers{status: step.status}
			c.answer(a)
			r, err := c.Send(
				t.Context(),
				&User{Name: step.user},
				http.MethodPost,
				"/api/v1/namespaces/default/configmaps",
				"",
				map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("map-%d", i)}},
			)
			if err != nil {
				t.Fatal(err)
			}
			if r.Code != step.code || len(a.seen) != 1 {
				t.Errorf("code %d (%s), %d reviews; want %d and 1", r.Code, r.Status(), len(a.seen), step.code)
			}
			for _, body := range a.seen {
				if strings.Contains(body, "conditionalAuthorization") {
					t.Errorf("the API server asks for conditions: %s", body)
				}
			}
		})
	}
}

// referenceIsNeverConditional checks that the reference gives an API server of today no conditions, because the API
// server asks for none. A caller whose review asks for conditions gets them.
func referenceIsNeverConditional(t *testing.T, c *Cluster) {
	s, err := reference.NewSnapshot(
		[]vectors.Policy{
			{ID: "blue", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && object.data.color == "blue"`},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	c.answer(reference.Handler(wire.Seed, c.Authorizer))
	before := c.Reviewed.Load()
	r, err := c.Send(
		t.Context(),
		&User{Name: "ann"},
		http.MethodPost,
		"/api/v1/namespaces/default/configmaps",
		"",
		map[string]any{"metadata": map[string]any{"name": "m"}, "data": map[string]any{"color": "blue"}},
	)
	if err != nil || r.Code != http.StatusForbidden || c.Reviewed.Load() != before+1 {
		t.Errorf("code %d, %d reviews, %v; want 403 and 1", r.Code, c.Reviewed.Load()-before, err)
	}
	asked := vectors.SubjectAccessReviewSpec{
		ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized},
	}
	asked.User = "ann"
	asked.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:      "create",
		Version:   "v1",
		Resource:  "configmaps",
		Namespace: "default",
	}
	if got := c.Authorizer.Review(asked); len(got.ConditionsChain) != 1 {
		t.Errorf("control: who asks for conditions gets %+v", got)
	}
}

// modeIsAnUnknownField checks that spec.conditionalAuthorization of a review is dropped with a warning, and is refused
// under strict validation.
func modeIsAnUnknownField(t *testing.T, c *Cluster) {
	a := &answers{status: `{"allowed":true,` + fmt.Sprintf(chain, "Allow") + `}`}
	c.answer(a)
	about := map[string]any{
		"user":               "ann",
		"groups":             []string{Group},
		"resourceAttributes": map[string]any{"verb": "create", "version": "v1", "resource": "configmaps", "namespace": "default"},
	}
	asking := map[string]any{"conditionalAuthorization": map[string]any{"mode": "HumanReadable"}}
	for k, v := range about {
		asking[k] = v
	}
	for _, kind := range []string{"SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview"} {
		path := "/apis/authorization.k8s.io/v1/" + strings.ToLower(kind) + "s"
		if kind == "LocalSubjectAccessReview" {
			path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
		}
		for _, step := range []struct {
			validation string
			spec       map[string]any
			code       int
			warned     bool
		}{
			{"Ignore", asking, http.StatusCreated, false},
			{"Warn", asking, http.StatusCreated, true},
			{"Strict", asking, http.StatusBadRequest, false},
			{"Strict", about, http.StatusCreated, false}, // the control
			{"Warn", about, http.StatusCreated, false},
		} {
			spec := map[string]any{}
			for k, v := range step.spec {
				if kind != "SelfSubjectAccessReview" || k == "resourceAttributes" || k == "conditionalAuthorization" {
					spec[k] = v
				}
			}
			body := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": map[string]any{}, "spec": spec}
			if kind == "LocalSubjectAccessReview" {
				body["metadata"] = map[string]any{"namespace": "default"}
			}
			r, err := c.Send(
				t.Context(),
				nil,
				http.MethodPost,
				path+"?"+url.Values{"fieldValidation": {step.validation}}.Encode(),
				"",
				body,
			)
			if err != nil {
				t.Fatal(err)
			}
			warned := strings.Contains(strings.Join(r.Warnings, " "), `unknown field \"spec.conditionalAuthorization\"`)
			if r.Code != step.code || warned != step.warned {
				t.Errorf(
					"%s, %s: code %d, warned %t (%v), want %d, %t",
					kind,
					step.validation,
					r.Code,
					warned,
					r.Warnings,
					step.code,
					step.warned,
				)
			}
			var got struct{ Status map[string]any }
			if err := json.Unmarshal(r.Body, &got); err == nil && got.Status["conditionsChain"] != nil {
				t.Errorf("%s: the API server passes conditions on", kind)
			}
		}
	}
	if len(a.seen) == 0 || strings.Contains(strings.Join(a.seen, ""), "conditionalAuthorization") {
		t.Errorf("the webhook was asked %d times, or for conditions", len(a.seen))
	}
	for path, want := range map[string]int{
		"/apis/authorization.k8s.io/v1":                                      http.StatusOK,
		"/apis/authorization.k8s.io/v1alpha1":                                http.StatusNotFound,
		"/apis/authorization.k8s.io/v1alpha1/admissionconditionsreviews":     http.StatusNotFound,
		"/apis/authorization.k8s.io/v1alpha1/authorizationconditionsreviews": http.StatusNotFound,
	} {
		if r, err := c.Send(t.Context(), nil, http.MethodGet, path, "", nil); err != nil || r.Code != want {
			t.Errorf("%s: %d, %v, want %d", path, r.Code, err, want)
		}
	}
}

// TestNamesAreUnknown checks that an API server of today does not start with the KEP's gate, plugin and fields, and
// starts with known names in their place.
func TestNamesAreUnknown(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	const rbac = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n"
	hook := fmt.Sprintf(authorization, local.DirPlaceholder+"/webhook.kubeconfig", false, Group)
	withContext := strings.Replace(hook, "    connectionInfo:", "    conditionsEndpointKubeConfigContext: authorization-conditions\n    connectionInfo:", 1)
	kubeconfig := map[string][]byte{"webhook.kubeconfig": []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1/'}}]\nusers: [{name: a, user: {token: none}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n")}
	for _, step := range []struct {
		name    string
		options local.Options
		refused string // empty for a control
	}{
		{"the gate", local.Options{FeatureGates: map[string]bool{"ConditionalAuthorization": true}}, "unrecognized feature gate"},
		{"the gate, off", local.Options{FeatureGates: map[string]bool{"ConditionalAuthorization": false}}, "unrecognized feature gate"},
		{"the plugin", local.Options{KubeAPIServerArgs: []string{"--enable-admission-plugins=AuthorizationConditionsEnforcer"}}, "AuthorizationConditionsEnforcer"},
		{"the context", local.Options{AuthorizationConfig: []byte(withContext), Files: kubeconfig}, "conditionsEndpointKubeConfigContext"},
		{"a known gate, plugin and configuration", local.Options{
			FeatureGates:        map[string]bool{"ConstrainedImpersonation": true},
			KubeAPIServerArgs:   []string{"--enable-admission-plugins=AlwaysPullImages"},
			AuthorizationConfig: []byte(hook), Files: kubeconfig,
		}, ""},
		{"the shortest configuration", local.Options{AuthorizationConfig: []byte(rbac)}, ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			c, err := local.Start(t.Context(), step.options)
			if err == nil {
				defer func() {
					if err := c.Stop(); err != nil {
						t.Error(err)
					}
				}()
			}
			switch {
			case step.refused == "" && err != nil:
				t.Errorf("control: %v", err)
			case step.refused != "" &&
				(err == nil || !strings.Contains(err.Error(), step.refused)):
				t.Errorf("want a refusal that names %s, got %v", step.refused, err)
			}
		})
	}
}
