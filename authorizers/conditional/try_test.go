package conditional

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"testing"
)

func TestTry(t *testing.T) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: "alice", Groups: []string{"a", "b"}, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "update", Resource: "persistentvolumeclaims", Version: "v1"}}
	for _, e := range []string{
		`request.apiGroup == "" && request.resource == "persistentvolumeclaims" && request.userInfo.username == "alice" && object.spec.storageClassName == "dev"`,
		`object.metadata.finalizers.all(f, f == request.userInfo.username || f in oldObject.metadata.finalizers)`,
		`request.userInfo.groups.exists(g, g == object.metadata.labels.owner)`,
		`object.x == 'a' || request.userInfo.groups[5] == "z"`,
		`object.x == "a" && request.verb == "create"`,
		`request.userInfo.extra["x"][0] == "1" && object.a`,
		`has(object.spec.a) && has(request.name) || has(request.userInfo.username) && object.metadata.?labels["a"].orValue("") == request.namespace`,
		`request.verb in ["create","update"] ? object.v == 1 : false`,
		`oldObject == null || oldObject.spec.x == object.spec.x`,
		`!has(object.metadata.labels) || object.metadata.labels[request.userInfo.username] == "a\"b\\ü"`,
		`request.userInfo.groups[7] == "a" && object.x == 1`,
		`[1,2,3].exists(x, object.y == x) && request.verb == "update"`,
	} {
		p := evaluatePartially(e, attributes(spec), knownData(spec))
		t.Logf("%s\n   => %v %v %q", e, p.value, p.err, p.residual)
		if p.residual != "" {
			if err := Check(p.residual); err != nil {
				t.Error(err)
			}
		}
	}
	for _, e := range []string{`request.foo == "a"`, `request == object`, `"a"`, `object.x ==`} {
		_, err := NewSnapshot([]Policy{{ID: "a", Effect: "Allow", Expression: e}})
		t.Log(err)
	}
}
