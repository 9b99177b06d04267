package scenarios

// Gate is a state of the feature gate in question, for KEP-5284 `ConstrainedImpersonation`.
//
// It is the one that a run asks for, that a scenario needs, or that an
// API server has. What a field of this type may be, it says itself.
type Gate string

const (
	// GateOn is the effective state on, by default or because it was set.
	GateOn Gate = "on"
	// GateOff is the effective state off. A version without the gate counts as off.
	GateOff Gate = "off"
	// GateAny is for a scenario that runs in both states with the same expectations.
	GateAny Gate = "any"
	// GateDefault asks for the state that the version has by default.
	GateDefault Gate = "default"
	// GateAbsent is the state in a version that does not have the gate. Such a version behaves as one with the gate off.
	GateAbsent Gate = "absent"
	// GateUnknown is the state of a server whose answer does not show it.
	GateUnknown Gate = "unknown"
)

// String returns the state. With Set and Type it makes a *Gate the value of a flag.
func (g *Gate) String() string { return string(*g) }

// Set sets the state from the command line. The command checks which states it accepts.
func (g *Gate) Set(text string) error {
	*g = Gate(text)
	return nil
}

// Type returns the name of the type in the help text of a flag.
func (g *Gate) Type() string { return "string" }
