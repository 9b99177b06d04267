package cases

import (
	"slices"
	"strings"
)

// Factor is one thing in which cases differ.
type Factor struct {
	Name   string
	Levels []string
}

// The factors, by their place in a Choice.
const (
	wanted = iota
	requestor
	uid
	groups
	extra
	mode
	action
	identity
	legacy
	request
	selector
	rights
	sequence
	change
	factorCount
)

// factors are all factors with their levels. What a level means is in the functions that switch on it.
var factors = [factorCount]Factor{
	// Who is to be impersonated: names of each kind, and names that nearly parse.
	wanted: {"wanted", []string{
		"node", "node-capitals", "node-empty", "account", "account-one-part", "account-capitals",
		"anonymous", "user", "nobody",
	}},
	// Who asks.
	requestor: {"requestor", []string{
		"user", "group-member", "user-on-node", "account", "account-on-node", "account-on-other-node",
		"account-on-two-nodes", "account-in-pod",
	}},
	uid: {"uid", []string{"none", "given"}},
	groups: {"groups", []string{
		"none", "one", "two-equal", "three", "four", "five-equal", "empty", "masters", "nodes", "unauthenticated", "authenticated",
	}},
	extra: {"extra", []string{
		"none", "one", "three", "four", "two-keys", "five-on-two-keys", "no-domain", "capitals", "encoded",
		"empty-key", "empty-value", "no-values", "several-bad",
	}},
	// Which modes the action and identity grants are about.
	mode: {"mode", []string{"fitting", "all", "associated-node", "arbitrary-node", "serviceaccount", "user-info"}},
	action: {"action", []string{
		"none", "exact", "verb-star", "all-resources", "names", "names-star", "namespaced", "elsewhere", "other-verb",
	}},
	identity: {"identity", []string{
		"none", "exact", "any", "names-star", "everything", "verb-star", "name-only", "no-name", "no-extra",
		"one-group-missing", "namespaced", "core-group", "other-mode",
	}},
	legacy: {"legacy", []string{
		"none", "exact", "any", "name-only", "no-name", "no-extra", "names-star", "everything", "other-group",
	}},
	request: {"request", []string{
		"get", "list", "list-all", "watch", "create", "update", "patch", "delete", "deletecollection",
		"status", "exec", "exec-create", "log", "token", "get-node", "list-nodes", "custom", "custom-cluster",
		"path", "path-post", "discovery",
	}},
	selector: {"selector", []string{
		"none", "name", "node", "not-equal", "label", "label-set", "label-exists", "both", "bad-field", "bad-label",
	}},
	// What the impersonated user may do then.
	rights: {"rights", []string{"none", "user", "group", "everything"}},
	sequence: {"sequence", []string{
		"once", "repeat", "other-request", "other-wanted", "legacy-first", "other-pod", "same-name-other-extra", "four",
	}},
	change: {"change", []string{"none", "revoke-action", "revoke-identity", "revoke-legacy", "grant-action", "grant-legacy"}},
}

// Choice is one level of each factor, by index.
type Choice [factorCount]int

func (c Choice) level(f int) string { return factors[f].Levels[c[f]] }

func (c Choice) is(f int, levels ...string) bool { return slices.Contains(levels, c.level(f)) }

// String names the factors that are not at their first level.
func (c Choice) String() string {
	var parts []string
	for f := range factors {
		if c[f] != 0 {
			parts = append(parts, factors[f].Name+"="+c.level(f))
		}
	}
	if len(parts) == 0 {
		return "everything at its first level"
	}
	return strings.Join(parts, " ")
}
