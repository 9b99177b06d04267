package reports

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Agents is what the node agent, the documentation's recipe as a program in a DaemonSet, was allowed on a
// cluster with nodes, and what became of its tokens when its pod and its node were deleted.
type Agents struct {
	// Problem says why it could not be found out. Any makes the run invalid.
	Problem string       `json:"problem,omitempty"`
	Checks  []AgentCheck `json:"checks"`
	// PodWindowSeconds is how long a token was good after its pod was deleted, NodeWindowSeconds how long one
	// was seen to be good after the Node of its pod.
	PodWindowSeconds  float64 `json:"podWindowSeconds"`
	NodeWindowSeconds float64 `json:"nodeWindowSeconds"`
	// Seen is what the agents wrote, their audit events and what their tokens gave: all else follows from it.
	Seen json.RawMessage `json:"seen,omitempty"`
}

// Failed are the checks that did not pass.
func (a *Agents) Failed() []AgentCheck {
	return slices.DeleteFunc(slices.Clone(a.Checks), func(c AgentCheck) bool { return c.Want == c.Got })
}

// AgentCheck is one thing that was looked at. It passed if Got is Want.
type AgentCheck struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// conclude adds what the agents of a cell have to say.
func (a *Agents) conclude(cell string, c *conclusion) {
	switch {
	case a.Problem != "":
		c.unknown = append(c.unknown, fmt.Sprintf("%s: the node agents: %s", cell, firstLine(a.Problem)))
	case len(a.Checks) == 0:
		c.unknown = append(c.unknown, cell+": the node agents: nothing was looked at")
	}
	if failed := a.Failed(); len(failed) > 0 {
		first := failed[0]
		c.failed = append(c.failed, fmt.Sprintf("%s: the node agents: %d of %d checks failed; the first: %s: want %s, got %s", cell, len(failed), len(a.Checks), first.What, first.Want, first.Got))
	}
	if a.Problem == "" {
		c.notes = append(c.notes, fmt.Sprintf("%s: %d checks of the node agents; a token was good for %.1f s after its pod was deleted", cell, len(a.Checks), a.PodWindowSeconds))
	}
}
