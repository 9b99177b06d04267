package product

import (
	"fmt"
	"io"
	"maps"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
)

// Product is one kind of run: conformance, upgrade, certify and so on.
type Product struct {
	// Name is what a report calls the product.
	Name string
	// Command are the words that start it on the command line, such as "conditions run".
	Command string
	// Arguments are the positional arguments as a usage line names them, such as " [FILE...]"; empty for none.
	Arguments string
	// New returns a product's flags, with the defaults, which are added to the flag set.
	New func(flags *pflag.FlagSet) Flags
	// Conceal returns a command line without the secrets in it, as a report has it. It is nil where no flag has secrets.
	Conceal func(command []string) []string
}

// Flags are the flags of a product, after they were parsed.
type Flags interface {
	// Plan reads everything that can be wrong with a command line before anything starts, and returns the plan. Every
	// error is for the user to mend.
	Plan(invocation *Invocation) (Plan, error)
}

// Invocation is one use of a command line: a run that is about to begin, or a record that is verified.
type Invocation struct {
	// Args are the arguments that are not flags.
	Args []string
	// Seed is that of --seed, drawn if it was not given.
	Seed int64
	// Version is that of authzconf.
	Version string
	// Messages is where slow preparations, such as a download, say what they do. It is never nil.
	Messages io.Writer
	// Recorded is the record that is verified. It is nil before a run. A plan that depends on what is outside of the
	// command line and its files, such as the version of a cluster that exists, records it and reads it here.
	Recorded *record.View
	// Scenarios is the folder of the scenarios that a record is judged by; empty stands for the built-in ones.
	Scenarios string

	inputs map[string]string
}

// NewInvocation returns an invocation before a run.
func NewInvocation(args []string, version string, messages io.Writer) *Invocation {
	return &Invocation{Args: args, Version: version, Messages: messages, inputs: map[string]string{}}
}

// Verifying reports whether the plan is made to verify a record. Then nothing outside of the record may be read.
func (i *Invocation) Verifying() bool { return i.Recorded != nil }

// ReadInput returns the content of a file that the command line names. It becomes part of the record, from which it is
// read when the record is verified.
func (i *Invocation) ReadInput(path string) ([]byte, error) {
	if text, known := i.inputs[path]; known {
		return []byte(text), nil
	}
	if i.Verifying() {
		return nil, fmt.Errorf("the record does not have the file %s, which the command line names", path)
	}
	return i.readAs(path, path)
}

// readAs reads a file, which becomes part of the record under a name.
func (i *Invocation) readAs(name, path string) ([]byte, error) {
	data, err := filing.Input(path)
	if err != nil {
		return nil, err
	}
	if record.Redact(string(data)) != string(data) {
		return nil, fmt.Errorf("%s holds what looks like a token or key, and would go into the report: take it out", path)
	}
	i.inputs[name] = string(data)
	return data, nil
}

// Fact returns what a plan depends on beside the command line and its files, such as the version that is the newest today.
// find finds it out before a run. It becomes part of the record under its name, and is read from there when the record is
// verified.
func (i *Invocation) Fact(name string, find func() (string, error)) (string, error) {
	if text, known := i.inputs[name]; known {
		return text, nil
	}
	if i.Verifying() {
		return "", fmt.Errorf("the record does not have %s, which the command line asks for", name)
	}
	text, err := find()
	if err == nil {
		i.inputs[name] = text
	}
	return text, err
}

// AddInput makes a text part of the record under a path, as if the command line named it.
func (i *Invocation) AddInput(path, text string) { i.inputs[path] = text }

func (i *Invocation) recordedInputs() map[string]string {
	if len(i.inputs) == 0 {
		return nil
	}
	return maps.Clone(i.inputs)
}
