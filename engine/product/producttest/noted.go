package producttest

import (
	"context"
	"fmt"
)

// FailureLog is a T that keeps what fails, for tests of what fails the tests of others. Unlike testing.T, it goes on after Fatalf.
type FailureLog struct {
	Ctx context.Context
	// Failed are the messages of Errorf and Fatalf, in their order.
	Failed []string
}

// Helper implements T, as do the others.
func (n *FailureLog) Helper() {}

// Context returns Ctx.
func (n *FailureLog) Context() context.Context { return n.Ctx }

// Logf keeps nothing.
func (n *FailureLog) Logf(string, ...any) {}

// Errorf keeps a message.
func (n *FailureLog) Errorf(format string, args ...any) {
	n.Failed = append(n.Failed, fmt.Sprintf(format, args...))
}

// Fatalf keeps a message.
func (n *FailureLog) Fatalf(format string, args ...any) { n.Errorf(format, args...) }
