package engines

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// entityTypes are those of the model, without selectors and extra, which no policy here looks at.
const entityTypes = `namespace k8s {
  entity Group = { name: String };
  entity User in [Group] = { name: String };
  entity Node in [Group] = { name: String };
  entity ServiceAccount in [Group] = { name: String, namespace: String };
  entity PrincipalUID;
  entity Extra = { key: String, value?: String };
  entity NonResourceURL = { path: String };
  entity Resource = { apiGroup: String, resource: String, subresource?: String, namespace?: String, name?: String };
`

var actionName = regexp.MustCompile(`k8s::Action::("(?:[^"\\]|\\.)*")`)

// schemaOf is the model with every verb of the policies as an action; impersonate alone is about its own types.
func schemaOf(t testing.TB, files map[string][]byte) *resolved.Schema {
	verbs := map[string]bool{}
	for _, raw := range files {
		for _, m := range actionName.FindAllStringSubmatch(string(raw), -1) {
			verbs[m[1]] = true
		}
	}
	var text strings.Builder
	text.WriteString(entityTypes)
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		resources := "Resource, NonResourceURL"
		if verb == `"impersonate"` {
			resources = "NonResourceURL, User, Node, Group, ServiceAccount, PrincipalUID, Extra"
		}
		_, _ = fmt.Fprintf(
			&text,
			"  action %s appliesTo { principal: [User, Node, ServiceAccount, Group], resource: [%s], context: {} };\n",
			verb,
			resources,
		)
	}
	text.WriteString("}\n")
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	out, err := s.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
