# The rules behind the grants. Those for verbs, groups, resources, names and paths are RBAC's
# (k8s.io/component-helpers/auth/rbac/validation and k8s.io/kubernetes/pkg/apis/rbac/v1/evaluation_helpers.go).
package authzconf.certification

default allow := false

allow if {
	some grant in grants.by_user[input.user]
	covers(grant)
}

allow if {
	some group in input.groups
	some grant in grants.by_group[group]
	covers(grant)
}

# A review of both a resource and a path is none that an API server would accept.
covers(grant) if {
	not input.nonResourceAttributes
	asked := input.resourceAttributes
	matches(grant.verbs, object.get(asked, "verb", ""))
	matches(grant.apiGroups, object.get(asked, "group", ""))
	some resource in grant.resources
	matches_resource(resource, asked.resource, object.get(asked, "subresource", ""))
	matches_namespace(grant, object.get(asked, "namespace", ""))
	matches_name(grant, object.get(asked, "name", ""))
}

covers(grant) if {
	not input.resourceAttributes
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

matches_namespace(grant, _) if not grant.namespace

matches_namespace(grant, namespace) if grant.namespace == namespace

matches_name(grant, _) if not grant.resourceNames

matches_name(grant, name) if name in grant.resourceNames

matches_path(path, path)

matches_path(granted, path) if {
	endswith(granted, "*")
	startswith(path, trim_suffix(granted, "*"))
}
