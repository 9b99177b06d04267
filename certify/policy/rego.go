package policy

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/authzconf/authzconf/scenarios"
)

// regoRules are the rules behind the grants. The rules for verbs, groups, resources, names and paths are those of
// RBAC (k8s.io/component-helpers/auth/rbac/validation and
// k8s.io/kubernetes/pkg/apis/rbac/v1/evaluation_helpers.go).
const regoRules = `
default allow := false

allow if {
	some grant in by_user[input.user]
	covers(grant)
}

allow if {
	some group in input.groups
	some grant in by_group[group]
	covers(grant)
}

covers(grant) if {
	asked := input.resourceAttributes
	matches(grant.verbs, object.get(asked, "verb", ""))
	matches(grant.apiGroups, object.get(asked, "group", ""))
	some resource in grant.resources
	matches_resource(resource, asked.resource, object.get(asked, "subresource", ""))
	matches_namespace(grant, object.get(asked, "namespace", ""))
	matches_name(grant, object.get(asked, "name", ""))
}

covers(grant) if {
	asked := input.nonResourceAttributes
	matches(grant.verbs, object.get(asked, "verb", ""))
	some path in grant.nonResourceURLs
	matches_path(path, object.get(asked, "path", ""))
}

matches(list, _) if "*" in list

matches(list, value) if value in list

matches_resource("*", _, _)

matches_resource(resource, resource, "")

matches_resource(granted, resource, subresource) if {
	subresource != ""
	granted == concat("/", [resource, subresource])
}

matches_resource(granted, _, subresource) if {
	subresource != ""
	granted == concat("/", ["*", subresource])
}

matches_namespace(grant, _) if not grant.resourceNamespace

matches_namespace(grant, namespace) if grant.namespace == namespace

matches_name(grant, _) if not grant.resourceNames

matches_name(grant, name) if name in grant.resourceNames

matches_path(path, path)

matches_path(granted, path) if {
	endswith(granted, "*")
	startswith(path, trim_suffix(granted, "*"))
}
`

// Rego is the policy as a module for Open Policy Agent 1.0 and later. Its input is the spec of a v1
// SubjectAccessReview; where data.authzconf.certification.allow is false there is no opinion.
func (p *Policy) Rego() ([]byte, error) {
	users, groups := map[string][]scenarios.Grant{}, map[string][]scenarios.Grant{}
	for _, g := range p.Grants {
		if g.Subject.User != "" {
			users[g.Subject.User] = append(users[g.Subject.User], g)
		} else {
			groups[g.Subject.Group] = append(groups[g.Subject.Group], g)
		}
	}
	var out bytes.Buffer
	_, _ = fmt.Fprintf(&out, "# The policy of certification, seed %d.\npackage authzconf.certification\n%s", p.Seed, regoRules)
	for _, table := range []struct {
		name   string
		grants map[string][]scenarios.Grant
	}{{"by_user", users}, {"by_group", groups}} {
		raw, err := json.MarshalIndent(table.grants, "", "\t")
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(&out, "\n%s := %s\n", table.name, raw)
	}
	return out.Bytes(), nil
}
