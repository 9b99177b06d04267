package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one violation of the format, with the place it was found at.
type Error struct {
	// File is the path below the folder that was loaded.
	File string
	// Line and Col count from 1. Both are 0 where the error is about a whole folder.
	Line, Col int
	// Msg is what is wrong, followed by what was expected in parentheses.
	Msg string
}

// Error implements error, in the form that editors and terminals link: "path/to/file.yaml:LINE:COL: what is wrong
// (what was expected)".
func (e *Error) Error() string {
	return e.Place() + ": " + e.Msg
}

// Place is "path/to/file.yaml:LINE:COL", or the path alone.
func (e *Error) Place() string {
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
}

// Errors is every violation found in a set of files, ordered by file, line and column. A load does not stop at the
// first one.
type Errors []*Error

// Error implements error, one violation a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.Is and errors.As access to the single violations.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// orNil sorts the errors and returns a nil error if there are none; a nil Errors in an error variable would not be
// nil.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}
