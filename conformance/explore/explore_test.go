package explore_test

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// TestExplore compares model and server in 200 cases, on the
// server that AUTHZCONF_KUBERNETES and AUTHZCONF_GATE name; AUTHZCONF_CASES asks
// for more.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("AUTHZCONF_CASES"), "200"))
	if err != nil {
		t.Fatalf("AUTHZCONF_CASES: %v", err)
	}
	made := run(t, "explore", "--kubernetes="+cmp.Or(os.Getenv("AUTHZCONF_KUBERNETES"), matrix.Newest()), "--gate="+cmp.Or(os.Getenv("AUTHZCONF_GATE"), "on"), "--seed=11", "--cases="+strconv.Itoa(n))
	if o := made.Report.Outcome; o.Result != verdicts.Passed {
		t.Errorf("%+v", o)
	}
	figures := map[string]int{}
	for _, f := range made.Report.Figures {
		figures[f.Name] = int(f.Value)
	}
	want := n * len(made.Report.Groups)
	if figures["cases"] != want || figures["access reviews"] < want || figures["disagreements"] > 0 {
		t.Errorf("%v; wanted %d cases, and at least as many reviews", figures, want)
	}
	for _, change := range []struct {
		changed bool
		want    string
	}{{false, ""}, {true, "its digest is not the one"}} {
		if got := strings.Join(verify(t, made, change.changed), "\n"); !strings.Contains(got, change.want) || (got == "") != (change.want == "") {
			t.Errorf("verify: %q, want %q", got, change.want)
		}
	}
}

// parse returns the command line of some words, as the program does.
func parse(words []string) (*product.CommandLine, []string, error) {
	set := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	line := product.NewCommandLine(explore.Product, set, nil)
	err := set.Parse(words[1:])
	return line, set.Args(), err
}

func run(t *testing.T, words ...string) *product.Made {
	t.Helper()
	line, args, err := parse(words)
	if err != nil {
		t.Fatal(err)
	}
	i := product.NewInvocation(args, "test", os.Stderr)
	prepared, err := line.Prepare(i)
	if err != nil {
		t.Fatal(err)
	}
	made, err := product.Execute(context.Background(), product.Run{
		Prepared: prepared, Invocation: i, Command: append([]string{"authzconf"}, words...),
		Say: func(text string) { t.Log(text) }, Status: func(string) {}, Judged: func(c product.Case, r reports.Result) { t.Log(r.Verdict, c.ID, r.Details) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// verify verifies a report, in which one byte of the evidence is changed if that is wanted.
func verify(t *testing.T, made *product.Made, changed bool) []string {
	t.Helper()
	files, err := made.Log.Files()
	if err != nil {
		t.Fatal(err)
	}
	if files[reports.ReportFile], err = made.Report.Encode(); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if changed && strings.Contains(name, "/server.json") {
			files[name] = append(data, ' ')
		}
	}
	v, err := product.Verify(func(name string) ([]byte, error) {
		if data, ok := files[name]; ok {
			return data, nil
		}
		return nil, os.ErrNotExist
	}, parse, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return v.Differences
}
