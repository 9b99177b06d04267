package model

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// TestEmbedded checks changes in templates: which permissions cover them, and at which depth.
func TestEmbedded(t *testing.T) {
	set, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, group, resource, old, new, want string }{
		{
			"the node of a template", "apps", "deployments",
			`{"spec":{"template":{"spec":{}}}}`, `{"spec":{"template":{"spec":{"nodeName":"n1"}}}}`,
			"specification > specification > nodeAssignment",
		},
		{
			"a container", "apps", "daemonsets",
			`{"spec":{"template":{"spec":{"containers":[]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`,
			"specification > specification",
		},
		{
			"labels, own and of the template", "apps", "statefulsets",
			`{"metadata":{},"spec":{"template":{"metadata":{}}}}`, `{"metadata":{"labels":{"a.io/x":"1"}},"spec":{"template":{"metadata":{"labels":{"a.io/x":"1"}}}}}`,
			"objectMeta > labels > label(a.io),specification > objectMeta > labels > label(a.io)",
		},
		{
			"a name", "apps", "replicasets",
			`{"metadata":{"name":"a"},"spec":{"template":{"metadata":{"name":"a"}}}}`, `{"metadata":{"name":"b"},"spec":{"template":{"metadata":{"name":"b"}}}}`,
			"specification > objectMeta",
		},
		{
			"a whole template", "", "replicationcontrollers",
			`{"spec":{"replicas":1}}`, `{"spec":{"replicas":2,"template":{"metadata":{"labels":{"a":"1"}},"spec":{"nodeName":"n1"}}}}`,
			"specification > objectMeta > labels > label(a),specification > scale,specification > specification > nodeAssignment",
		},
		{
			"two levels", "batch", "cronjobs",
			`{"spec":{"jobTemplate":{"spec":{"template":{"spec":{}}}}}}`, `{"spec":{"jobTemplate":{"metadata":{"labels":{"a":"1"}},"spec":{"template":{"spec":{"nodeName":"n1"}}}}}}`,
			"specification > objectMeta > labels > label(a),specification > specification > specification > nodeAssignment",
		},
		{
			"outside of spec", "", "podtemplates",
			`{"template":{"spec":{}}}`, `{"template":{"spec":{"nodeName":"n1"}}}`,
			"specification > nodeAssignment",
		},
		{
			"beside the template", "", "podtemplates",
			`{}`, `{"other":1}`, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			chains := Update(set.Tree(c.group, "v1", c.resource), object(t, c.old), object(t, c.new))
			if got := strings.Join(words(chains), ","); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if len(Excluded(chains)) > 0 {
				t.Error("the ordinary permission does not contain it")
			}
		})
	}
	root := set.Tree("granular.authzconf.dev", "v1", "widgetsets")
	chains := Update(
		root,
		object(t, `{}`),
		object(t, `{"spec":{"replicas":1,"template":{"spec":{"triggerSelfDestructOnSecurityBreach":true}}}}`),
	)
	if got := strings.Join(words(Excluded(chains)), ","); got != "specification > specification > selfDestruction" {
		t.Errorf("excluded: %s", got)
	}
}
