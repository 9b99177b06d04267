// Package deputy is about tools that act for many people, such as a dashboard that impersonates each of its users. What
// a scenario can say about them is in the folder periscope. This package checks on a running API server what a scenario
// cannot: that a pre-flight says what the request then does, that the deputy's own audit log says the same as the API
// server's, and that nobody becomes somebody else through a tunnel.
//
// The files called judge_… judge what was recorded, and fill in a judgement, whose method result returns the verdict.
package deputy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/engine/server"
)

// options say what is run.
type options struct {
	// target is the control plane that is started, with its gate ConstrainedImpersonation on.
	target server.Options
	// impersonation are the ways in which the proxy identity may impersonate. Each has a control plane of its own.
	impersonation []string
	// parts are some of Parts. If it is empty, they are all parts that exist for the proxy or for the references.
	parts []string
	// pairs is how many questions the pre-flight is tried with. users is how many people send requests at the same
	// time, and requests how many each of them sends.
	pairs, users, requests int
	seed                   int64
	// clusters are the names of two clusters behind one proxy or one hub. It is empty if there is one cluster, which
	// has no name.
	clusters []string
	// proxy, if it is given, is tried instead of the reference deputy and agent.
	proxy *Proxy
}

const (
	legacy      = "legacy"
	constrained = "constrained"
	// existingCluster is used in place of a way of impersonation on a cluster that somebody else made.
	existingCluster = "existing"
)

// Impersonations returns the ways in which a proxy identity can be granted impersonation.
func Impersonations() []string { return []string{legacy, constrained} }

// These are the parts of the suite.
const (
	preflightPart  = "preflight"
	auditLogsPart  = "audit-logs"
	attacksPart    = "attacks"
	tunnelPart     = "tunnel"
	revocationPart = "revocation"
)

// Parts returns the parts of the suite, in the order in which they run.
func Parts() []string {
	return []string{preflightPart, auditLogsPart, attacksPart, tunnelPart, revocationPart}
}

// maxAsked is more than a control plane on one machine answers in reasonable time.
const maxAsked = 10000

// check returns an error if the options cannot be run. If read is false, as for a report, no file that the options name
// is read.
func (o options) check(read bool) error {
	if err := checkNames("impersonation", o.impersonation, Impersonations()); err != nil {
		return err
	}
	if err := checkNames("part", o.parts, Parts()); err != nil {
		return err
	}
	if err := checkClusters(o.clusters); err != nil {
		return err
	}
	least, most := min(o.pairs, o.users, o.requests), max(o.pairs, o.users, o.requests)
	switch {
	case least < 1 || most > maxAsked:
		return fmt.Errorf("--pairs %d, --users %d, --requests-each %d: expected 1 to %d of each", o.pairs, o.users, o.requests, maxAsked)
	case !slices.ContainsFunc(o.existingParts(), o.isSelected):
		return errors.New("the part tunnel is about the reference agent, revocation about a --proxy with --revoke-command: nothing is left to be tried")
	case o.proxy == nil:
		return nil
	}
	return o.proxy.check(o.clusters, read)
}

// clusterName matches the names that a cluster may have. The name is used in paths, and names a context and files.
var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// checkClusters returns an error unless there are two clusters with distinct names, or none with a name.
func checkClusters(names []string) error {
	for _, name := range names {
		if !clusterName.MatchString(name) {
			return fmt.Errorf("--clusters: %q is not a name (expected small letters, digits, dashes and dots)", name)
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case len(names) != 2:
		return fmt.Errorf("--clusters %s: expected the names of two clusters, such as east,west", strings.Join(names, ","))
	case names[0] == names[1]:
		return fmt.Errorf("--clusters %s: expected two different clusters", strings.Join(names, ","))
	}
	return nil
}

// checkNames returns an error for the first name that is not one of the known ones.
func checkNames(what string, names, knownNames []string) error {
	for _, name := range names {
		if !slices.Contains(knownNames, name) {
			return fmt.Errorf("there is no %s %q (expected one of %s)", what, name, strings.Join(knownNames, ", "))
		}
	}
	return nil
}

// ways returns the ways in which the proxy identity may impersonate. On a running cluster they are not ours to choose.
func (o options) ways() []string {
	if o.proxy != nil && o.proxy.Kubeconfig != "" {
		return []string{existingCluster}
	}
	return o.impersonation
}

// existingParts returns the parts that exist for what is tried.
func (o options) existingParts() []string {
	return slices.DeleteFunc(Parts(), func(part string) bool {
		switch part {
		case tunnelPart:
			return o.proxy != nil
		case revocationPart:
			return o.proxy == nil || o.proxy.Revoke == ""
		}
		return false
	})
}

// isSelected reports whether --parts selects a part.
func (o options) isSelected(part string) bool {
	return len(o.parts) == 0 || slices.Contains(o.parts, part)
}
