package scenarios_test

import (
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// attributes are what a review asks. Instead of each name they only report whether there is one, because the KEP and
// the scenarios use different user names.
type attributes struct {
	verb, group, resource            string
	subresource, namespace, starName bool
	name                             bool
}

// TestPrintedReviews compares the reviews that the KEP prints with those that its scenarios expect. Each printed review
// must be expected somewhere, except where the KEP and the servers differ: then it must be expected nowhere.
func TestPrintedReviews(t *testing.T) {
	expected := map[attributes]string{}
	for _, s := range embedded(t).Only(func(s *scenarios.Scenario) bool { return strings.HasPrefix(s.ID, "kep-5284/") }).All() {
		expectations(s, func(_ *scenarios.Request, e *scenarios.Expect) {
			for _, r := range e.Reviews {
				if r.By != scenarios.ByImpersonated {
					expected[attributes{r.Verb, r.Group, r.Resource, r.Subresource != "", r.Namespace != "", r.Name == "*", r.Name != ""}] = s.ID
				}
			}
		})
	}
	// These are the places where they differ, and the scenarios that show it.
	differ := map[string]string{
		"review-arbitrary-nodes": "kep-5284/design-details/verb-arbitrary-nodes-in-the-plural",
		"review-associated-node": "kep-5284/design-details/associated-node-resource-name-star",
	}
	files, err := fs.Glob(fixtures.FS, "kep-5284/review-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		var printed authorizationv1.SubjectAccessReview
		readFixture(t, file, &printed)
		a := printed.Spec.ResourceAttributes
		got := expected[attributes{a.Verb, a.Group, a.Resource, a.Subresource != "", a.Namespace != "", a.Name == "*", a.Name != ""}]
		shown, differs := differ[strings.TrimSuffix(path.Base(file), ".yaml")]
		switch _, exists := embedded(t).Get(shown); {
		case differs &&
			(got != "" || !exists):
			t.Errorf("%s: printed otherwise than servers ask; expected by %q, shown by %q, which exists: %v", file, got, shown, exists)
		case !differs && got == "":
			t.Errorf("%s: no scenario expects the review %+v", file, a)
		}
	}
}

// TestPrintedTestRole checks that the scenario about the role in the KEP's test plan uses the rules that are printed
// there.
func TestPrintedTestRole(t *testing.T) {
	raw, err := fs.ReadFile(fixtures.FS, "kep-5284/integration-bob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(raw), "\n---\n")
	var printed, sent rbacv1.Role
	if err := yaml.Unmarshal([]byte(last), &printed); err != nil {
		t.Fatal(err)
	}
	s, ok := embedded(t).Get("kep-5284/manifests/test-role-as-printed")
	if !ok {
		t.Fatal("there is no such scenario")
	}
	body, err := yaml.Marshal(s.Steps[0].Request.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	if len(printed.Rules) == 0 || !reflect.DeepEqual(printed.Rules, sent.Rules) {
		t.Errorf("printed %+v, sent %+v", printed.Rules, sent.Rules)
	}
}

func readFixture(t *testing.T, file string, v any) {
	t.Helper()
	raw, err := fs.ReadFile(fixtures.FS, file)
	if err == nil {
		err = yaml.UnmarshalStrict(raw, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestPrintedScenarios loads the scenarios that the documentation prints.
func TestPrintedScenarios(t *testing.T) {
	for file, id := range map[string]string{
		"../docs/scenarios.md": "kubernetes/caches/revoked-action-grant-of-the-docs",
		"../CONTRIBUTING.md":   "kep-5284/requests/get-with-list-grant",
	} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(raw), "```yaml\n")
		text, _, _ = strings.Cut(text, "\n```")
		files := fstest.MapFS{id + ".yaml": {Data: []byte(text)}}
		if _, twin, ok := strings.Cut(text, "\ntwin: "); ok {
			twin, _, _ = strings.Cut(twin, "\n")
			raw, err := fs.ReadFile(scenarios.FS, twin+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			files[twin+".yaml"] = &fstest.MapFile{Data: raw}
		}
		for _, e := range notes(t, files, fixtures.FS) {
			t.Errorf("%s: %v", file, e)
		}
	}
}
