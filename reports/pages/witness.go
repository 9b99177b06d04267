package pages

import (
	"cmp"
	_ "embed" // the template
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

//go:embed witness.html.tmpl
var witnessTemplate string

// witnessSection shows for each group what was requested and what the control plane reported about itself.
var witnessSection = section{name: "witness", template: witnessTemplate, views: viewWitness}

// openCards is the largest number of groups whose cards are shown opened.
const openCards = 4

type witnessView struct {
	// Compared is true if a group was compared with what was requested.
	Compared bool
	Cards    []card
	Programs []programRow
}

// card shows one group.
type card struct {
	Name string
	// Trusted is true if the group is what was requested, and Compared if that is known.
	Trusted    bool
	Compared   bool
	Open       bool
	Mismatches []string
	Problem    string
	Rows       []witnessRow
	Facts      []reports.Fact
}

// witnessRow is a property of a control plane.
type witnessRow struct {
	Name  string
	Asked string
	Seen  string
	// Source says where Seen was read.
	Source string
}

// programRow is a program with the groups in which it ran.
type programRow struct {
	reports.Program
	Groups []string
}

func viewWitness(p *page) ([]view, error) {
	var data witnessView
	for i := range p.Groups {
		g := &p.Groups[i]
		c := newCard(g)
		c.Open = len(p.Groups) <= openCards || !c.Trusted
		if saysAnything := len(c.Rows)+len(c.Facts) > 0; saysAnything || !c.Trusted {
			data.Cards = append(data.Cards, c)
			data.Compared = data.Compared || c.Compared
		}
		if g.Witness != nil {
			data.addPrograms(g.Name, g.Witness.Programs)
		}
	}
	if len(data.Cards) == 0 {
		return nil, nil
	}
	return showView(view{ID: "judged", Title: "What was judged", Data: data})
}

func (v *witnessView) addPrograms(group string, programs []reports.Program) {
	for _, program := range programs {
		v.addProgram(group, program)
	}
}

func (v *witnessView) addProgram(group string, program reports.Program) {
	for i := range v.Programs {
		if v.Programs[i].Program == program {
			v.Programs[i].Groups = append(v.Programs[i].Groups, group)
			return
		}
	}
	v.Programs = append(v.Programs, programRow{program, []string{group}})
}

func newCard(g *reports.Group) card {
	c := card{Name: g.Name, Trusted: g.Problem == "", Problem: g.Problem, Facts: g.Facts}
	if w := g.Witness; w != nil {
		c.Mismatches = w.Mismatches
		c.Trusted = c.Trusted && len(w.Mismatches) == 0
	}
	c.Compared = g.Witness != nil || !c.Trusted
	c.addVersions(g)
	c.addGate(g)
	c.addFeatureGate(g.Witness)
	c.addAuthorizers(g.Witness)
	c.addSettings(g.Witness)
	c.addComponents(g)
	if g.Target != nil && len(g.Target.Capabilities) > 0 {
		c.Facts = append([]reports.Fact{{Name: "Can show", Value: joinLevels(g.Target.Capabilities)}}, c.Facts...)
	}
	return c
}

// addVersions adds what /version reports, with what was requested.
func (c *card) addVersions(g *reports.Group) {
	w := g.Witness
	if w == nil || g.Cell == nil {
		if w != nil && w.GitVersion != "" {
			c.Rows = append(c.Rows, witnessRow{Name: "Version", Seen: w.GitVersion, Source: "/version"})
		}
		return
	}
	c.Rows = append(c.Rows,
		witnessRow{"Version", g.Cell.Kubernetes, cmp.Or(w.GitVersion, "nothing"), "/version"},
		witnessRow{"Emulated version", cmp.Or(g.Cell.Emulated, "none"), cmp.Or(w.EmulatedVersion, "nothing"), "/version"},
	)
}

// addGate adds what shows the state of the gate ConstrainedImpersonation.
func (c *card) addGate(g *reports.Group) {
	w := g.Witness
	if w == nil || g.Cell == nil || g.Cell.Gate == "" {
		return
	}
	gate := string(g.Cell.Gate)
	if w.ExpectedGate != "" && w.ExpectedGate != g.Cell.Gate {
		gate = fmt.Sprintf("%s, so %s", g.Cell.Gate, w.ExpectedGate)
	}
	c.Rows = append(c.Rows, witnessRow{"Gate, by its metric", gate, cmp.Or(string(w.GateMetric), "nothing"), "kubernetes_feature_enabled"})
	if probe := w.GateProbe; probe != nil {
		c.Rows = append(c.Rows, witnessRow{"Gate, by a probe", gate, string(probe.Gate), fmt.Sprintf("%d %s", probe.Code, probe.Message)})
	}
}

// addFeatureGate adds the state of another gate that the target is about.
func (c *card) addFeatureGate(w *reports.Witness) {
	if w == nil || w.FeatureGate == nil {
		return
	}
	g := w.FeatureGate
	c.Rows = append(c.Rows,
		witnessRow{"Gate " + g.Name, string(g.Expected), cmp.Or(string(g.Metric), "nothing"), "kubernetes_feature_enabled"},
	)
}

// addSettings adds what the API server has switched off that is on by default.
func (c *card) addSettings(w *reports.Witness) {
	if w == nil || w.AskedSettings == nil {
		return
	}
	admission, metrics := "nothing", "nothing"
	if settings := w.SeenSettings; settings != nil {
		admission, metrics = settings.Admission(), fmt.Sprint(settings.MetricsOff)
	}
	source := "disabled_metrics_total"
	if len(w.Arguments) > 0 {
		source += " and the command line"
	}
	c.Rows = append(c.Rows,
		witnessRow{"Admission plugins that are off", w.AskedSettings.Admission(), admission, "dry runs of what they refuse"},
		witnessRow{"Metric families that are off", fmt.Sprint(w.AskedSettings.MetricsOff), metrics, source},
	)
}

// addComponents adds the versions of the components on nodes. Kubelets may have other versions than the control plane.
func (c *card) addComponents(g *reports.Group) {
	if g.Witness == nil {
		return
	}
	for _, component := range g.Witness.Components {
		row := witnessRow{Name: component.Name, Seen: component.Version, Source: "node " + component.Node}
		if component.Asked {
			row.Source += ": scenarios send their requests here"
		}
		if g.Cell != nil {
			row.Asked = askedOf(component, g.Cell)
		}
		c.Rows = append(c.Rows, row)
	}
}

// askedOf returns the versions that were requested for such a component, if any were.
func askedOf(component reports.Component, cell *verdicts.Cell) string {
	hasSeveral := cell.ControlPlanes != ""
	switch {
	case component.Worker:
		return cell.Nodes
	case component.Name == reports.KubeAPIServer && hasSeveral:
		return cell.Kubernetes + "," + cell.ControlPlanes
	}
	return ""
}

// addAuthorizers adds the authorizer chain that was asked for, with the proof of each authorizer.
func (c *card) addAuthorizers(w *reports.Witness) {
	if w == nil {
		return
	}
	for i, a := range w.AskedAuthorizers {
		row := witnessRow{
			Name:  fmt.Sprintf("Authorizer %d", i+1),
			Asked: strings.TrimSpace(a.Type + " " + a.Name),
			Seen:  "nothing that proves it",
		}
		for _, e := range w.SeenAuthorizers {
			if e.Authorizer == a {
				row.Seen, row.Source = "there", e.Evidence
			}
		}
		c.Rows = append(c.Rows, row)
	}
}
