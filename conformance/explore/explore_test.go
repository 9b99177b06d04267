package explore_test

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
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
	made := producttest.Run(
		context.Background(),
		t,
		explore.Product,
		"explore",
		"--kubernetes="+cmp.Or(os.Getenv("AUTHZCONF_KUBERNETES"), matrix.Newest()),
		"--gate="+cmp.Or(os.Getenv("AUTHZCONF_GATE"), "on"),
		"--seed=11",
		"--cases="+strconv.Itoa(n),
	)
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
		got := strings.Join(verify(t, made, change.changed), "\n")
		if !strings.Contains(got, change.want) || (got == "") != (change.want == "") {
			t.Errorf("verify: %q, want %q", got, change.want)
		}
	}
}

// verify verifies a report, in which one byte of the evidence is changed if that is wanted.
func verify(t *testing.T, made *product.RunResult, changed bool) []string {
	t.Helper()
	return producttest.Verify(t, explore.Product, made, func(name string, data []byte) []byte {
		if changed && strings.Contains(name, "/server.json") {
			data = append(data, ' ')
		}
		return data
	}).Differences
}
