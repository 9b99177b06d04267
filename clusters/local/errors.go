package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// UsageError is a request that cannot be met as it was asked: an unknown version or feature gate,
// a busy port, a binary that is not where a variable says, a folder that cannot be written. Its
// message says what to do. A command line reports it as bad usage, not as a result.
type UsageError struct {
	// Problem says what is wrong, without a full stop.
	Problem string
	// Hint says what to do next; it may be empty.
	Hint string
	// Err is the cause, if there is one. Its text is not repeated by Error.
	Err error
}

// Error returns the problem and, in the same line, the hint.
func (e *UsageError) Error() string {
	if e.Hint == "" {
		return e.Problem
	}
	return e.Problem + "; " + e.Hint
}

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// ProcessError is an etcd or a kube-apiserver that ended by itself, could not be started, or did
// not become ready in time: the environment or the program broke, not the request.
type ProcessError struct {
	// Process is "etcd" or "kube-apiserver".
	Process string
	// PID is the process's id; 0 when it could not be started.
	PID int
	// State says what happened, such as "exit status 1", "signal: killed" or "not ready after 1m0s".
	State string
	// Reason is the program's own message found in its log; empty when none stands out.
	Reason string
	// LogFile is the file with its whole log. It is gone once the run's folder is removed.
	LogFile string
	// LogTail holds the last lines of the log, oldest first.
	LogTail []string
	// Err is the cause, such as a context's error.
	Err error
}

// Error names the process, what happened and its own reason, followed by its last log lines.
func (e *ProcessError) Error() string {
	var b strings.Builder
	b.WriteString(e.Process)
	if e.PID != 0 {
		fmt.Fprintf(&b, " (pid %d)", e.PID)
	}
	fmt.Fprintf(&b, ": %s", e.State)
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	if len(e.LogTail) == 0 {
		b.WriteString("; it logged nothing")
		return b.String()
	}
	fmt.Fprintf(&b, "\nlast %d log lines:", len(e.LogTail))
	for _, line := range e.LogTail {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *ProcessError) Unwrap() error { return e.Err }

// folderError explains why a folder this package needs cannot be used. variable is the
// environment variable that moves it.
func folderError(what, dir, variable string, err error) error {
	problem := fmt.Sprintf("cannot write the %s %s: %v", what, dir, rootCause(err))
	hint := fmt.Sprintf("make it writable, or set %s to a folder that is", variable)
	if isDiskFull(err) {
		hint = fmt.Sprintf("free some space, or set %s to a folder on a disk that has some", variable)
	}
	return &UsageError{Problem: problem, Hint: hint, Err: err}
}

// rootCause drops the path and operation of a file error, which the message already names.
func rootCause(err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
