package profile

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/filing"
)

// As is whom a variant's agents impersonate.
type As string

const (
	// Nobody: requests are sent as the agent itself.
	Nobody As = "nobody"
	// OwnNode is the node that the agent's token is bound to.
	OwnNode As = "own-node"
	// OtherNode is a node that it is not.
	OtherNode As = "other-node"
	// User is a user with groups and extra, another one for every agent.
	User As = "user"
)

// Cache is what a variant means to find in the API server's cache of impersonation.
type Cache string

const (
	// Any takes it as it comes.
	Any Cache = "any"
	// Cold asks again only when the last answer is forgotten.
	Cold Cache = "cold"
)

// Variant is what agents do in a block.
type Variant struct {
	Name string
	What string // a sentence for people
	As   As
	// Grants are what its agents are granted, by the names of loadgen/population/grants.yaml.
	Grants []string
	Cache  Cache
	// Denied variants expect 403.
	Denied bool
	// Gate is the state of the gate without which the variant makes no sense; empty if both do.
	Gate Server
}

// Server names a control plane by the state of its gate.
type Server string

// The servers of a run. Of each there can be a second process: an A/A comparison shows what processes differ by.
const (
	GateOn  Server = "gate-on"
	GateOff Server = "gate-off"
	second         = "-2"
)

// Servers are all that profiles may name, in the order in which they are started.
func Servers() []Server { return []Server{GateOn, GateOff, GateOn + second, GateOff + second} }

// Gate is the first server with the same state of the gate, which is the one that variants name.
func (s Server) Gate() Server { return Server(strings.TrimSuffix(string(s), second)) }

//go:embed variants.yaml
var variantsYAML []byte

var variants = fixtures.Table[[]Variant]("variants.yaml", variantsYAML)

// VariantNamed finds a variant.
func VariantNamed(name string) (Variant, error) {
	var names []string
	for _, v := range variants {
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	return Variant{}, fmt.Errorf("variant %q: expected one of %s", name, strings.Join(names, ", "))
}

func (p *Profile) sides() (sides []Side) {
	for _, c := range p.Comparisons {
		sides = append(sides, c.A, c.B)
	}
	return sides
}

// Used are the names of the variants that are compared, in order of first use.
func (p *Profile) Used() []string {
	return seq.AppendMissing(nil, seq.Map(p.sides(), func(s Side) string { return s.Variant })...)
}

// Does is the variant of a side. One that there is not is found when a profile is checked.
func (s Side) Does() Variant {
	v, _ := VariantNamed(s.Variant)
	return v
}

// Variants are those that are compared, as Used names them.
func (p *Profile) Variants() []Variant {
	return seq.Map(p.Used(), func(name string) Variant { return Side{Variant: name}.Does() })
}

// UsedOn says whether a variant is compared on a server.
func (p *Profile) UsedOn(variant string, server Server) bool {
	return slices.Contains(p.sides(), Side{Variant: variant, Server: server})
}

// Servers are those that are used.
func (p *Profile) Servers() []Server {
	return slices.DeleteFunc(Servers(), func(server Server) bool {
		return !slices.ContainsFunc(p.sides(), func(s Side) bool { return s.Server == server })
	})
}

// Connections is how many connections the agents have to one server.
func (p *Profile) Connections() int {
	return (p.Agents() + p.AgentsPerConnection - 1) / p.AgentsPerConnection
}

// WarmUp is how long a server that was started is asked before the first block that counts.
func (p *Profile) WarmUp() time.Duration { return min(p.Block, CacheLife) }

// Length is how long all blocks take, those for warming up included.
func (p *Profile) Length() time.Duration {
	return time.Duration(2*p.Pairs*len(p.Comparisons))*p.Block + time.Duration(p.Starts*len(p.Servers()))*p.WarmUp()
}

// builtin holds the profiles that come with authzconf, NAME.yaml each.
//
//go:embed builtin/*.yaml
var builtin embed.FS

// Names are the names of the built-in profiles, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	names = append(names, seq.Map(files, func(f string) string { return strings.TrimSuffix(path.Base(f), ".yaml") })...)
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
		text, err = filing.Input(name)
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

// Adjust are changes of a profile for one run. A value counts if its flag was given.
type Adjust struct {
	Variants                         []string
	Pairs, Starts, Nodes, DaemonSets int
	ServiceAccounts, Authorizer      string
	Every, Block, WebhookDelay       time.Duration
	Bindings                         int
	// Counts leaves out all that is about latency: margins, A/A, and more than one start.
	Counts bool
}

// change sets a field whose flag was given, and remembers the flag at the field's path.
func change[T any](given func(flag string) bool, flags map[string]string, flag, path string, field *T, to T) {
	if given(flag) {
		*field, flags[path] = to, "--"+flag
	}
}

// Adjusted is the profile with the changes whose flags were given, checked again: agents that ask so often that a cold
// variant is not cold are an error here too.
func (p *Profile) Adjusted(a Adjust, given func(flag string) bool) (*Profile, error) {
	out, flags := *p, map[string]string{}
	change(given, flags, "pairs", "$.pairs", &out.Pairs, a.Pairs)
	change(given, flags, "starts", "$.starts", &out.Starts, a.Starts)
	if given("pairs") && !given("starts") {
		out.Starts = min(out.Starts, max(out.Pairs, 1))
	}
	change(given, flags, "nodes", "$.nodes", &out.Nodes, a.Nodes)
	change(given, flags, "daemonsets", "$.daemonSets", &out.DaemonSets, a.DaemonSets)
	change(given, flags, "service-accounts", "$.serviceAccounts", &out.ServiceAccounts, ServiceAccounts(a.ServiceAccounts))
	change(given, flags, "duration", "$.block", &out.Block, a.Block)
	change(given, flags, "webhook-delay", "$.webhookDelay", &out.WebhookDelay, a.WebhookDelay)
	change(given, flags, "every", "$.arrivals.every", &out.Arrivals.Every, a.Every)
	if given("nodes") {
		out.Requestors = min(out.Requestors, out.Agents())
	}
	change(given, flags, "rbac-bindings", "$.authorizer.bindings", &out.Authorizer.Bindings, a.Bindings)
	kind, cached := strings.CutSuffix(a.Authorizer, "-cached")
	change(given, flags, "authorizer", "$.authorizer.kind", &out.Authorizer.Kind, kind)
	change(given, flags, "authorizer", "$.authorizer", &out.Authorizer.Cache, cached)
	if a.Counts {
		out.Comparisons = slices.DeleteFunc(slices.Clone(out.Comparisons), Comparison.AA)
		for i := range out.Comparisons {
			out.Comparisons[i].Margins = Margins{}
		}
		if !given("starts") {
			out.Starts = 1
		}
		out.Declared = Declared{out.Pairs, out.Starts}
	}
	if len(a.Variants) > 0 {
		if err := out.keep(a.Variants); err != nil {
			return nil, err
		}
	}
	at := func(path string) string { return cmp.Or(flags[path], "profile "+p.Name+" with the given flags") }
	return &out, out.Check(at)
}

// keep leaves the comparisons between the named variants; the A/A pair goes to the first of them if it had another.
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
