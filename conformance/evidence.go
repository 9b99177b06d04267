package conformance

import (
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// CellRecord is what is recorded of a cell as a whole.
type CellRecord struct {
	// Witness is what the target said of itself.
	Witness reports.Witness `json:"witness"`
	// Problem says why the target could not be used, with the last lines of its log. It is empty if it could be.
	Problem string `json:"problem,omitempty"`
	// ReadySeconds is how long the target took to start, WallSeconds how long the scenarios took on it, waits included.
	ReadySeconds float64 `json:"readySeconds"`
	WallSeconds  float64 `json:"wallSeconds"`
}

// evidenceKey is the key of the evidence of a scenario on a cell. It is also the ID of the case.
func evidenceKey(cell, scenario string) string { return cell + "/" + scenario }

// cellKey is the key of what is recorded of a cell as a whole.
func cellKey(cell string) string { return "cells/" + cell }

// machineKey is the key of what a run took of the machine.
const machineKey = "machine"

// MachineRecord is what a run took of the machine.
type MachineRecord struct {
	// Parallel is how many cells ran at once.
	Parallel int `json:"parallel"`
	// PeakMemoryBytes is the most memory that authzconf and its control planes had together; 0 if that is not known.
	PeakMemoryBytes int64 `json:"peakMemoryBytes"`
	// Seconds is how long the run took, and Processors how many of them the machine gave it.
	Seconds    float64 `json:"seconds,omitempty"`
	Processors int     `json:"processors,omitempty"`
	// ProcessorSeconds is the processor time of authzconf, with the recorder in it, and of the programs of local control planes,
	// by name.
	ProcessorSeconds map[string]float64 `json:"processorSeconds,omitempty"`
}

// ReadMachine returns what a run took of the machine.
func ReadMachine(view record.View) (*MachineRecord, error) {
	return record.Read[MachineRecord](view, machineKey)
}

// ReadEvidence returns what was seen of a scenario on a cell.
func ReadEvidence(view record.View, cell, scenario string) (*verdicts.Evidence, error) {
	return record.Read[verdicts.Evidence](view, evidenceKey(cell, scenario))
}

// findEvidence returns what was seen of a scenario on a cell, nil if nothing was or it cannot be read, of which the
// verdict tells.
func findEvidence(view record.View, cell, scenario string) *verdicts.Evidence {
	e, err := ReadEvidence(view, cell, scenario)
	if err != nil {
		return nil
	}
	return e
}

// DescribeGroup adds what is known of a cell to its group.
func DescribeGroup(g *reports.Group, plan CellPlan, view record.View) {
	cell, facts := plan.Target.Cell, server.ExpectedFacts(plan.Target)
	g.Cell, g.Target = &cell, &facts
	cellRecord, err := record.Read[CellRecord](view, cellKey(cell.Name))
	if err != nil {
		g.Problem = "the run ended before the cell did"
		return
	}
	g.Problem, g.ReadySeconds, g.WallSeconds = cellRecord.Problem, cellRecord.ReadySeconds, cellRecord.WallSeconds
	if !plan.starts() {
		return
	}
	witness := cellRecord.Witness
	if cellRecord.Problem == "" {
		witness.Mismatches = witness.Judge(cell, facts.Capabilities)
	}
	g.Witness = &witness
}
