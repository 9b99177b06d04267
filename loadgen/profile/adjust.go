package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Adjust are changes of a profile for one run. A value counts if its flag was given.
type Adjust struct {
	Variants                         []string
	Pairs, Starts, Nodes, DaemonSets int
	ServiceAccounts, Authorizer      string
	Every, Block, WebhookDelay       time.Duration
	Bindings                         int
	// Counts leaves out everything that is about latency: margins, A/A, and more than one start.
	Counts bool
}

// change sets a field whose flag was given, and remembers the flag at the field's path.
func change[T any](isGiven func(flag string) bool, flags map[string]string, flag, path string, field *T, to T) {
	if isGiven(flag) {
		*field, flags[path] = to, "--"+flag
	}
}

// Adjusted returns the profile with the changes whose flags were given, and checks it again. Agents that ask so often
// that a cold variant is not cold are an error here, too.
func (p *Profile) Adjusted(a Adjust, isGiven func(flag string) bool) (*Profile, error) {
	out, flags := *p, map[string]string{}
	change(isGiven, flags, "pairs", "$.pairs", &out.Pairs, a.Pairs)
	change(isGiven, flags, "starts", "$.starts", &out.Starts, a.Starts)
	if isGiven("pairs") && !isGiven("starts") {
		out.Starts = min(out.Starts, max(out.Pairs, 1))
	}
	change(isGiven, flags, "nodes", "$.nodes", &out.Nodes, a.Nodes)
	change(isGiven, flags, "daemonsets", "$.daemonSets", &out.DaemonSets, a.DaemonSets)
	change(isGiven, flags, "service-accounts", "$.serviceAccounts", &out.ServiceAccounts, ServiceAccounts(a.ServiceAccounts))
	change(isGiven, flags, "duration", "$.block", &out.Block, a.Block)
	change(isGiven, flags, "webhook-delay", "$.webhookDelay", &out.WebhookDelay, a.WebhookDelay)
	change(isGiven, flags, "every", "$.arrivals.every", &out.Arrivals.Every, a.Every)
	if isGiven("every") && !isGiven("duration") {
		out.fitBlock()
	}
	if isGiven("nodes") {
		out.Requestors = min(out.Requestors, out.Agents())
	}
	change(isGiven, flags, "rbac-bindings", "$.authorizer.bindings", &out.Authorizer.Bindings, a.Bindings)
	kind, cached := strings.CutSuffix(a.Authorizer, "-cached")
	change(isGiven, flags, "authorizer", "$.authorizer.kind", &out.Authorizer.Kind, kind)
	change(isGiven, flags, "authorizer", "$.authorizer", &out.Authorizer.Cache, cached)
	if a.Counts {
		out.onlyCount(isGiven)
	}
	if len(a.Variants) > 0 {
		if err := out.keep(a.Variants); err != nil {
			return nil, err
		}
	}
	at := func(path string) string { return cmp.Or(flags[path], "profile "+p.Name+" with the given flags") }
	return &out, out.Check(at)
}

// countedPairs is how many pairs of blocks a comparison has that is only about counts. Reviews follow from the
// schedule, and do not scatter as latencies do. The first block may be first contact.
const countedPairs = 2

// onlyCount leaves out everything that is about latency, and reduces pairs and starts unless the user asked for others.
func (p *Profile) onlyCount(isGiven func(flag string) bool) {
	p.Comparisons = slices.DeleteFunc(slices.Clone(p.Comparisons), Comparison.AA)
	for i := range p.Comparisons {
		p.Comparisons[i].Margins = Margins{}
	}
	if !isGiven("pairs") {
		p.Pairs = min(p.Pairs, countedPairs)
	}
	if !isGiven("starts") {
		p.Starts = 1
	}
	p.Declared = DeclaredSample{p.Pairs, p.Starts}
}

// keep keeps the comparisons between the named variants. The A/A pair gets the first of them if it had another variant.
func (p *Profile) keep(variants []string) error {
	usedVariants := p.Used()
	isNamed := func(s Side) bool { return slices.Contains(variants, s.Variant) }
	for _, name := range variants {
		if !slices.Contains(usedVariants, name) {
			return fmt.Errorf("--variants %s: the profile %s has %s", name, p.Name, strings.Join(usedVariants, ", "))
		}
	}
	sides := p.allSides()
	first := sides[slices.IndexFunc(sides, isNamed)]
	var comparisons []Comparison
	for _, c := range p.Comparisons {
		switch {
		case c.AA() && !isNamed(c.A):
			c.A = Side{Variant: first.Variant, Server: ServerFor(first.Server.Gate())}
			c.B = Side{Variant: first.Variant, Server: c.A.Server + second}
			comparisons = slices.Insert(comparisons, 0, c)
		case c.AA():
			comparisons = slices.Insert(comparisons, 0, c)
		case isNamed(c.A) && isNamed(c.B):
			comparisons = append(comparisons, c)
		}
	}
	p.Comparisons = comparisons
	p.Thresholds = slices.DeleteFunc(slices.Clone(p.Thresholds), func(t Threshold) bool { return !slices.Contains(p.Used(), t.Variant) })
	if !slices.ContainsFunc(comparisons, func(c Comparison) bool { return !c.AA() }) && len(variants) > 1 {
		return fmt.Errorf("--variants %s: the profile %s does not compare them with each other", strings.Join(variants, ","), p.Name)
	}
	return nil
}
