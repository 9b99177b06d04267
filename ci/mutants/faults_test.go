package mutants

import (
	_ "embed"
	"os"
	"testing"
)

//go:embed faults.yaml
var faultsFile []byte

// TestFaults compiles each fault for good, and leaves a kube-apiserver for each in the folder that FAULTS names: servers that
// storms, generated cases and runs of scenarios have to fail (make faults).
func TestFaults(t *testing.T) {
	folder := os.Getenv("FAULTS")
	if folder == "" {
		t.Skip("builds a kube-apiserver for each fault, into the folder that FAULTS names")
	}
	for _, f := range parseFixes(t, faultsFile, "faults") {
		t.Run(f.Finding, func(t *testing.T) { buildInto(t, folder, f) })
	}
}
