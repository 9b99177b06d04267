package profile

import "github.com/authzconf/authzconf/loadgen/run"

// UsesOf returns the comparisons that a block of a side is part of in a round. Blocks of servers that are alike are the
// baseline together, because the difference between two processes of one program must not decide.
func (p *Profile) UsesOf(side Side) (uses []run.Use) {
	for _, c := range p.Comparisons {
		switch {
		case side == c.B:
			uses = append(uses, run.Use{Comparison: c.Name, Role: "B", AA: c.AA()})
		case side == c.A:
			uses = append(uses, run.Use{Comparison: c.Name, Role: "A", AA: c.AA()})
		case side.IsTwin(c.A) && !c.AA():
			uses = append(uses, run.Use{Comparison: c.Name, Role: "A"})
		}
	}
	return uses
}

// IsTwin reports whether a side is the same as another, on another server that is like the other's.
func (s Side) IsTwin(other Side) bool {
	return s != other && s.Variant == other.Variant && s.Server.Gate() == other.Server.Gate()
}
