package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"
)

// FGAModel is the OpenFGA model of the policy. Relations know no wildcards within names, so every combination of a
// grant's verbs, groups, resources and names is a permission of its own, and a review asks for all those that
// would cover it: the asker states them, and the user's groups, as contextual tuples of one request.
const FGAModel = `model
  schema 1.1

type user

type group
  relations
    define member: [user]

type permission
  relations
    define holder: [user, group#member]

type request
  relations
    define asks: [permission]
    define allowed: holder from asks
`

// FGATuple is a relationship.
type FGATuple struct {
	User     string `json:"user"`
	Relation string `json:"relation"`
	Object   string `json:"object"`
}

// OpenFGA is the policy as a store file of the fga command line: the model, and a tuple for each thing that is
// granted to somebody. The IDs are those of FGAUser, FGAGroup and FGARequest.
func (p *Policy) OpenFGA() ([]byte, error) {
	var tuples []FGATuple
	seen := map[FGATuple]bool{}
	for _, g := range p.Grants {
		holder := FGAUser(g.Subject.User)
		if g.Subject.Group != "" {
			holder = FGAGroup(g.Subject.Group) + "#member"
		}
		names := []any{nil} // any
		if len(g.Names) > 0 {
			names = anys(g.Names)
		}
		var namespace any
		if g.Namespace != "" {
			namespace = g.Namespace
		}
		permissions := combine([][]any{anys(g.Verbs), anys(g.APIGroups), anys(g.Resources), {namespace}, names})
		permissions = append(permissions, combine([][]any{anys(g.Verbs), anys(g.NonResourceURLs)})...)
		for _, permission := range permissions {
			t := FGATuple{holder, "holder", permissionID(permission)}
			if !seen[t] {
				seen[t] = true
				tuples = append(tuples, t)
			}
		}
	}
	return yaml.Marshal(struct {
		Name   string     `json:"name"`
		Model  string     `json:"model"`
		Tuples []FGATuple `json:"tuples"`
	}{fmt.Sprintf("authzconf-certification-%d", p.Seed), FGAModel, tuples})
}

// maxFGAName is how long an escaped name may be in an ID.
const maxFGAName = 200

// FGAUser is the ID of a user.
func FGAUser(name string) string { return "user:" + fgaName(name) }

// FGAGroup is the ID of a group.
func FGAGroup(name string) string { return "group:" + fgaName(name) }

// fgaName writes what IDs may not have as in URLs. What is too long becomes a digest, and nothing is empty.
func fgaName(name string) string {
	if escaped := url.QueryEscape(name); len(escaped) <= maxFGAName {
		return "=" + escaped
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// FGARequest are the permissions of which any one covers a review.
func FGARequest(s authorizationv1.SubjectAccessReviewSpec) (ids []string) {
	var parts [][]any
	if a := s.ResourceAttributes; a != nil {
		full, resources := a.Resource, []any{"*"}
		if a.Subresource != "" {
			full += "/" + a.Subresource
			resources = append(resources, "*/"+a.Subresource)
		}
		parts = [][]any{{a.Verb, "*"}, {a.Group, "*"}, append(resources, full), {a.Namespace, nil}, {a.Name, nil}}
	} else if a := s.NonResourceAttributes; a != nil {
		paths := []any{a.Path}
		for i := range len(a.Path) + 1 {
			paths = append(paths, a.Path[:i]+"*")
		}
		parts = [][]any{{a.Verb, "*"}, paths}
	}
	seen := map[string]bool{}
	for _, permission := range combine(parts) {
		if id := permissionID(permission); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// permissionID is the ID of verb, API group, resource, namespace and name, or of verb and path; null is any
// namespace or name. It is a digest, because names are longer than IDs may be.
func permissionID(parts []any) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		panic(err) // of strings and nil: cannot happen
	}
	sum := sha256.Sum256(raw)
	return "permission:" + hex.EncodeToString(sum[:])
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = strings.ToValidUTF8(s, "\uFFFD")
	}
	return out
}

// combine is every way to take one of each.
func combine(parts [][]any) [][]any {
	if len(parts) == 0 {
		return nil
	}
	out := [][]any{{}}
	for _, options := range parts {
		var next [][]any
		for _, begun := range out {
			for _, o := range options {
				next = append(next, append(append([]any{}, begun...), o))
			}
		}
		out = next
	}
	return out
}
