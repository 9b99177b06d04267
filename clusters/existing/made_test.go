package existing

import (
	"encoding/json"
	"testing"
)

func TestLabel(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"kind":"Namespace","metadata":{"name":"a"}}`:                       true,
		`{"kind":"Namespace","metadata":{"name":"b","labels":{"x":"y"}}}`:    true,
		`{"kind":"Namespace","metadata":{"generateName":"c","labels":null}}`: true,
		`{"kind":"DeleteOptions"}`:                                           false,
		`no JSON`:                                                            false,
	} {
		labelled := label([]byte(raw), "run")
		var o struct {
			Metadata struct{ Labels map[string]string }
		}
		err := json.Unmarshal(labelled, &o)
		if want &&
			(err != nil || o.Metadata.Labels[Label] != "run" || o.Metadata.Labels[managedBy] != "authzconf") ||
			!want && string(labelled) != raw {
			t.Errorf("%s became %s", raw, labelled)
		}
	}
}

func TestCollection(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces":                                 true,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":    true,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": false,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":  false,
		"/api/v1/namespaces/a/serviceaccounts/b/token":       false,
		"/api/v1/namespaces/authzconf-a/serviceaccounts":     true,
	} {
		if collection(path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
}

func TestProduction(t *testing.T) {
	for name, want := range map[string]bool{
		"prod": true, "eu-prod-1": true, "kind-production": true, "https://api.live.example.com": true,
		"product-test": false, "alive": false, "kind-authzconf": false, "reproduce": false,
	} {
		if production.MatchString(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

func FuzzLabel(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","labels":{}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if labelled := label(raw, "run"); json.Valid(raw) && !json.Valid(labelled) {
			t.Errorf("%q became %q", raw, labelled)
		}
	})
}
