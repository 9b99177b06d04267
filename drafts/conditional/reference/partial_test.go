package reference

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

func update(user string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"a", "b"}, Extra: map[string]authorizationv1.ExtraValue{"node": {"n1"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "update", Resource: "persistentvolumeclaims", Version: "v1"},
	}
}

// TestResiduals checks that a residual has nothing that is known already, and that it can be parsed again.
func TestResiduals(t *testing.T) {
	for _, c := range []struct {
		expression, residual string
		value, err           bool
	}{
		{`request.apiGroup == "" && request.userInfo.username == "alice" && object.spec.storageClassName == "dev"`, `object.spec.storageClassName == "dev"`, false, false},
		{`request.userInfo.username == "bob" && object.a`, "", false, false},
		{`object.a && request.userInfo.username == "bob"`, "", false, false},
		{`object.a || request.userInfo.username == "alice"`, "", true, false},
		{`object.metadata.finalizers.all(f, f == request.userInfo.username || f in oldObject.metadata.finalizers)`, `object.metadata.finalizers.all(f, f == "alice" || f in oldObject.metadata.finalizers)`, false, false},
		{`request.userInfo.groups.exists(g, g == object.metadata.labels.owner)`, `["a", "b"].exists(g, g == object.metadata.labels.owner)`, false, false},
		{`object.x == 'a' || request.userInfo.groups[5] == "z"`, `object.x == "a" || ["a", "b"][5] == "z"`, false, false},
		{`request.userInfo.groups[5] == "z"`, "", false, true},
		{`[object.metadata.name, request.userInfo.username].exists(n, n == "z")`, `[object.metadata.name, dyn("alice")].exists(n, n == "z")`, false, false},
		{`request.userInfo.username in [object.x, object.y]`, `"alice" in [object.x, object.y]`, false, false},
		{`object.x in [request.verb, request.userInfo.username]`, `object.x in ["update", "alice"]`, false, false},
		{`request.userInfo.extra["node"][0] == object.spec.nodeName`, `"n1" == object.spec.nodeName`, false, false},
		{`has(request.name) && object.metadata.?labels["a"].orValue("") == request.namespace`, `object.metadata.?labels["a"].orValue("") == ""`, false, false},
		{`request.verb == "create" ? object.a == 1 : (request.verb == "update" ? object.b == 1 : false)`, `object.b == 1`, false, false},
		{`object.labels[request.userInfo.username] == "a\"b\\ü"`, `object.labels["alice"] == "a\"b\\ü"`, false, false},
	} {
		got := evaluatePartially(c.expression, vectors.RequestFields(update("alice")), nil)
		residual := got.residual
		if residual != c.residual {
			t.Errorf("%s: residual %q, want %q", c.expression, residual, c.residual)
		}
		if got.value != c.value || (got.err != nil) != c.err {
			t.Errorf("%s: %t, %v", c.expression, got.value, got.err)
		}
		if residual != "" && readable(residual) != nil {
			t.Errorf("%s: the residual cannot be read again: %v", c.expression, readable(residual))
		}
	}
}

func TestNeverTrue(t *testing.T) {
	for text, want := range map[string]bool{
		`object.a == 1 && ["a"][5] == "z"`: true,
		`object.a == 1 || ["a"][5] == "z"`: false,
		`object.a == 1 && object.b == 2`:   false,
	} {
		if neverTrue(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"good", "policies:\n- {id: a, effect: Allow, expression: object.a}\n", ""},
		{"none", "policies: []\n", ""},
		{"unknown field", "policies:\n- {id: a, effect: Allow, expression: object.a, when: x}\n", "f.yaml:2:"},
		{"effect", "policies:\n- id: a\n  effect: Maybe\n  expression: object.a\n", "f.yaml:3:"},
		{"ID", "policies:\n- id: k8s.io/a\n  effect: Allow\n  expression: object.a\n", "f.yaml:2:"},
		{"ID twice", "policies:\n- {id: a, effect: Allow, expression: object.a}\n- {id: a, effect: Deny, expression: object.a}\n", "f.yaml:3:"},
		{"no CEL", "policies:\n- id: a\n  effect: Allow\n  expression: object.a ==\n", "f.yaml:4:"},
		{"no bool", "policies:\n- id: a\n  effect: Allow\n  expression: '\"x\"'\n", "expected bool"},
		{"unknown attribute", "policies:\n- id: a\n  effect: Allow\n  expression: request.user == \"x\"\n", "undeclared reference"},
	} {
		_, err := Load("f.yaml", []byte(c.text))
		if c.want == "" && err != nil ||
			c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", c.name, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("policies:\n- {id: a, effect: Allow, expression: object.a}\n")
	f.Add("policies:\n- {id: a, effect: Deny, expression: 'object.x.all(f, f == request.name) && request.verb == \"update\"'}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Load("f.yaml", []byte(text))
		if err != nil {
			return
		}
		// Every policy that was loaded can decide, and every residual can be parsed again.
		for _, c := range s.Decide(update("alice")).Conditions {
			if err := readable(c.Condition); err != nil {
				t.Errorf("%q: %v", c.Condition, err)
			}
		}
	})
}

// readable reports whether a text is a condition that can be evaluated.
func readable(condition string) error {
	_, err := program(condition)
	return err
}
