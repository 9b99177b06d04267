package matrix

import (
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Words for several states of the gate, each of which is a cell.
const (
	// GateBoth is on and off, or absent where the version has no gate.
	GateBoth scenarios.Gate = "both"
	// GateAll is every state that the version has.
	GateAll scenarios.Gate = "all"
)

// Gates are states of the gate, or words for several of them. A *Gates is the value of a flag, whose states are separated by
// commas.
type Gates []scenarios.Gate

// ParseGates reads states that are separated by commas. Which of them a version has, Matrix.Cells checks.
func ParseGates(text string) Gates {
	return seq.Map(strings.Split(text, ","), func(word string) scenarios.Gate { return scenarios.Gate(strings.TrimSpace(word)) })
}

// String returns the states, separated by commas.
func (g *Gates) String() string {
	return strings.Join(seq.Map(*g, func(gate scenarios.Gate) string { return string(gate) }), ",")
}

// Set replaces the states by those of the command line.
func (g *Gates) Set(text string) error {
	*g = ParseGates(text)
	return nil
}

// Type returns the name of the type in the help text of a flag.
func (g *Gates) Type() string { return "string" }

// gatesList is the value of a flag that adds to the states each time that it is given, as a list of strings of pflag does.
type gatesList struct {
	gates   *Gates
	isGiven bool
}

// String returns the states as pflag prints a list of strings.
func (l *gatesList) String() string {
	if l.gates == nil || len(*l.gates) == 0 {
		return "" // pflag shows no default
	}
	return "[" + l.gates.String() + "]"
}

// Set replaces the default, and adds to what was given before.
func (l *gatesList) Set(text string) error {
	if !l.isGiven {
		*l.gates = nil
	}
	*l.gates, l.isGiven = append(*l.gates, ParseGates(text)...), true
	return nil
}

// Type returns the name that a list of strings has in pflag.
func (l *gatesList) Type() string { return "stringSlice" }
