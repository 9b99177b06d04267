package profile

import (
	"slices"
	"time"
)

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
