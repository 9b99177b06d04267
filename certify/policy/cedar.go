package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Cedar is the policy as Cedar policies, one for each grant, in the words of
// https://github.com/awslabs/cedar-access-control-for-k8s: principals are k8s::User, which may be in a k8s::Group;
// every verb is a k8s::Action; what is asked about is a k8s::Resource or a k8s::NonResourceURL, with the
// attributes of the review, all of them set. What no policy permits gets no opinion.
func (p *Policy) Cedar() ([]byte, error) {
	var out bytes.Buffer
	_, _ = fmt.Fprintf(&out, `// The policy of certification, seed %d.
// A review is the request k8s::User::"<user>" (in k8s::Group::"<group>" ...), k8s::Action::"<verb>", and a
// k8s::Resource with apiGroup, resource, subresource, namespace and name, each "" where the review has none,
// or a k8s::NonResourceURL with path.
`, p.Seed)
	for i, g := range p.Grants {
		principal := `principal == k8s::User::` + cedarString(g.Subject.User)
		if g.Subject.Group != "" {
			principal = `principal in k8s::Group::` + cedarString(g.Subject.Group)
		}
		action := "action"
		if !slices.Contains(g.Verbs, "*") {
			action = "action in [" + cedarList("k8s::Action::", g.Verbs) + "]"
		}
		resource, when := "resource is k8s::Resource", cedarResource(g)
		if len(g.NonResourceURLs) > 0 {
			resource, when = "resource is k8s::NonResourceURL", cedarPaths(g.NonResourceURLs)
		}
		_, _ = fmt.Fprintf(&out, "\n@id(\"grant-%d\")\npermit (%s, %s, %s)", i, principal, action, resource)
		if len(when) > 0 {
			_, _ = fmt.Fprintf(&out, "\nwhen { %s }", strings.Join(when, " && "))
		}
		out.WriteString(";\n")
	}
	return out.Bytes(), nil
}

// cedarResource are the conditions of a grant for resources.
func cedarResource(g scenarios.Grant) (when []string) {
	if !slices.Contains(g.APIGroups, "*") {
		when = append(when, "["+cedarList("", g.APIGroups)+"].contains(resource.apiGroup)")
	}
	if !slices.Contains(g.Resources, "*") {
		var some []string
		for _, r := range g.Resources {
			resource, sub, _ := strings.Cut(r, "/")
			condition := "resource.subresource == " + cedarString(sub)
			if resource != "*" {
				condition = "resource.resource == " + cedarString(resource) + " && " + condition
			}
			some = append(some, condition)
		}
		when = append(when, "("+strings.Join(some, " || ")+")")
	}
	if g.Namespace != "" {
		when = append(when, "resource.namespace == "+cedarString(g.Namespace))
	}
	if len(g.Names) > 0 {
		when = append(when, "["+cedarList("", g.Names)+"].contains(resource.name)")
	}
	return when
}

// cedarPaths are the conditions of a grant for paths. Only a * at the end matches more than itself.
func cedarPaths(paths []string) []string {
	var some []string
	for _, path := range paths {
		if prefix, ok := strings.CutSuffix(path, "*"); ok {
			pattern := strings.ReplaceAll(cedarString(prefix), "*", `\*`)
			some = append(some, "resource.path like "+strings.TrimSuffix(pattern, `"`)+`*"`)
		} else {
			some = append(some, "resource.path == "+cedarString(path))
		}
	}
	return []string{"(" + strings.Join(some, " || ") + ")"}
}

func cedarList(before string, list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = before + cedarString(s)
	}
	return strings.Join(out, ", ")
}

// cedarString is a string literal. What is not printable ASCII is written as \u{...}.
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
