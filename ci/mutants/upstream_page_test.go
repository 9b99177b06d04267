package mutants

import (
	"fmt"
	"strings"
)

// upstreamPage is what the tests in upstream/ catch.
type upstreamPage struct {
	kubernetes        string
	seed              int64
	byHand, generated list
}

// caught is the number of broken servers that a test fails on.
func caught(l list) int { return l.count(Killed, Detected, Refused) }

// summary is one line.
func (p upstreamPage) summary() string {
	return fmt.Sprintf("the tests in upstream/ catch %d of %d API servers that were broken by hand, and %d of %d generated ones (seed %d)",
		caught(p.byHand), len(p.byHand), caught(p.generated), len(p.generated), p.seed)
}

// markdown is the page. Each of the servers is caught by authzconf: those made by hand by what docs/load.md names, and the
// generated ones by a scenario, or they would be in a list of docs/mutants.md.
func (p upstreamPage) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Broken API servers, and the tests for Kubernetes' own repository

Written by `+"`make upstream-mutants`"+` (Kubernetes %s, seed %d). Do not edit it.

The same broken servers that measure authzconf are tried with the tests of [test/e2e/auth](test/e2e/auth), the conformance
candidates among them. A server counts as caught if a test fails with the fault, all pass without it, and a test fails with it
again, or if it does not start. What authzconf catches is not measured here: it is in [load.md](../docs/load.md#faults-that-only-requests-at-once-show) and
[mutants.md](../docs/mutants.md), and mutants that no scenario catches are not in the sample.

`, p.kubernetes, p.seed)
	t := newTable("broken servers", "number:", "caught by these tests:", "caught by authzconf:")
	t.row(
		"made by hand ([faults.yaml](../ci/mutants/faults.yaml), [concurrency.yaml](../ci/mutants/concurrency.yaml))",
		len(p.byHand),
		caught(p.byHand),
		len(p.byHand),
	)
	t.row(
		"generated, a sample of those of the impersonation filter that a scenario catches",
		len(p.generated),
		caught(p.generated),
		len(p.generated),
	)
	out.WriteString(t.String())
	fmt.Fprintf(&out, `
Of the generated ones %d survived tests that reach them, and %d are not reached. Those made by hand show only after many
requests, with many at once, with two credentials or in the audit log, where an e2e test does not look.

## By test

`, p.generated.count(Survived), p.generated.count(NotCovered))
	out.WriteString(p.byTest())
	out.WriteString("\n## Made by hand\n\n")
	out.WriteString(upstreamTable(p.byHand))
	out.WriteString("\n## Generated\n\n")
	out.WriteString(upstreamTable(p.generated))
	return out.String()
}

// byTest counts the servers that each test caught first. The order of tests within a file is that of the source.
func (p upstreamPage) byTest() string {
	t := newTable("test", "caught first:")
	var names []string
	first := map[string]int{}
	for _, r := range append(append(list{}, p.byHand...), p.generated...) {
		if !r.Status.Caught() {
			continue
		}
		if first[r.Scenario] == 0 {
			names = append(names, r.Scenario)
		}
		first[r.Scenario]++
	}
	for _, name := range names {
		t.row(name, first[name])
	}
	return t.String()
}

// upstreamTable lists broken servers.
func upstreamTable(l list) string {
	t := newTable("server", "change", "", "test")
	for _, r := range l {
		change := r.Change
		if r.Snippet != "" {
			change = code(r.Snippet) + ": " + r.Change
		}
		t.row(r.Key, change, string(r.Status), r.Scenario)
	}
	return t.String()
}
