package producttest_test

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/conformance/conformancetest"
	"github.com/authzconf/authzconf/deputy/deputytest"
	"github.com/authzconf/authzconf/engine/product/producttest"
)

func dice(flags ...string) func(producttest.T) {
	return func(t producttest.T) { producttest.RequirePass(t, producttest.Dice, flags...) }
}

// TestRequirePass: what does not pass fails the test of somebody else, and says why. What is wrong is said before anything
// starts.
func TestRequirePass(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(producttest.T)
		want []string
	}{
		"all pass":            {dice(), nil},
		"one fails":           {dice("--limit=2"), []string{"throw-2 on table: failed", "authzconf dice: failed"}},
		"nothing is recorded": {dice("--idle"), []string{"throw-0 on table: invalid (blame: environment)", "authzconf dice: invalid"}},
		"nothing is chosen":   {dice("--focus=none"), []string{"--focus"}},
		"no such flag":        {dice("--sides=6"), []string{"unknown flag: --sides"}},
		"a filter of labels":  {dice("--label-filter=odd"), []string{"--label-filter: labels are not looked at here"}},
		"one person": {func(t producttest.T) {
			deputytest.Run(t, "http://127.0.0.1:1", deputytest.Options{Command: "true", Identities: []string{"alice=header:X: a"}})
		}, []string{"1 of at least 2 people"}},
		"no proxy":              {func(t producttest.T) { deputytest.Run(t, "localhost", deputytest.Options{Command: "true"}) }, []string{"--proxy"}},
		"no kubeconfig":         {func(t producttest.T) { conformancetest.Run(t, "none.kubeconfig") }, []string{"none.kubeconfig"}},
		"no kube-apiserver":     {func(t producttest.T) { conformancetest.RunServer(t, "none", "1.37") }, []string{"none"}},
		"an unavailable minor":  {func(t producttest.T) { conformancetest.RunServer(t, "/bin/true", "1.12") }, []string{"1.12"}},
		"a report with nowhere": {dice("--report-dir=/dev/null/report"), []string{"/dev/null"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &producttest.FailureLog{Ctx: t.Context()}
			c.run(n)
			said := strings.Join(n.Failed, "\n")
			if (len(n.Failed) == 0) != (len(c.want) == 0) {
				t.Errorf("failures: %q", n.Failed)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in %q", want, said)
				}
			}
		})
	}
}
