package reports

import (
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

var testPrograms = []Program{
	{Name: "kube-apiserver", Version: "1.37.1", Origin: "built from modules", SHA256: strings.Repeat("a", 64)},
	{Name: "etcd", Version: "3.7.0", Origin: "built from modules", SHA256: strings.Repeat("b", 64)},
}

// TestWitnessJudge checks that what was read back has to be what was requested, whatever a report says about either.
func TestWitnessJudge(t *testing.T) {
	const asked = "requested [{Group}] without impersonating a user"
	for name, change := range map[string]func(*Witness, *verdicts.Cell){
		"":                 func(*Witness, *verdicts.Cell) {},
		"no version asked": func(_ *Witness, c *verdicts.Cell) { c.Kubernetes = "" },
		"an odd version":   func(_ *Witness, c *verdicts.Cell) { c.Kubernetes = "mutant" },
		"another version":  func(w *Witness, _ *verdicts.Cell) { w.GitVersion = "v1.36.3" },
		"emulated":         func(w *Witness, _ *verdicts.Cell) { w.EmulatedVersion = "1.36" },
		"its answer":       func(w *Witness, _ *verdicts.Cell) { w.GateProbe.Gate = scenarios.GateOn },
		"not probed":       func(w *Witness, _ *verdicts.Cell) { w.Probes = nil },
		"one unseen":       func(w *Witness, _ *verdicts.Cell) { w.Probes.Front-- },
		"no program":       func(w *Witness, _ *verdicts.Cell) { w.Programs = nil },
		"one program":      func(w *Witness, _ *verdicts.Cell) { w.Programs = w.Programs[:1] },
		"another program":  func(w *Witness, _ *verdicts.Cell) { w.Programs[1].Name = "etcd2" },
		"no digest":        func(w *Witness, _ *verdicts.Cell) { w.Programs[1].SHA256 = "" },
		"an odd digest":    func(w *Witness, _ *verdicts.Cell) { w.Programs[0].SHA256 += "0" },
		"of nowhere":       func(w *Witness, _ *verdicts.Cell) { w.Programs[0].Origin = "" },
		"another kubelet":  func(_ *Witness, c *verdicts.Cell) { c.Nodes = "1.34.4,1.37.1" },
		"no kubelets":      func(w *Witness, c *verdicts.Cell) { c.Nodes, w.Components = "1.34.4", nil },
		"no settings":      func(w *Witness, c *verdicts.Cell) { w.AskedSettings, c.Unchanged = nil, true },
		"settings unread":  func(w *Witness, _ *verdicts.Cell) { w.SeenSettings = nil },
		"admission":        func(w *Witness, _ *verdicts.Cell) { w.SeenSettings.AdmissionOff = nil },
		"metrics":          func(w *Witness, _ *verdicts.Cell) { w.SeenSettings.MetricsOff = 1 },
		"its arguments":    func(w *Witness, _ *verdicts.Cell) { w.Arguments = w.Arguments[1:] },
		"asked to keep":    func(_ *Witness, c *verdicts.Cell) { c.Unchanged = true },
		"one API server":   func(_ *Witness, c *verdicts.Cell) { c.ControlPlanes = "1.36.3,1.36.3" },
		"not read":         func(w *Witness, _ *verdicts.Cell) { w.GateProbe = nil },
	} {
		w := &Witness{
			GitVersion:      "v1.37.1",
			EmulatedVersion: "1.37",
			ExpectedGate:    scenarios.GateOff,
			GateMetric:      scenarios.GateOff,
			GateProbe:       &GateProbe{Code: 400, Message: asked, Gate: scenarios.GateOff},
			Programs:        slices.Clone(testPrograms),
			Probes:          &ProbeCount{Sent: 4, Front: 4, Back: 1},
			AskedSettings:   &Settings{AdmissionOff: []string{"A", "B"}, MetricsOff: 2},
			SeenSettings:    &Settings{AdmissionOff: []string{"A", "B"}, MetricsOff: 2},
			Arguments:       []string{"--disable-admission-plugins=B", "--v=2", "--disable-admission-plugins=A", "--disabled-metrics=a,b"},
			Components: []Component{
				{Name: Kubelet, Version: "1.37.1"},
				{Name: Kubelet, Version: "1.36.3", Worker: true},
				{Name: Kubelet, Version: "1.34.4", Worker: true},
			},
		}
		cell := verdicts.Cell{Provider: "local", Kubernetes: "1.37.1", Nodes: "1.34.4,1.36.3"}
		if change(w, &cell); (len(w.Judge(cell, scenarios.AllCapabilities())) == 0) != (name == "") {
			t.Errorf("%q: %q", name, w.Judge(cell, scenarios.AllCapabilities()))
		}
	}
}
