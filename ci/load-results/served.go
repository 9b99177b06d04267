package main

import (
	"fmt"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// servedVariant is how long the requests of one variant took according to the API server, over all blocks of a run, by verb and
// scope.
type servedVariant struct {
	Variant string               `json:"variant"`
	Server  string               `json:"server"`
	Served  []run.ServedRequests `json:"served"`
}

// measureServed returns what the API servers of a run said of each variant; nothing of a variant of which they said nothing, and nothing
// where they were restarted: what they counted last is lost.
func measureServed(r *run.Run) (list []servedVariant) {
	if restartsServers(r.Profile) {
		return nil
	}
	for _, group := range judge.GroupVariants(r) {
		if served := run.MergeServed(group.Blocks); len(served) > 0 {
			list = append(list, servedVariant{group.Key.Variant, group.Key.Server, served})
		}
	}
	return list
}

// restartsServers reports whether a built-in profile restarts API servers. Those of ci/load-profiles do not.
func restartsServers(name string) bool {
	p, err := profile.Load(name, nil)
	return err == nil && p.Event.Kind != profile.NoEvent
}

// promisedPart is the part of the requests for which Kubernetes promises a time.
const promisedPart = 0.99

// servedCounts counts, over runs, the kinds of requests (variant, server, verb and scope) by whether the API server's own
// indicator says that they kept what Kubernetes promises.
type servedCounts struct {
	kept, broken int
	// byGate says that a kind broke the promise with the gate on that was kept with it off in the same run.
	byGate bool
}

// add counts the kinds of requests of a run, and returns a text for each that broke the promise.
func (counts *servedCounts) add(c column) (figures []string) {
	for _, v := range c.served {
		for _, s := range v.Served {
			if keepsPromise(s) {
				counts.kept++
				continue
			}
			counts.broken++
			if v.Server == "gate-on" && !brokenWithoutGate(c.served, s) {
				counts.byGate = true
			}
			figures = append(figures, fmt.Sprintf("%s, %s on %s, by the API server: %.2f %% of %d (%s, %s) within %s",
				c.Title, v.Variant, v.Server, 100*s.WithinObjective(), s.Count, s.Verb, s.Scope, s.Objective()))
		}
	}
	return figures
}

// String says how many kinds of requests kept what is promised.
func (counts servedCounts) String() string {
	if counts.kept+counts.broken == 0 {
		return "nothing is known"
	}
	return fmt.Sprintf("%d of %d kinds of requests (variant, verb and scope) kept it", counts.kept, counts.kept+counts.broken)
}

// brokenWithoutGate reports whether requests of the same verb and scope broke the promise on a server without the gate.
func brokenWithoutGate(all []servedVariant, kind run.ServedRequests) bool {
	for _, v := range all {
		for _, s := range v.Served {
			isSameKind := v.Server == "gate-off" && s.Verb == kind.Verb && s.Scope == kind.Scope
			if isSameKind && !keepsPromise(s) {
				return true
			}
		}
	}
	return false
}

// keepsPromise reports whether as many requests as promised took no longer than promised.
func keepsPromise(s run.ServedRequests) bool { return s.WithinObjective() >= promisedPart }
