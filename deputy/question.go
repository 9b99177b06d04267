package deputy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// kind is a kind of object that questions are about.
type kind struct {
	group, version, resource, sub string
	cluster                       bool
}

var kinds = []kind{
	{"", "v1", "pods", "", false},
	{"", "v1", "pods", "log", false},
	{"", "v1", "configmaps", "", false},
	{"", "v1", "secrets", "", false},
	{"", "v1", "nodes", "", true},
	{"apps", "v1", "deployments", "", false},
	{"apps", "v1", "deployments", "scale", false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "", true},
}

func (k kind) fullResource() string { return scenarios.FullResource(k.resource, k.sub) }

// verbs are the verbs, and for each whether it names an object.
var verbs = map[string]bool{
	"get": true, "list": false, "watch": false, "create": false, "update": true, "patch": true, "delete": true, "deletecollection": false,
}

func sortedVerbs() []string { return slices.Sorted(maps.Keys(verbs)) }

var objectNames = []string{"web", "db"}

// question is a question of the pre-flight and the request that it is about.
type question struct {
	who       *Identity
	verb      string
	kind      kind
	namespace string
	name      string
}

func (q question) String() string {
	s := fmt.Sprintf("%s: %s %s", q.who.Name, q.verb, q.kind.fullResource())
	if q.name != "" {
		s += " " + q.name
	}
	if q.namespace != "" {
		s += " in " + q.namespace
	}
	return s
}

// attributes returns what the pre-flight asks about.
func (q question) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb:        q.verb,
		Group:       q.kind.group,
		Version:     q.kind.version,
		Resource:    q.kind.resource,
		Subresource: q.kind.sub,
		Namespace:   q.namespace,
		Name:        q.name,
	}
}

// review returns the self-subject access review of the question.
func (q question) review() *scenarios.Request {
	return selfReview("SelfSubjectAccessReview", map[string]any{"resourceAttributes": q.attributes()})
}

// selfReview returns a request for a review of the requestor's own permissions.
func selfReview(kind string, spec map[string]any) *scenarios.Request {
	return &scenarios.Request{
		Verb: "create", APIGroup: "authorization.k8s.io", Version: "v1", Resource: strings.ToLower(kind) + "s",
		Body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
	}
}

// request returns the real request as a dry run. Its answer shows what authorization decided, whatever follows.
func (q question) request() *scenarios.Request {
	r := &scenarios.Request{
		Verb: q.verb, APIGroup: q.kind.group, Version: q.kind.version, Resource: q.kind.resource, Subresource: q.kind.sub,
		Namespace: q.namespace, Name: q.name, Query: map[string]string{},
	}
	switch q.verb {
	case "create", "update", "patch":
		r.Body = map[string]any{}
		r.Query["dryRun"] = "All"
	case "delete", "deletecollection":
		r.Query["dryRun"] = "All"
	}
	return r
}

// rulesKey identifies the rules that a question is about, by person and namespace. Rules that apply to the whole
// cluster are in every namespace's.
func (f *fixture) rulesKey(q question) string {
	return q.who.Name + "/" + cmp.Or(q.namespace, f.namespaces[0])
}

// questionsByRules returns, by the keys of rules, one question for each of the rules that the questions are about.
func (f *fixture) questionsByRules(questions []question) map[string]question {
	out := map[string]question{}
	for _, q := range seq.UniqueBy(questions, f.rulesKey) {
		out[f.rulesKey(q)] = q
	}
	return out
}

// rulesReview returns the request for the rules that a question is about.
func (f *fixture) rulesReview(q question) *scenarios.Request {
	return selfReview("SelfSubjectRulesReview", map[string]any{"namespace": cmp.Or(q.namespace, f.namespaces[0])})
}
