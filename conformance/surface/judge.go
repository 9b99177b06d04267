package surface

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// comparison is one thing that is compared between two stages.
type comparison struct {
	name string
	// judge compares a surface with the one before, and returns what is otherwise than it has to be, and in a line what was
	// compared.
	judge func(gate scenarios.Gate, before, now *Surface) (problems []string, comparison string)
}

// comparisons are all that is compared, in the order of the report.
var comparisons = []comparison{
	{"api-types", func(_ scenarios.Gate, before, now *Surface) ([]string, string) {
		return compare(before.OpenAPI, now.OpenAPI), fmt.Sprintf("types and fields of %s of OpenAPI", reports.Plural(len(now.OpenAPI), "document"))
	}},
	{"api-resources", func(_ scenarios.Gate, before, now *Surface) ([]string, string) {
		return compare(before.Resources, now.Resources), fmt.Sprintf("%s and subresources, with their verbs", reports.Plural(len(now.Resources), "resource"))
	}},
	{"flags", func(_ scenarios.Gate, before, now *Surface) ([]string, string) {
		return compare(before.Flags, now.Flags), fmt.Sprintf("%s and their texts, %d of them deprecated", reports.Plural(len(now.Flags), "flag"), countDeprecated(now.Flags))
	}},
	{"metrics", judgeMetrics},
	{"objects", func(_ scenarios.Gate, before, now *Surface) ([]string, string) {
		return compare(levelCertificates(before.Objects), levelCertificates(now.Objects)), fmt.Sprintf("%s in etcd of %d bytes", reports.Plural(len(now.Objects), "object"), sumOf(now.Objects))
	}},
	{"indicators", func(_ scenarios.Gate, before, now *Surface) ([]string, string) {
		return compare(before.Indicators, now.Indicators), fmt.Sprintf("%s counted by the SLI of request durations in %d series", reports.Plural(sumOf(now.Indicators), "request"), len(now.Indicators))
	}},
	{"log", func(_ scenarios.Gate, _, now *Surface) ([]string, string) {
		return now.Logged, "lines of the log at its default verbosity about allowed and refused impersonations"
	}},
	{"processes", judgeProcesses},
	{agentsComparison, judgeAgents},
	{"connections", func(_ scenarios.Gate, _, now *Surface) ([]string, string) {
		return now.After.Peers, "addresses of other machines that the API server is connected with"
	}},
}

// certificates is the object that holds certificates of the control plane. These are made anew with each etcd, and signatures
// differ in length by a byte or two.
const certificates = "/registry/configmaps/kube-system/extension-apiserver-authentication"

// levelCertificates returns sizes of objects in which that of the certificates is none, so that only its presence is compared.
func levelCertificates(sizes map[string]int) map[string]int {
	out := maps.Clone(sizes)
	if _, isThere := out[certificates]; isThere {
		out[certificates] = 0
	}
	return out
}

// compare returns what was added, removed and changed.
func compare[V cmp.Ordered](before, now map[string]V) (changes []string) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if value, isThere := now[key]; !isThere {
			changes = append(changes, "removed: "+key)
		} else if value != before[key] {
			changes = append(changes, fmt.Sprintf("changed: %s, from %v to %v", key, before[key], value))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, isThere := before[key]; !isThere {
			changes = append(changes, fmt.Sprintf("added: %s (%v)", key, now[key]))
		}
	}
	return changes
}

// impersonationPrefix is how the names of the metrics of impersonation begin.
const impersonationPrefix = "apiserver_impersonation_"

// judgeMetrics compares metric families: with the gate on there are those of impersonation beside those that were there, and
// no text of another one changes, for a metric that is deprecated says so there.
func judgeMetrics(gate scenarios.Gate, before, now *Surface) (problems []string, comparison string) {
	others, added := map[string]string{}, []string{}
	for name, help := range now.Metrics {
		if strings.HasPrefix(name, impersonationPrefix) {
			added = append(added, name)
		} else {
			others[name] = help
		}
	}
	slices.Sort(added)
	// A server whose version has the metrics must have them, and no other one; see Surface.Witness.
	wanted := 0
	if gate == scenarios.GateOn && hasMetrics(now.Witness) {
		wanted = impersonationFamilies
	}
	if len(added) != wanted {
		problems = append(problems,
			fmt.Sprintf("%s of impersonation, expected %d: %s", reports.Plural(len(added), "metric"), wanted, strings.Join(added, ", ")),
		)
	}
	// A family is there once something was counted, so that others come and go with what happens in a server.
	for name, help := range others {
		if text, wasThere := before.Metrics[name]; wasThere && text != help {
			problems = append(problems, fmt.Sprintf("changed: %s, from %q to %q", name, text, help))
		}
	}
	slices.Sort(problems)
	return problems, fmt.Sprintf(
		"%s, %d of them of impersonation, and their help texts, %d of them deprecated",
		reports.Plural(len(now.Metrics), "metric"),
		len(added),
		countDeprecated(now.Metrics),
	)
}

// impersonationFamilies is how many metric families of impersonation there are since 1.36.
const impersonationFamilies = 4

// hasMetrics reports whether the version has metrics of impersonation.
func hasMetrics(w reports.Witness) bool { return !strings.HasPrefix(w.GitVersion, "v1.35.") }

// moreSockets is by how many sockets two states of the same API server may differ: connections to etcd come and go.
const moreSockets = 8

// judgeProcesses compares what the server's process holds: it starts no other one, and its sockets do not grow with requests.
func judgeProcesses(_ scenarios.Gate, before, now *Surface) (problems []string, comparison string) {
	if now.After.Children != before.After.Children {
		problems = append(problems,
			fmt.Sprintf("the API server has started %s, expected %d", reports.Plural(now.After.Children, "child"), before.After.Children),
		)
	}
	if growth := now.After.Sockets - before.After.Sockets; growth > moreSockets {
		problems = append(problems, fmt.Sprintf("%d sockets more than before, expected at most %d", growth, moreSockets))
	}
	if growth := now.After.Sockets - now.Before.Sockets; growth > moreSockets {
		problems = append(problems, fmt.Sprintf("%d sockets more after the requests, expected at most %d", growth, moreSockets))
	}
	return problems, fmt.Sprintf(
		"%d processes started by the API server, %d threads, %d files of which %d are sockets, %d MiB (before: %d, %d, %d, %d, %d MiB)",
		now.After.Children,
		now.After.Threads,
		now.After.Files,
		now.After.Sockets,
		now.After.Memory>>20,
		before.After.Children,
		before.After.Threads,
		before.After.Files,
		before.After.Sockets,
		before.After.Memory>>20,
	)
}

// countDeprecated counts the texts that say that something is deprecated.
func countDeprecated(texts map[string]string) (n int) {
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), "deprecated") {
			n++
		}
	}
	return n
}

func sumOf(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Judge implements product.Plan.
func (p *plan) Judge(id string, evidence record.View) reports.Result {
	group, name, _ := strings.Cut(id, "/")
	at := p.find(group)
	before, err := record.Read[Surface](evidence, "surface/"+at.baseline)
	if err != nil {
		return invalid(err)
	}
	now, err := record.Read[Surface](evidence, "surface/"+group)
	if err != nil {
		return invalid(err)
	}
	for _, s := range []*Surface{before, now} {
		if len(s.Witness.Mismatches) > 0 {
			return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: s.Witness.Mismatches[0]}
		}
		if empty := s.findEmpty(); empty != "" {
			return reports.Result{
				Verdict: verdicts.Invalid,
				Blame:   verdicts.BlameHarness,
				Reason:  "nothing was read of the server's " + empty,
			}
		}
	}
	return judgeComparison(at.gate(), name, before, now)
}

// judgeComparison judges one comparison of a stage.
func judgeComparison(gate scenarios.Gate, name string, before, now *Surface) reports.Result {
	c := comparisons[slices.IndexFunc(comparisons, func(c comparison) bool { return c.name == name })]
	problems, comparison := c.judge(gate, before, now)
	result := reports.Result{Verdict: verdicts.Passed, Judged: 1, Details: []string{comparison}}
	if len(problems) > 0 {
		result.Verdict, result.Blame, result.Reason = verdicts.Failed, verdicts.BlameAPIServer, problems[0]
		result.Details = append(result.Details, problems...)
	}
	return result
}

// findEmpty names a part of a surface of which nothing was read. An API server has something of each.
func (s *Surface) findEmpty() string {
	for _, part := range []struct {
		name string
		n    int
	}{
		{"types", len(s.OpenAPI)}, {"resources", len(s.Resources)}, {"flags", len(s.Flags)}, {"metrics", len(s.Metrics)},
		{"objects", len(s.Objects)}, {"indicators", len(s.Indicators)}, {"files", s.After.Files},
	} {
		if part.n == 0 {
			return part.name
		}
	}
	return ""
}

func invalid(err error) reports.Result {
	return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: err.Error()}
}
