package pages

import (
	"github.com/authzconf/authzconf/reports"
)

// ListProperties returns what is known about the subject of a group, for the properties of a JUnit file: what was
// requested, and what the control plane reported about itself.
func ListProperties(g *reports.Group) (list []reports.Fact) {
	add := func(name, value string) { list = append(list, reports.Fact{Name: name, Value: value}) }
	if c := g.Cell; c != nil {
		add("provider", c.Provider)
		add("kubernetes", c.Kubernetes)
		add("emulated", c.Emulated)
		add("gate", string(c.Gate))
		if c.Nodes != "" {
			add("nodes", c.Nodes)
		}
		if c.ControlPlanes != "" {
			add("control planes", c.ControlPlanes)
		}
		if c.Unchanged {
			add("unchanged", "true")
		}
	}
	list = append(list, g.Facts...)
	if w := g.Witness; w != nil {
		add("gitVersion", w.GitVersion)
		for _, p := range w.Programs {
			add(p.Title(), p.Provenance()+"; SHA-256 "+p.SHA256)
		}
		for _, c := range w.Components {
			add(c.Name+" on "+c.Node, c.Version)
		}
		for _, m := range w.Mismatches {
			add("mismatch", m)
		}
	}
	if g.Problem != "" {
		add("problem", g.Problem)
	}
	return list
}
