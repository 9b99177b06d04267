package producttest

import (
	"context"
	"fmt"
)

// Noted is a T that keeps what fails, for tests of what fails the tests of others. Unlike testing.T, it goes on after Fatalf.
type Noted struct {
	Ctx context.Context
	// Failed are the messages of Errorf and Fatalf, in their order.
	Failed []string
}

// Helper implements T, as do the others.
func (n *Noted) Helper() {}

// Context returns Ctx.
func (n *Noted) Context() context.Context { return n.Ctx }

// Logf keeps nothing.
func (n *Noted) Logf(string, ...any) {}

// Errorf keeps a message.
func (n *Noted) Errorf(format string, args ...any) {
	n.Failed = append(n.Failed, fmt.Sprintf(format, args...))
}

// Fatalf keeps a message.
func (n *Noted) Fatalf(format string, args ...any) { n.Errorf(format, args...) }
