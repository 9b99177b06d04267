package producttest

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
)

// Parse returns a function that reads the words of a command line of a product, as the program does: its command, and what
// comes behind it.
func Parse(p product.Product) product.Planner {
	return func(words []string) (*product.CommandLine, []string, error) {
		flags := pflag.NewFlagSet(p.Command, pflag.ContinueOnError)
		line := product.NewCommandLine(p, flags, nil)
		err := flags.Parse(words[len(strings.Fields(p.Command)):])
		return line, flags.Args(), err
	}
}

// Run runs a command line of a product until ctx ends. Each verdict is logged.
func Run(ctx context.Context, t testing.TB, p product.Product, words ...string) *product.RunResult {
	t.Helper()
	line, args, err := Parse(p)(words)
	if err != nil {
		t.Fatal(err)
	}
	i := product.NewInvocation(args, "test", t.Output())
	prepared, err := line.Prepare(i)
	if err != nil {
		t.Fatal(err)
	}
	result, err := product.Execute(ctx, product.Run{
		PreparedRun: prepared, Invocation: i, Command: append([]string{"authzconf"}, words...),
		Say: func(text string) { t.Log(text) }, Status: func(string) {},
		Judged: func(c product.Case, r reports.Result) {
			t.Log(r.Verdict, c.ID, r.Details)
			for _, d := range r.Differences {
				t.Log("  ", d.Field, d.Got)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// Verify writes the report of a product to a folder, and verifies it as VerifyFolder does.
func Verify(t testing.TB, p product.Product, result *product.RunResult, change func(name string, data []byte) []byte) *product.Verification {
	t.Helper()
	folder := t.TempDir()
	if err := reports.Save(folder, result.Report, result.Log, nil, nil); err != nil {
		t.Fatal(err)
	}
	return VerifyFolder(t, p, folder, change)
}

// VerifyFolder verifies the report of a product in a folder. change, if given, returns what is read in place of the data of
// a file.
func VerifyFolder(t testing.TB, p product.Product, folder string, change func(name string, data []byte) []byte) *product.Verification {
	t.Helper()
	read, closeFolder, err := reports.ReadFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFolder()
	v, err := product.Verify(func(name string) ([]byte, error) {
		data, err := read(name)
		if err == nil && change != nil {
			data = change(name, data)
		}
		return data, err
	}, Parse(p), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return v
}
