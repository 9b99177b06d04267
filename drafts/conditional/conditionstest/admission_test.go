package conditionstest

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestAdmission checks that the second phase gets the whole request, and from the objects what they say about
// themselves.
func TestAdmission(t *testing.T) {
	pod := vectors.Object{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}}
	created := admission{
		authorizer.AttributesRecord{
			User:        &user.DefaultInfo{Name: "alice"},
			Verb:        "create",
			Namespace:   "shop",
			APIVersion:  "v1",
			Resource:    "pods",
			Subresource: "status",
		},
		&vectors.ConditionData{Operation: "CREATE", Object: pod, Options: vectors.Object{"dryRun": []any{"All"}}},
	}
	var data authorizer.ConditionsData = created
	got := []string{
		data.GetName(),
		data.GetNamespace(),
		data.GetResource().Resource,
		data.GetSubresource(),
		data.GetKind().Kind,
		data.GetUserInfo().GetName(),
	}
	for i, want := range []string{"web", "shop", "pods", "status", "Pod", "alice"} {
		if got[i] != want {
			t.Errorf("got %q, want %q", got[i], want)
		}
	}
	if !data.IsDryRun() {
		t.Error("a dry run is none")
	}
	if data.GetOldObject() != nil {
		t.Error("there is an old object, of nothing")
	}

	deleted := admission{authorizer.AttributesRecord{Name: "db"}, &vectors.ConditionData{Operation: "DELETE", OldObject: pod}}
	if deleted.GetName() != "db" || deleted.GetKind().Kind != "Pod" {
		t.Errorf("%s of kind %s", deleted.GetName(), deleted.GetKind())
	}
	if deleted.IsDryRun() {
		t.Error("a request without options is a dry run")
	}
	if nothing := (admission{data: &vectors.ConditionData{}}); nothing.GetName() != "" || !nothing.GetKind().Empty() {
		t.Errorf("%q of kind %s", nothing.GetName(), nothing.GetKind())
	}
}
