package profile

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// As says whom a variant's agents impersonate.
type As string

const (
	// Nobody means that requests are sent as the agent itself.
	Nobody As = "nobody"
	// OwnNode is the node that the agent's token is bound to.
	OwnNode As = "own-node"
	// OwnNodeInGroup is the agent's own node with the group of nodes, without which it may not do what nodes do.
	OwnNodeInGroup As = "own-node-in-group"
	// OtherNode is a node that it is not.
	OtherNode As = "other-node"
	// User is a user, another one for every agent, with as many groups and values of an extra field as the variant says.
	User As = "user"
	// OneUser is the same user for all agents, with groups and values like those of a User.
	OneUser As = "one-user"
	// ServiceAccount is a service account, another one for every agent.
	ServiceAccount As = "service-account"
)

// Cache says what a variant should find in the API server's cache of impersonation.
type Cache string

const (
	// Any means that it does not matter.
	Any Cache = "any"
	// Cold means that an agent asks again only after the last answer is forgotten.
	Cold Cache = "cold"
)

// Variant is what agents do in a block of a storm: whom they impersonate, with which grants.
type Variant struct {
	Name string
	What string // a sentence for people
	As   As
	// Groups and Values are how many groups, and how many values of an extra field, a User or the OneUser has.
	Groups, Values int
	// Grants are the grants of its agents, by the names in loadgen/population/grants.yaml.
	Grants []string
	Cache  Cache
	// Denied variants expect 403.
	Denied bool
	// Gate is the state of the gate that the variant needs. It is empty if the variant makes sense with both.
	Gate scenarios.Gate
}

// Server names a control plane by the state of its gate.
type Server string

// These are the servers of a run. There can be a second process of each: an A/A comparison shows by how much processes
// differ.
const (
	GateOnServer  Server = "gate-on"
	GateOffServer Server = "gate-off"
	second               = "-2"
)

// Servers returns all servers that profiles may name, in the order in which they are started.
func Servers() []Server {
	return []Server{GateOnServer, GateOffServer, GateOnServer + second, GateOffServer + second}
}

// Gate returns the state of the gate that the server has. It is unknown if the server is not one of Servers.
func (s Server) Gate() scenarios.Gate {
	switch s {
	case GateOnServer, GateOnServer + second:
		return scenarios.GateOn
	case GateOffServer, GateOffServer + second:
		return scenarios.GateOff
	}
	return scenarios.GateUnknown
}

// ServerFor returns the first server with a state of the gate.
func ServerFor(gate scenarios.Gate) Server {
	if gate == scenarios.GateOn {
		return GateOnServer
	}
	return GateOffServer
}

//go:embed variants.yaml
var variantsYAML []byte

var variants = fixtures.Table[[]Variant]("variants.yaml", variantsYAML)

// AllVariants returns the variants that profiles can name.
func AllVariants() []Variant { return slices.Clone(variants) }

// DescribeVariants returns a line for each variant: its name, and what its agents do.
func DescribeVariants() []string {
	return seq.Map(variants, func(v Variant) string { return fmt.Sprintf("%-22s %s", v.Name, v.What) })
}

// VariantNamed returns the variant with a name.
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

func (p *Profile) allSides() (sides []Side) {
	for _, c := range p.Comparisons {
		sides = append(sides, c.A, c.B)
	}
	return sides
}

// Sides returns the sides that are compared, each once.
func (p *Profile) Sides() []Side { return seq.AppendMissing(nil, p.allSides()...) }

// Used are the names of the variants that are compared, in order of first use.
func (p *Profile) Used() []string {
	return seq.AppendMissing(nil, seq.Map(p.allSides(), func(s Side) string { return s.Variant })...)
}

// Does is the variant of a side. One that there is not is found when a profile is checked.
func (s Side) Does() Variant {
	v, _ := VariantNamed(s.Variant)
	return v
}

// Variants returns the compared variants, as Used names them.
func (p *Profile) Variants() []Variant {
	return seq.Map(p.Used(), func(name string) Variant { return Side{Variant: name}.Does() })
}

// UsedOn reports whether a variant is compared on a server.
func (p *Profile) UsedOn(variant string, server Server) bool {
	return slices.Contains(p.allSides(), Side{Variant: variant, Server: server})
}

// Servers returns the servers that are used.
func (p *Profile) Servers() []Server {
	return slices.DeleteFunc(Servers(), func(server Server) bool {
		return !slices.ContainsFunc(p.allSides(), func(s Side) bool { return s.Server == server })
	})
}

// Connections returns how many connections the agents have to one server.
func (p *Profile) Connections() int {
	return (p.Agents() + p.AgentsPerConnection - 1) / p.AgentsPerConnection
}

// WarmUp returns how long a server that was started is asked before the first block that counts.
func (p *Profile) WarmUp() time.Duration {
	if p.Counts {
		return 0
	}
	return min(p.Block, CacheLife)
}

// Blocks returns how many blocks a run has, without those for warming up.
func (p *Profile) Blocks() int {
	if p.Rounds {
		return p.Pairs * len(p.Sides())
	}
	return 2 * p.Pairs * len(p.Comparisons)
}

// Length returns how long all blocks take, including those for warming up.
func (p *Profile) Length() time.Duration {
	return time.Duration(p.Blocks())*p.Block + time.Duration(p.Starts*len(p.Servers()))*p.WarmUp()
}
