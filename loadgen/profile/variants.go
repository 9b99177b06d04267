package profile

import (
	"fmt"
	"slices"
	"strings"
	"time"
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

// Grants of a variant. Everybody may read pods; these are about impersonation.
const (
	GrantAssociated = "associated-node"
	// GrantAssociatedAction is the first half of it: the identity is denied.
	GrantAssociatedAction = "associated-node-action"
	GrantArbitrary        = "arbitrary-node"
	GrantUserInfo         = "user-info"
	GrantLegacy           = "legacy"
)

// Variant is what agents do in a block.
type Variant struct {
	Name string
	// What is a sentence for people.
	What   string
	As     As
	Grants []string
	Cache  Cache
	// Denied variants expect 403.
	Denied bool
	// Gate is the state of the gate without which the variant makes no sense; empty if both do.
	Gate Server
}

// Server names a control plane by the state of its gate.
type Server string

// The servers of a run. Of each there can be a second process: between the two an A/A comparison shows what processes
// differ by.
const (
	GateOn  Server = "gate-on"
	GateOff Server = "gate-off"
	second         = "-2"
)

// Servers are all that profiles may name, in the order in which they are started.
func Servers() []Server { return []Server{GateOn, GateOff, GateOn + second, GateOff + second} }

// Gate is the first server with the same state of the gate, which is the one that variants name.
func (s Server) Gate() Server { return Server(strings.TrimSuffix(string(s), second)) }

// Variants are all variants.
func Variants() []Variant {
	return []Variant{
		{Name: "none", What: "no impersonation", As: Nobody, Cache: Any},
		{Name: "legacy-gate-off", What: "the verb impersonate, gate off", As: OwnNode, Grants: []string{GrantLegacy}, Cache: Any, Gate: GateOff},
		{Name: "legacy-gate-on", What: "the verb impersonate, gate on", As: OwnNode, Grants: []string{GrantLegacy}, Cache: Any, Gate: GateOn},
		{Name: "associated-node", What: "the agent's own node, remembered or not", As: OwnNode, Grants: []string{GrantAssociated}, Cache: Any, Gate: GateOn},
		{Name: "associated-node-cold", What: "the agent's own node, never twice within the cache's life", As: OwnNode, Grants: []string{GrantAssociated}, Cache: Cold, Gate: GateOn},
		{Name: "arbitrary-node", What: "another node than the agent's", As: OtherNode, Grants: []string{GrantArbitrary}, Cache: Any, Gate: GateOn},
		{Name: "denied", What: "no permission to impersonate", As: OwnNode, Cache: Any, Denied: true},
		{Name: "fallback", What: "the action is allowed and the identity denied, legacy allows", As: OwnNode, Grants: []string{GrantAssociatedAction, GrantLegacy}, Cache: Any, Gate: GateOn},
		{Name: "deputy", What: "many users with groups and extra, by user-info", As: User, Grants: []string{GrantUserInfo}, Cache: Any, Gate: GateOn},
		{Name: "deputy-legacy", What: "many users with groups and extra, by the verb impersonate", As: User, Grants: []string{GrantLegacy}, Cache: Any},
	}
}

// VariantNamed finds a variant.
func VariantNamed(name string) (Variant, error) {
	var names []string
	for _, v := range Variants() {
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	return Variant{}, fmt.Errorf("variant %q: expected one of %s", name, strings.Join(names, ", "))
}

// sides are those of all comparisons.
func (p *Profile) sides() (sides []Side) {
	for _, c := range p.Comparisons {
		sides = append(sides, c.A, c.B)
	}
	return sides
}

// Used are the names of the variants that are compared, in order of first use.
func (p *Profile) Used() (variants []string) {
	for _, s := range p.sides() {
		if !slices.Contains(variants, s.Variant) {
			variants = append(variants, s.Variant)
		}
	}
	return variants
}

// Variants are those that are compared, as Used names them.
func (p *Profile) Variants() (list []Variant, err error) {
	for _, name := range p.Used() {
		v, err := VariantNamed(name)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
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
