// Package usage has the error of whoever gave a command, or called a function, what it cannot use.
package usage

import "errors"

// Error is a request that cannot be met as it was made: an unknown version or feature gate,
// a busy port, a binary that is not where a variable says, a folder that cannot be written. Its
// message says what to do. A command line reports it as bad usage, not as a result.
type Error struct {
	// Problem says what is wrong, without a full stop.
	Problem string
	// Hint says what to do next; it may be empty.
	Hint string
	// Err is the cause, if there is one. Its text is not repeated by Error.
	Err error
}

// Error returns the problem and, in the same line, the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Problem
	}
	return e.Problem + "; " + e.Hint
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an *Error or wraps one.
func Is(err error) bool {
	_, is := errors.AsType[*Error](err)
	return is
}
