// Command submitted checks the reports that others have submitted by pull request, in reports/submitted, and writes the table
// of them into docs/submitted.md. It is started by ci/submitted/check.
//
// Exit codes: 0 all of them are in order, and so is the table; 1 one of them claims what is not so, or does not follow from
// its evidence, or the table is not up to date; 2 one of them does not have the form that it has to have.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// The places in the repository.
const (
	submissionsFolder = "reports/submitted"
	pageFile          = "docs/submitted.md"
	programsFolder    = "_output/submitted"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run checks all submissions of the repository that the flags name, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("submitted", flag.ContinueOnError)
	flags.SetOutput(stderr)
	update := flags.Bool("update", false, "write the table anew")
	root := flags.String("root", ".", "the repository")
	base := flags.String("base", "HEAD", "what the versions that verify have to be part of: in CI, the branch that a pull request is for")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: ci/submitted/check [-update] [-base REVISION]")
		return exitForm
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	builder := &programs{root: *root, base: *base}
	all, code := checkAll(ctx, filepath.Join(*root, submissionsFolder), builder.verify, stdout, stderr)
	if code != exitInOrder {
		return code
	}
	if err := checkPage(filepath.Join(*root, pageFile), all, *update); err != nil {
		return report(stderr, err)
	}
	_, _ = fmt.Fprintf(stdout, "%d in order, and the table in %s\n", len(all), pageFile)
	return exitInOrder
}

// The exit codes of the program.
const (
	exitInOrder = 0
	exitUntrue  = 1
	exitForm    = 2
)

// formError is an error in the form of a submission, which its author can mend without running anything again.
type formError struct{ text string }

// Error returns where the error is, what was expected, and what to do.
func (e *formError) Error() string { return e.text }

func formErrorf(format string, args ...any) error { return &formError{fmt.Sprintf(format, args...)} }

// report prints an error in one line and returns the exit code for it.
func report(w io.Writer, err error) int {
	_, _ = fmt.Fprintln(w, "error: "+onOneLine(err.Error()))
	if form := new(formError); errors.As(err, &form) {
		return exitForm
	}
	return exitUntrue
}

// checkAll checks every submission, also after one that is not in order, and returns those that are. Something untrue counts
// for more than a wrong form.
func checkAll(ctx context.Context, folder string, verify verifier, stdout, stderr io.Writer) (all []*submission, code int) {
	submissions, err := findSubmissions(folder)
	if err != nil {
		return nil, report(stderr, err)
	}
	for _, s := range submissions {
		err := s.check(ctx, verify)
		if err == nil {
			_, _ = fmt.Fprintf(stdout, "%s: in order\n", s.path)
			all = append(all, s)
			continue
		}
		if c := report(stderr, fmt.Errorf("%s: %w", s.path, err)); code != exitUntrue {
			code = c
		}
	}
	return all, code
}
