// Command authzconf checks what Kubernetes API servers do with impersonation.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/usage"
)

// These are the exit codes. They are part of the interface, because CI gates depend on them.
const (
	exitPassed  = 0
	exitFailed  = 1
	exitUsage   = 2
	exitInvalid = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// exitError ends the command with a code. If err is nil, the error has been reported already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// invalid marks an error as one of the environment, unless it is one that the user can fix. Errors that are not marked
// are the user's.
func invalid(err error) error {
	if err == nil || usage.Is(err) {
		return err
	}
	return &exitError{code: exitInvalid, err: err}
}

func exitWith(code int) error {
	if code == exitPassed {
		return nil
	}
	return &exitError{code: code}
}

func failedIf(failed bool) error {
	if failed {
		return exitWith(exitFailed)
	}
	return nil
}

// commandLine is the command line as a report records it. verify compares the report with it.
var commandLine []string

func run(args []string, stdout, stderr io.Writer) (code int) {
	commandLine = append([]string{"authzconf"}, args...)
	// A panic is not bad usage, although Go's exit code would say so. Deferred calls stop what the command has started.
	defer func() {
		if p := recover(); p != nil {
			_, _ = fmt.Fprintf(stderr, "error: authzconf broke: %v\n%s", p, debug.Stack())
			code = exitInvalid
		}
	}()
	// Most commands are short and keep little memory. With the default, collecting garbage takes a third of the time of
	// loading the scenarios.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
	stopProfile, err := startCPUProfile()
	if err != nil {
		return exitCode(err, stderr)
	}
	defer stopProfile()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // messages of client-go are not output of this program
	root := newRoot()
	if filepath.Base(os.Args[0]) == "kubectl-authzconf" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl authzconf"}
		asPlugin(root)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if c, rest, err := root.Find(args); err == nil && isUnknownCommand(c, rest) {
		return exitCode(unknownCommand(c, rest[0]), stderr)
	}
	c, err := root.ExecuteContextC(ctx)
	return exitCode(addHint(c, err), stderr)
}

// isUnknownCommand reports whether the words after a command begin with one that should name one of its subcommands but
// does not. With --help, cobra would show the help of c instead. The names of cobra's own commands for shells begin
// with _.
func isUnknownCommand(c *cobra.Command, rest []string) bool {
	if !c.HasSubCommands() || len(rest) < 2 {
		return false
	}
	isName := strings.IndexAny(rest[0], "-_") != 0
	return isName && checkArguments(c, rest[:1]) != nil
}

// asPlugin has the examples call the program as kubectl calls it.
func asPlugin(c *cobra.Command) {
	c.Example = strings.ReplaceAll(c.Example, "authzconf ", "kubectl authzconf ")
	for _, sub := range c.Commands() {
		asPlugin(sub)
	}
}

// exitCode prints an error after "error:" and, if there is a hint, the hint after "hint:".
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitPassed
	}
	code := exitUsage
	if exit, ok := errors.AsType[*exitError](err); ok {
		code, err = exit.code, exit.err
	}
	if _, unavailable := errors.AsType[*product.Unavailable](err); unavailable && !usage.Is(err) {
		code = exitInvalid
	}
	if err == nil {
		return code
	}
	text, hint := strings.TrimRight(err.Error(), "\n"), ""
	if refused, ok := errors.AsType[*usage.Error](err); ok && refused.Hint != "" {
		hint = refused.Hint
		text = strings.TrimSuffix(text, "; "+hint)
	}
	_, _ = fmt.Fprintf(stderr, "error: %s\n", text)
	if hint != "" {
		_, _ = fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "authzconf",
		Version:       fmt.Sprintf("%s (Kubernetes %s)", suiteVersion(), matrix.Known()),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          checkArguments,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetVersionTemplate("authzconf {{.Version}}\n")
	root.SetHelpCommandGroupID(housekeeping)
	root.SetCompletionCommandGroupID(housekeeping)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	addHelpTexts(root)
	return root
}

// housekeeping is the ID of the group that cobra's own commands are in too.
const housekeeping = "housekeeping"

// judgeGroup is the ID of the group of products that judge API servers.
const judgeGroup = "judge"

type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// commandGroups returns the groups with every command, in the order of the help text. cobra sorts the commands within a
// group.
func commandGroups() []commandGroup {
	return []commandGroup{
		{judgeGroup, "Judge API servers", append(productCommands(judgeGroup), newReproduce(&reproduceFlags{}))},
		{"load", "Load", []*cobra.Command{newLoad()}},
		{"authorizers", "Authorizers", []*cobra.Command{
			newCertify(),
			newConditions(),
			newGranular(),
			newSonobuoy(),
		}},
		{"read", "Read and explain", []*cobra.Command{newVerify(), newReport(), newExplain(), newAdvise(), newList(), newLint()}},
		{housekeeping, "Housekeeping", []*cobra.Command{newUp(), newControlPlanes(), newClean(), newKeygen(), newVersion()}},
	}
}

// version is set by the Makefile (-ldflags -X main.version=...).
var version = ""

// suiteVersion returns the version of authzconf: the one that was stamped, or else that of the module.
func suiteVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func newVersion() *cobra.Command {
	return plainCommand("version", func(c *cobra.Command) error {
		_, err := fmt.Fprintf(c.OutOrStdout(), "authzconf %s\n", c.Root().Version)
		return err
	})
}
