package kind

import (
	"fmt"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

// These are measured values of how much of the machine's memory the nodes of a cluster need while scenarios run
// (docs/kind.md).
const (
	controlPlaneBytes = 700 << 20
	workerBytes       = 250 << 20
)

// checkMemory checks that this machine has memory for the nodes.
func (o Options) checkMemory() error {
	demand := int64(1+len(o.ControlPlanes))*controlPlaneBytes + int64(len(o.Workers))*workerBytes
	available, known := clusters.AvailableMemory()
	if !known || available >= demand {
		return nil
	}
	return &usage.Error{
		Problem: fmt.Sprintf("%d control planes and %d workers need %d MiB of memory, and this machine has %d available",
			1+len(o.ControlPlanes), len(o.Workers), demand>>20, available>>20),
		Hint: "ask for fewer nodes (--control-planes, --nodes-kubernetes), fewer at once (--parallel), or end other programs",
	}
}
