package producttest

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
)

// T is what of *testing.T is needed.
type T interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RequirePass runs a product in the tests of somebody else, with these flags. It fails the test for each case that did not
// pass, with what was expected and observed, and for an outcome that is not passed: no green test has looked at nothing.
// Flags that are wrong, and what cannot be started, end the test. --report-dir writes the report as the command line does.
func RequirePass(t T, p product.Product, flags ...string) {
	t.Helper()
	result, output, err := execute(t, p, flags)
	if err != nil {
		t.Fatalf("authzconf %s: %v", p.Command, err)
		return
	}
	for _, g := range result.Report.Groups {
		for _, r := range g.Cases {
			if r.Bad() {
				t.Errorf("%s on %s: %s", r.Case, g.Name, r.Describe())
			}
		}
	}
	if err := output.Save(result); err != nil {
		t.Errorf("authzconf %s: %v", p.Command, err)
	}
	outcome := result.Report.Outcome
	if outcome.ExitCode != reports.ExitPassed {
		t.Errorf("authzconf %s: %s: %s", p.Command, outcome.Line(), strings.Join(outcome.Reasons, "; "))
		return
	}
	t.Logf("authzconf %s: seed %d: %s", p.Command, result.Report.Seed, outcome.Line())
}

// execute plans and runs a product. The error of wrong flags is said before anything starts.
func execute(t T, p product.Product, args []string) (*product.RunResult, product.Output, error) {
	flags := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	line := product.NewCommandLine(p, flags, nil)
	if err := flags.Parse(args); err != nil {
		return nil, product.Output{}, err
	}
	i := product.NewInvocation(flags.Args(), product.ModuleVersion(), io.Discard)
	prepared, err := line.Prepare(i)
	if err != nil {
		return nil, product.Output{}, err
	}
	output, err := product.OpenOutput(line.Options)
	if err != nil {
		return nil, output, err
	}
	command := append([]string{"authzconf"}, strings.Fields(p.Command)...)
	result, err := product.Execute(t.Context(), product.Run{
		PreparedRun: prepared, Invocation: i, Command: append(command, args...),
		Say: func(text string) { t.Logf("%s", text) }, Status: func(string) {}, Judged: func(product.Case, reports.Result) {},
	})
	return result, output, err
}
