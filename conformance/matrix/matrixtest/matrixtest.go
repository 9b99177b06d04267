// Package matrixtest has the cells that tests start.
package matrixtest

import (
	"os"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// NewestCells returns the cells of the newest version with the gate as it is named, on control planes of this machine. A
// program that has to be built shows its progress on standard error.
func NewestCells(t testing.TB, gate scenarios.Gate) []server.Options {
	t.Helper()
	cells, err := matrix.Matrix{
		Provider:   server.Local,
		Kubernetes: []string{matrix.Newest()},
		Gates:      matrix.Gates{gate},
		Binaries:   &local.Binaries{Progress: os.Stderr},
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	return cells
}
