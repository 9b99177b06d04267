package main

import "github.com/spf13/cobra"

// housekeeping is the ID of the group that cobra's own commands are in too.
const housekeeping = "housekeeping"

// commandGroup is a part of the help text.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// commandGroups have every command, in the order of the help text: cobra sorts them within a group.
func commandGroups() []commandGroup {
	return []commandGroup{
		{"judge", "Judge API servers", []*cobra.Command{newRun(), newMatrix(), newUpgrade(), newExplore(), newDeputy()}},
		{"load", "Load", []*cobra.Command{newLoad()}},
		{"authorizers", "Authorizers", []*cobra.Command{newCertify(), newConditions(), newGranular()}},
		{"read", "Read and explain", []*cobra.Command{newVerify(), newReport(), newExplain(), newAdvise(), newList(), newLint()}},
		{housekeeping, "Housekeeping", []*cobra.Command{newUp(), newControlPlanes(), newClean(), newVersion()}},
	}
}
