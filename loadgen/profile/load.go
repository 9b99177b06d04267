package profile

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// builtin holds the profiles that come with authzconf, NAME.yaml each.
//
//go:embed builtin/*.yaml
var builtin embed.FS

// Names are the names of the built-in profiles, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Describe is a line for each built-in profile: its name, and the beginning of its description.
func Describe() (lines []string, err error) {
	for _, name := range Names() {
		p, _, err := Load(name)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(p.Description, ":")
		lines = append(lines, fmt.Sprintf("%-26s %s", name, strings.TrimSuffix(first, ".")))
	}
	return lines, nil
}

// Load reads a file if the name looks like one, or a built-in profile. It returns the text as well.
func Load(name string) (p *Profile, text []byte, err error) {
	file := name
	if strings.ContainsAny(name, `./\`) {
		text, err = os.ReadFile(name)
	} else if file += ".yaml"; !slices.Contains(Names(), name) {
		err = fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	} else {
		text, err = builtin.ReadFile("builtin/" + file)
	}
	if err == nil {
		p, err = Parse(file, text)
	}
	return p, text, err
}

// Adjust are changes of a profile for one run. Zero values change nothing.
type Adjust struct {
	Variants        []string
	Pairs           *int
	Starts          *int
	Nodes           *int
	DaemonSets      *int
	ServiceAccounts *ServiceAccounts
	Every           *time.Duration
	Block           *time.Duration
	WebhookDelay    *time.Duration
	Authorizer      *string
	Bindings        *int
	// Counts leaves out all that is about latency: margins, A/A, and more than one start.
	Counts bool
}

// change sets a field that is to be changed, and remembers the flag that does.
func change[T any](flags map[string]string, flag, path string, field, to *T) {
	if to != nil {
		*field, flags[path] = *to, flag
	}
}

// Adjusted is the profile with the changes, checked again: agents that ask so often that a cold variant is not cold
// are an error here too.
func (p *Profile) Adjusted(a Adjust) (*Profile, error) {
	out, flags := *p, map[string]string{}
	change(flags, "--pairs", "$.pairs", &out.Pairs, a.Pairs)
	change(flags, "--starts", "$.starts", &out.Starts, a.Starts)
	if a.Pairs != nil && a.Starts == nil {
		out.Starts = min(out.Starts, max(out.Pairs, 1))
	}
	change(flags, "--nodes", "$.nodes", &out.Nodes, a.Nodes)
	change(flags, "--daemonsets", "$.daemonSets", &out.DaemonSets, a.DaemonSets)
	change(flags, "--service-accounts", "$.serviceAccounts", &out.ServiceAccounts, a.ServiceAccounts)
	change(flags, "--duration", "$.block", &out.Block, a.Block)
	change(flags, "--webhook-delay", "$.webhookDelay", &out.WebhookDelay, a.WebhookDelay)
	change(flags, "--every", "$.arrivals.every", &out.Arrivals.Every, a.Every)
	if a.Nodes != nil {
		out.Requestors = min(out.Requestors, out.Agents())
	}
	change(flags, "--rbac-bindings", "$.authorizer.bindings", &out.Authorizer.Bindings, a.Bindings)
	if a.Authorizer != nil {
		kind := strings.TrimSuffix(*a.Authorizer, "-cached")
		change(flags, "--authorizer", "$.authorizer.kind", &out.Authorizer.Kind, &kind)
		out.Authorizer.Cache = kind != *a.Authorizer
		flags["$.authorizer"] = "--authorizer"
	}
	if a.Counts {
		out.Comparisons = slices.DeleteFunc(slices.Clone(out.Comparisons), Comparison.AA)
		for i := range out.Comparisons {
			out.Comparisons[i].Margins = Margins{}
		}
		if a.Starts == nil {
			out.Starts = 1
		}
		out.Declared = Declared{out.Pairs, out.Starts}
	}
	if len(a.Variants) > 0 {
		if err := out.keep(a.Variants); err != nil {
			return nil, err
		}
	}
	at := func(path string) string {
		return cmp.Or(flags[path], "profile "+p.Name+" with the given flags")
	}
	if err := out.Check(at); err != nil {
		return nil, err
	}
	return &out, nil
}

// keep leaves the comparisons between the named variants, and gives the A/A pair to the first of them if it had
// another.
func (p *Profile) keep(variants []string) error {
	used := p.Used()
	named := func(s Side) bool { return slices.Contains(variants, s.Variant) }
	for _, name := range variants {
		if !slices.Contains(used, name) {
			return fmt.Errorf("--variants %s: the profile %s has %s", name, p.Name, strings.Join(used, ", "))
		}
	}
	sides := p.sides()
	first := sides[slices.IndexFunc(sides, named)]
	var kept []Comparison
	for _, c := range p.Comparisons {
		switch {
		case c.AA() && !named(c.A):
			c.A = Side{Variant: first.Variant, Server: first.Server.Gate()}
			c.B = Side{Variant: first.Variant, Server: c.A.Server + second}
			kept = slices.Insert(kept, 0, c)
		case c.AA():
			kept = slices.Insert(kept, 0, c)
		case named(c.A) && named(c.B):
			kept = append(kept, c)
		}
	}
	p.Comparisons = kept
	p.Thresholds = slices.DeleteFunc(slices.Clone(p.Thresholds), func(t Threshold) bool { return !slices.Contains(p.Used(), t.Variant) })
	if !slices.ContainsFunc(kept, func(c Comparison) bool { return !c.AA() }) && len(variants) > 1 {
		return fmt.Errorf("--variants %s: the profile %s does not compare them with each other", strings.Join(variants, ","), p.Name)
	}
	return nil
}
