package today

import (
	"strings"
	"testing"
)

const goodCase = `description: d
section: s
policies:
- {id: a, effect: Allow, expression: object.a}
requests:
- {by: ann, method: POST, path: /a, expect: {code: 201}}
- {by: bob, method: POST, path: /a, expect: {code: 403}}
`

func TestParseCase(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"good", "", "", ""},
		{"unknown field", "section: s", "section: s\nsections: t", "cases/c.yaml:3:1: unknown field"},
		{"no section", "section: s\n", "", "description and section are needed"},
		{"bad policy", "effect: Allow", "effect: Maybe", "cases/c.yaml:4:1: "},
		{"bad method", "{by: ann, method: POST", "{by: ann, method: LIST", "cases/c.yaml:6:"},
		{"bad path", "{by: ann, method: POST, path: /a", "{by: ann, method: POST, path: a", "a path that begins with /"},
		{"a patch without a type", "{by: ann, method: POST", "{by: ann, method: PATCH", "merge or apply"},
		{"nobody is refused", "code: 403", "code: 200", "either alone proves nothing"},
		{"nobody is allowed", "code: 201", "code: 404", "either alone proves nothing"},
		{"no code", "code: 403", "message: x", "expect.code is needed"},
		{"a review without its answer", "code: 403", "code: 403, review: {verb: get}", "go together"},
	} {
		_, err := ParseCase("cases/c.yaml", []byte(strings.Replace(goodCase, c.from, c.to, 1)))
		if c.want == "" && err != nil ||
			c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzParseCase(f *testing.F) {
	f.Add(goodCase)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCase("cases/c.yaml", []byte(text))
		if err == nil && len(c.Requests) < 2 {
			t.Errorf("a case of %d requests", len(c.Requests))
		}
	})
}

func TestParseObject(t *testing.T) {
	for text, there := range map[string]bool{"": false, "null": false, "{}": true, `{"a":1}`: true} {
		if o, err := parseObject([]byte(text)); err != nil || (o != nil) != there {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	if _, err := parseObject([]byte(`[1]`)); err == nil {
		t.Error("a list is an object")
	}
}
