package permissions

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// embedded describes things with a template, which have a template themselves.
const embedded = `kind: FieldPermissions
resources:
  - group: "*"
    versions: ["*"]
    resource: "*"
    fields: [{path: spec, verb: specification}, {path: labels.*, verb: label, parameter: {source: mapKey}}, {path: status, verb: status}]
  - group: g
    versions: [v1]
    resource: things
    fields:
      - {path: spec.secret, verb: secrecy, excluded: true}
      - {path: labels.*, verb: label, parameter: {source: mapKey}, excludedItems: [mine]}
  - group: g
    versions: [v1, v2]
    resource: sets
    fields: [{path: spec.count, verb: scale}]
    embeds: [{path: spec.template, group: g, version: v1, resource: things}]
  - group: g
    versions: [v1]
    resource: plans
    embeds: [{path: spec.set, group: g, version: v1, resource: sets}]
`

// listGuards returns the fields of a resource in its version v1, as "path verb", with a mark on what is excluded.
func listGuards(set *Set, name string) (out []string) {
	for _, f := range set.Fields("g", "v1", name) {
		text := f.Path + " " + f.Verb
		if f.excludes() {
			text += " excluded"
		}
		out = append(out, text)
	}
	return out
}

// TestEmbeds checks which fields a resource has by what it embeds. It has neither those of a status nor the rule about
// the label mine, which is one about things.
func TestEmbeds(t *testing.T) {
	set, err := Parse("f.yaml", []byte(embedded))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"spec specification", "labels.* label", "status status"}
	for name, want := range map[string][]string{
		"things": {"spec.secret secrecy excluded", "labels.* label excluded"},
		"sets":   {"spec.count scale", "spec.template.spec specification", "spec.template.labels.* label", "spec.template.spec.secret secrecy excluded"},
		"plans": {
			"spec.set.spec specification", "spec.set.labels.* label", "spec.set.spec.count scale",
			"spec.set.spec.template.spec specification", "spec.set.spec.template.labels.* label", "spec.set.spec.template.spec.secret secrecy excluded",
		},
	} {
		if got := listGuards(set, name); !slices.Equal(got, slices.Concat(all, want)) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, version := range []string{"v1", "v2"} {
		root := set.Tree("g", version, "sets").Child("spec").Child("template")
		if secret := root.Child("spec").Child("secret").Field; !secret.Excluded || secret.Path != "spec.template.spec.secret" {
			t.Errorf("%s: %+v", version, secret)
		}
		if root.Child("labels").Items().Field.excludes() {
			t.Errorf("%s: a rule about things is one about sets", version)
		}
	}
	if set.Resources[1].Fields[0].Path != "spec.secret" {
		t.Error("the description of things has changed")
	}
}

// TestEmbedsAreListed checks that the list of permissions, and the policies, have embedded fields.
func TestEmbedsAreListed(t *testing.T) {
	set, err := Parse("f.yaml", []byte(embedded))
	if err != nil {
		t.Fatal(err)
	}
	want := Guard{Resource: "plans.g", Versions: "v1", Path: "spec.set.spec.template.spec.secret", Verb: "granular:secrecy", Ordinary: "no"}
	if all := set.Guards(); !slices.Contains(all, want) {
		t.Errorf("%+v is not listed: %+v", want, all)
	}
	verbs := set.Verbs()
	i := slices.IndexFunc(verbs, func(v Verb) bool { return v.Verb == "granular:secrecy" })
	fields := []string{
		"things.g spec.secret",
		"sets.g spec.template.spec.secret",
		"plans.g spec.set.spec.template.spec.secret",
	}
	if !slices.Equal(verbs[i].Fields, fields) {
		t.Errorf("granular:secrecy guards %q, want %q", verbs[i].Fields, fields)
	}
	text, err := set.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"object.?spec.?template.?spec.?secret ==", "object.?spec.?set.?spec.?template.?spec.?secret ==",
		`message: "granular:specification or granular:secrecy is needed to change spec.set.spec.template.spec.secret"`,
	} {
		if strings.Count(string(text), part) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(string(text), part), part, text)
		}
	}
}

func TestParseEmbeds(t *testing.T) {
	const template, plan = "{path: spec.template, group: g, version: v1, resource: things}", "{path: spec.set, group: g, version: v1, resource: sets}"
	const count = "{path: spec.count, verb: scale}"
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"a verb at the embedded resource", count, "{path: spec.template, verb: template}", ""},
		{"excluded around it", count, "{path: spec.count, verb: scale, excluded: true}", ""},
		{"another name that begins like it", count, "{path: spec.templates, verb: scale, excluded: true}", ""},
		{"two apart", template, template + ", {path: spec.other, group: g, version: v1, resource: things}", ""},
		{"excluded in it", count, "{path: spec.template.spec.other, verb: other, excluded: true}", `f.yaml:16:15: path "spec.template.spec.other": it belongs to things, which "spec.template" embeds, expected it to be excluded only where things are described`},
		{"excluded at it", count, "{path: spec.template, verb: other, excluded: true}", `f.yaml:16:15: path "spec.template": it belongs to things`},
		{"keys excluded in it", count, "{path: spec.template.labels.*, verb: label, parameter: {source: mapKey}, excludedItems: [a]}", `f.yaml:16:15: path "spec.template.labels.*": it belongs to things`},
		{"excluded in it by every resource", "{path: status, verb: status}", "{path: spec.template.x, verb: x, excluded: true}", `f.yaml:17:15: path "spec.template.x": it belongs to things`},
		{"described again", count, "{path: spec.template.spec.secret, verb: secrecy}", `f.yaml:17:15: path "spec.template.spec.secret": described twice, expected it only where things are described`},
		{"a path twice", template, template + ", " + template, `f.yaml:17:79: path "spec.template": expected it apart from "spec.template", which embeds things already`},
		{"one in another", template, template + ", {path: spec.template.spec, group: g, version: v1, resource: things}", `f.yaml:17:79: path "spec.template.spec": expected it apart from "spec.template"`},
		{"one around another", template, template + ", {path: spec, group: g, version: v1, resource: things}", `f.yaml:17:79: path "spec": expected it apart from "spec.template"`},
		{"unknown resource", "resource: sets}", "resource: bags}", `f.yaml:21:15: path "spec.set": nothing describes bags of the group "g" in the version "v1", expected a resource that is described`},
		{"unknown group", plan, strings.Replace(plan, "group: g, ", "", 1), `f.yaml:21:15: path "spec.set": nothing describes sets of the group ""`},
		{"unknown version", plan, strings.Replace(plan, "v1", "v3", 1), `f.yaml:21:15: path "spec.set": nothing describes sets of the group "g" in the version "v3"`},
		{"itself", plan, strings.Replace(plan, "sets", "plans", 1), `f.yaml:21:15: path "spec.set": plans would embed itself, expected a resource that does not embed plans`},
		{"in a circle", template, strings.Replace(template, "things", "plans", 1), `f.yaml:17:15: path "spec.template": sets would embed itself`},
		{"no path", "path: spec.set, ", "", `f.yaml:21:15: path "": expected names of fields joined by dots`},
		{"items", "path: spec.set,", "path: spec.sets.*,", `f.yaml:21:15: path "spec.sets.*": expected names of fields joined by dots`},
		{"no version", plan, strings.Replace(plan, "version: v1, ", "", 1), `f.yaml:21:15: path "spec.set": version is "" and resource "sets", expected a version and the plural name of a resource`},
		{"every resource inside", "resource: sets}", `resource: "*"}`, `f.yaml:21:15: path "spec.set": version is "v1" and resource "*"`},
		{"in every resource", "{path: status, verb: status}]", "{path: status, verb: status}]\n    embeds: [" + template + "]", `f.yaml:7:15: path "spec.template": embeds in every resource, expected them in a resource with a name`},
		{"nothing", plan, "", `f.yaml:18:5: resource "plans": expected versions and fields, or embeds`},
		{"null", plan, "null", `f.yaml:21:14: embeds has no value`},
		{"unknown field", "group: g, version: v1, resource: sets}", "kind: Set}", `f.yaml:21:31: unknown field "kind"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(strings.Replace(embedded, c.old, c.new, 1)))
			requireError(t, err, c.want)
		})
	}
}

// TestLoadEmbeds reads an embedded resource from another file than what embeds it.
func TestLoadEmbeds(t *testing.T) {
	at := strings.Index(embedded, "  - group: g\n    versions: [v1, v2]")
	const head = "kind: FieldPermissions\nresources:\n"
	inner, outer := embedded[:at], head+embedded[at:]
	load := func(inner string) (*Set, error) {
		return Load(fstest.MapFS{"a.yaml": {Data: []byte(outer)}, "b.yaml": {Data: []byte(inner)}})
	}
	set, err := load(inner)
	if err != nil {
		t.Fatal(err)
	}
	if !set.Tree("g", "v1", "plans").Child("spec").Child("set").Child("spec").Child("template").Excluded() {
		t.Error("the excluded field of the other file is not found")
	}
	for name, c := range map[string]struct{ inner, want string }{
		"unknown":          {strings.Replace(inner, "resource: things", "resource: others", 1), `a.yaml:7:15: path "spec.template": nothing describes things`},
		"in a circle":      {inner + "    embeds: [{path: spec.plan, group: g, version: v1, resource: plans}]\n", `a.yaml:7:15: path "spec.template": sets would embed itself`},
		"excluded by both": {inner + "  - {group: g, versions: [v2], resource: sets, fields: [{path: spec.template.x, verb: x, excluded: true}]}\n", `a.yaml:7:15: path "spec.template.x": it belongs to things`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(c.inner); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := Parse("a.yaml", []byte(outer)); err == nil {
		t.Error("one file alone does not know what it embeds, and is not refused")
	}
}
