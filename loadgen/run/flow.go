package run

import "strings"

// FlowCounter names what priority and fairness did, by which blocks count it.
type FlowCounter struct {
	// What is dispatched or rejected, which are counted in requests, or waited, which is in seconds.
	What string
	// Level is the priority level.
	Level string
	// Further is the reason of a rejection, or the unit.
	Further string
}

// String returns the name by which a block has the figure.
func (c FlowCounter) String() string {
	return strings.TrimSpace(c.What + " " + c.Level + " " + c.Further)
}

// ParseFlowCounter returns what a name says that String made.
func ParseFlowCounter(name string) (c FlowCounter) {
	c.What, name, _ = strings.Cut(name, " ")
	c.Level, c.Further, _ = strings.Cut(name, " ")
	return c
}
