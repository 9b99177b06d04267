// Command mutants measures the suite itself: how much it reaches of the code that an impersonated request goes
// through, and how many deliberately broken API servers it catches.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/authzconf/authzconf/clusters/local"
)

// Exit codes, as those of authzconf.
const (
	exitPassed  = 0
	exitFailed  = 1
	exitUsage   = 2
	exitInvalid = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// exitError ends the command with a code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// failed is for a result that is not good enough, invalid for an environment that broke; every other error is the
// user's.
func failed(err error) error { return &exitError{exitFailed, err} }

func invalid(err error) error {
	if _, usage := errors.AsType[*local.UsageError](err); err == nil || usage {
		return err
	}
	return &exitError{exitInvalid, err}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // client-go's remarks are not output of this program
	root := &cobra.Command{
		Use:           "mutants",
		Short:         "Measure what the suite catches and reaches of the API server's code",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(newRun(), newList(), newCoverage())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitPassed
	}
	code := exitUsage
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	_, _ = fmt.Fprintf(stderr, "error: %s\n", strings.TrimRight(err.Error(), "\n"))
	return code
}
