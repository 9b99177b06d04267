package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Cedar returns the policy as Cedar policies, one for each grant, in an entity model of this project that the head of
// the file explains. What no policy permits gets no opinion. CedarK8s returns the policy in the model of another
// project.
func (p *Policy) Cedar() ([]byte, error) {
	out := fmt.Appendf(nil, `// The policy of certification, seed %d, for any engine of Cedar.
// A review is the request k8s::User::"<user>" (in k8s::Group::"<group>" ...), k8s::Action::"<verb>", and a
// k8s::Resource with apiGroup, resource, subresource, namespace and name, each "" where the review has none,
// or a k8s::NonResourceURL with path.
`, p.Seed)
	for i, g := range p.Grants {
		principal := `principal == k8s::User::` + cedarString(g.Subject.User)
		if g.Subject.Group != "" {
			principal = `principal in k8s::Group::` + cedarString(g.Subject.Group)
		}
		resource, when := cedarScope(g, false)
		out = cedarPermit(out, fmt.Sprintf("@id(\"grant-%d\")", i), principal, g.Verbs, resource, when)
	}
	return out, nil
}

// cedarPermit appends a permit statement to a file.
func cedarPermit(out []byte, annotation, principal string, verbs []string, resource string, when []string) []byte {
	action := "action"
	if !slices.Contains(verbs, "*") {
		action = "action in [" + cedarList("k8s::Action::", verbs) + "]"
	}
	out = fmt.Appendf(out, "\n%s\npermit (%s, %s, %s)", annotation, principal, action, resource)
	if len(when) > 0 {
		out = fmt.Appendf(out, "\nwhen { %s }", strings.Join(when, " && "))
	}
	return append(out, ";\n"...)
}

// cedarScope returns what a grant is about, and its conditions. An attribute without a value is "", or absent if absent
// is set.
func cedarScope(g scenarios.Grant, absent bool) (resource string, when []string) {
	if len(g.NonResourceURLs) > 0 {
		return "resource is k8s::NonResourceURL", cedarPaths(g.NonResourceURLs)
	}
	hasValue := cedarMandatory
	if absent {
		hasValue = cedarOptional
	}
	if !slices.Contains(g.APIGroups, "*") {
		when = append(when, cedarMandatory("apiGroup", g.APIGroups...))
	}
	if !slices.Contains(g.Resources, "*") {
		var conditions []string
		for _, r := range g.Resources {
			resource, sub, _ := strings.Cut(r, "/")
			condition := hasValue("subresource", sub)
			if resource != "*" {
				condition = cedarMandatory("resource", resource) + " && " + condition
			}
			conditions = append(conditions, condition)
		}
		when = append(when, "("+strings.Join(conditions, " || ")+")")
	}
	if g.Namespace != "" {
		when = append(when, hasValue("namespace", g.Namespace))
	}
	if len(g.Names) > 0 {
		when = append(when, hasValue("name", g.Names...))
	}
	return "resource is k8s::Resource", when
}

// cedarMandatory returns the condition that an attribute has one of some values. The attribute is always there.
func cedarMandatory(attribute string, values ...string) string {
	if len(values) == 1 {
		return "resource." + attribute + " == " + cedarString(values[0])
	}
	return "[" + cedarList("", values) + "].contains(resource." + attribute + ")"
}

// cedarOptional returns the condition that an attribute has one of some values. The attribute is absent if it has no
// value.
func cedarOptional(attribute string, values ...string) string {
	if slices.Equal(values, []string{""}) {
		return "!(resource has " + attribute + ")"
	}
	return "resource has " + attribute + " && " + cedarMandatory(attribute, values...)
}

// cedarPaths returns the conditions of a grant for paths. Only a * at the end matches more than itself.
func cedarPaths(paths []string) []string {
	var conditions []string
	for _, path := range paths {
		if prefix, ok := strings.CutSuffix(path, "*"); ok {
			pattern := strings.ReplaceAll(cedarString(prefix), "*", `\*`)
			conditions = append(conditions, "resource.path like "+strings.TrimSuffix(pattern, `"`)+`*"`)
		} else {
			conditions = append(conditions, "resource.path == "+cedarString(path))
		}
	}
	return []string{"(" + strings.Join(conditions, " || ") + ")"}
}

func cedarList(before string, list []string) string {
	return strings.Join(seq.Map(list, func(s string) string { return before + cedarString(s) }), ", ")
}

// cedarString returns a string literal. Characters other than printable ASCII are written as \u{...}.
func cedarString(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < ' ' || r >= 0x7f:
			_, _ = fmt.Fprintf(&out, `\u{%x}`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

// impersonatedResources are the resources that API servers ask about with the verb impersonate, and the entity that each
// becomes.
var impersonatedResources = []struct{ group, resource, entity string }{
	{"", "users", "k8s::User"}, {"", "users", "k8s::Node"}, {"", "groups", "k8s::Group"}, {"", "serviceaccounts", "k8s::ServiceAccount"},
	{"authentication.k8s.io", "uids", "k8s::PrincipalUID"}, {"authentication.k8s.io", "userextras", "k8s::Extra"},
}

// CedarK8s returns the policy in the entity model of cedar-access-control-for-k8s: a file for each type of principal,
// and a list of what cannot be expressed in it. Entities are told apart by their attributes, because the ID of a
// principal is its UID. An attribute without a value is absent. The files are ASCII, because the parser of that project
// drops a whole file if it refuses a part of it.
func (p *Policy) CedarK8s() (map[string][]byte, error) {
	e := &cedarExport{files: map[string][]byte{}, seed: p.Seed}
	for i, g := range p.Grants {
		e.add(i, g)
	}
	for _, g := range e.inexpressible {
		raw, err := json.Marshal(g)
		if err != nil {
			return nil, err
		}
		e.files["left-out.txt"] = fmt.Appendln(e.files["left-out.txt"], asciiJSON(raw))
	}
	return e.files, nil
}

// cedarExport makes the files of CedarK8s.
type cedarExport struct {
	files map[string][]byte
	// inexpressible are the grants, or parts of grants, that cannot be expressed.
	inexpressible []scenarios.Grant
	seed          int64
}

// add writes a grant.
func (e *cedarExport) add(i int, g scenarios.Grant) {
	file, principal, when := cedarPrincipal(g.Subject)
	if file == "" {
		e.inexpressible = append(e.inexpressible, g)
		return
	}
	if e.files[file] == nil {
		e.files[file] = fmt.Appendf(
			nil,
			"// The policy of certification, seed %d, in the entity model of cedar-access-control-for-k8s.\n",
			e.seed,
		)
	}
	permit := func(verbs []string, resource string, conditions []string) {
		e.files[file] = cedarPermit(
			e.files[file],
			fmt.Sprintf("@grant(\"%d\")", i),
			principal,
			verbs,
			resource,
			slices.Concat(when, conditions),
		)
	}
	if len(g.Resources) == 0 {
		resource, when := cedarScope(g, true)
		permit(g.Verbs, resource, when)
		return
	}
	var verbs []string
	for _, verb := range g.Verbs {
		if verb != "impersonate" {
			verbs = append(verbs, verb)
		}
		if verb == "impersonate" || verb == "*" {
			e.addImpersonation(g, permit)
		}
	}
	if len(verbs) > 0 {
		resource, when := cedarScope(g, true)
		permit(verbs, resource, when)
	}
}

// addImpersonation writes whom a grant allows somebody to impersonate. Impersonation has entities of its own.
func (e *cedarExport) addImpersonation(g scenarios.Grant, permit func(verbs []string, resource string, when []string)) {
	g.Verbs = []string{"impersonate"}
	for _, part := range g.Parts() {
		if !cedarImpersonate(part, func(resource string, when []string) { permit(part.Verbs, resource, when) }) {
			e.inexpressible = append(e.inexpressible, part)
		}
	}
}

// cedarPrincipal returns the file, the principal and the conditions for the subject of a grant. They are empty if the
// model has no principal for it.
func cedarPrincipal(s scenarios.Subject) (file, principal string, when []string) {
	parts := strings.Split(s.User, ":")
	isServiceAccount, isNodeLike := strings.HasPrefix(s.User, "system:serviceaccount:"), strings.HasPrefix(s.User, "system:node:")
	isOther := strings.HasPrefix(s.User, "system:") && !isServiceAccount && !isNodeLike
	name := "principal.name == " + cedarString(parts[len(parts)-1])
	switch {
	case s.Group != "":
		return "groups.cedar", "principal in k8s::Group::" + cedarString(s.Group), nil
	case isNode(s.User):
		return "nodes.cedar", "principal is k8s::Node", []string{name}
	case isServiceAccount && len(parts) == 4:
		return "serviceaccounts.cedar", "principal is k8s::ServiceAccount", []string{
			"principal.namespace == " + cedarString(parts[2]),
			name,
		}
	case isOther:
		return "", "", nil
	}
	return "users.cedar", "principal is k8s::User", []string{"principal.name == " + cedarString(s.User)}
}

// isNode reports whether a user is a k8s::Node. Then the node's name is what follows the prefix.
func isNode(user string) bool {
	return strings.HasPrefix(user, "system:node:") && strings.Count(user, ":") == 2
}

// cedarImpersonate permits what a part of a grant allows somebody to impersonate. It reports whether it could express
// all of it.
func cedarImpersonate(part scenarios.Grant, permit func(resource string, when []string)) (isComplete bool) {
	group, name := part.APIGroups[0], strings.Join(part.Names, "")
	resource, sub, _ := strings.Cut(part.Resources[0], "/")
	for _, i := range impersonatedResources {
		isGroup, isResource := group == i.group || group == "*", resource == i.resource || resource == "*"
		isScope := part.Namespace == "" || i.resource == "serviceaccounts"
		isCovered := isGroup && isResource && isScope
		if !isCovered {
			continue
		}
		is, when := "resource is "+i.entity, []string(nil)
		ofOtherKind := name != "" && i.resource == "users" && isNode(name) != (i.entity == "k8s::Node")
		switch {
		case i.entity == "k8s::Extra":
			if part.Resources[0] != "*" {
				when = append(when, "resource.key == "+cedarString(sub))
			}
			when = append(when, cedarEqual("value", name)...)
		case sub != "" || ofOtherKind:
			continue
		case i.entity == "k8s::ServiceAccount":
			when = slices.Concat(cedarEqual("namespace", part.Namespace), cedarEqual("name", name))
		case name != "": // the ID is the name here
			is = "resource == " + i.entity + "::" + cedarString(name)
		}
		permit(is, when)
		isComplete = group != "*" && resource != "*"
	}
	return isComplete
}

// cedarEqual returns the condition that an attribute has a value, or none if the value is empty.
func cedarEqual(attribute, value string) []string {
	if value == "" {
		return nil
	}
	return []string{fmt.Sprintf("resource has %[1]s && resource.%[1]s == %[2]s", attribute, cedarString(value))}
}

// fgaModel is the OpenFGA model of the policy.
//
//go:embed model.fga
var fgaModel string

// FGATuple is a relationship.
type FGATuple struct {
	User     string `json:"user"`
	Relation string `json:"relation"`
	Object   string `json:"object"`
}

// OpenFGA returns the policy as a store file of the fga command line: the model, and a tuple for each thing that is
// granted to somebody. The IDs are those of FGAUser, FGAGroup and FGAPermission.
func (p *Policy) OpenFGA() ([]byte, error) {
	var tuples []FGATuple
	for _, g := range p.Grants {
		holder := FGAUser(g.Subject.User)
		if g.Subject.Group != "" {
			holder = FGAGroup(g.Subject.Group) + "#member"
		}
		tuples = append(tuples,
			seq.Map(g.Parts(), func(part scenarios.Grant) FGATuple { return FGATuple{holder, "holder", FGAPermission(part)} })...)
	}
	tuples = seq.UniqueBy(tuples, func(t FGATuple) string { return t.User + " " + t.Object }) // neither contains a space
	return yaml.Marshal(struct {
		Name   string     `json:"name"`
		Model  string     `json:"model"`
		Tuples []FGATuple `json:"tuples"`
	}{fmt.Sprintf("authzconf-certification-%d", p.Seed), fgaModel, tuples})
}

// maxFGAName is the longest escaped name that an ID contains.
const maxFGAName = 200

// FGAUser returns the ID of a user.
func FGAUser(name string) string { return "user:" + fgaName(name) }

// FGAGroup returns the ID of a group.
func FGAGroup(name string) string { return "group:" + fgaName(name) }

// fgaName escapes what IDs cannot contain as in URLs. A name that is too long becomes a digest, and no result is empty.
func fgaName(name string) string {
	if escaped := url.QueryEscape(name); len(escaped) <= maxFGAName {
		return "=" + escaped
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// FGAPermission returns the ID of what a part of a grant (scenarios.Grant.Parts) allows. It is a digest of the part
// without its subject, because names can be longer than IDs.
func FGAPermission(part scenarios.Grant) string {
	part.Subject = scenarios.Subject{}
	raw, err := json.Marshal(part)
	if err != nil {
		panic(err) // a structure of strings can always be encoded
	}
	sum := sha256.Sum256(raw)
	return "permission:" + hex.EncodeToString(sum[:])
}
