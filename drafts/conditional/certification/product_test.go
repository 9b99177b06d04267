package certification

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/verdicts"
)

// kubeconfig serves a handler and writes a kubeconfig for it.
func kubeconfig(t *testing.T, h http.Handler) string {
	t.Helper()
	s, err := webhook.Start(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	raw, err := reference.Kubeconfig(s)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestProduct runs the product against the reference and against a faulty authorizer, without a way to change the
// policies.
func TestProduct(t *testing.T) {
	a := newReference(t, wire.Newest())
	if err := into(a)(t.Context(), plan(t, 7).Policies()); err != nil {
		t.Fatal(err)
	}
	wrong := faultyAuthorizers()[0]
	for name, c := range map[string]struct {
		handler http.Handler
		outcome verdicts.Verdict
		phases  verdicts.Verdict
	}{
		"the reference": {reference.Handler(a.Wire, a), verdicts.Passed, verdicts.Passed},
		wrong.ID:        {wrong.Handler(a), verdicts.Failed, verdicts.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"conditions", "certify", "--seed=7", "--authorizer-kubeconfig=" + kubeconfig(t, c.handler)}
			made := producttest.Run(t.Context(), t, Product, args...)
			if got := made.Report.Outcome; got.Result != c.outcome {
				t.Errorf("the outcome is %s: %q", got.Result, got.Reasons)
			}
			failed := 0
			for _, g := range made.Report.Groups {
				for _, r := range g.Cases {
					isAtomic := g.Name == string(Atomic)
					if isAtomic != (r.Verdict == verdicts.NotSupported) {
						t.Errorf("%s/%s is %s: %s", g.Name, r.Case, r.Verdict, r.Reason)
					}
					if r.Verdict == verdicts.Failed {
						failed++
					}
				}
			}
			if (failed > 0) != (c.phases == verdicts.Failed) {
				t.Errorf("%d cases failed", failed)
			}
			verifyFolder(t, made)
		})
	}
}

// verifyFolder verifies a report as it is, and again after one byte of the evidence was changed.
func verifyFolder(t *testing.T, made *product.RunResult) {
	t.Helper()
	if v := producttest.Verify(t, Product, made, nil); len(v.Differences) > 0 || v.Cases == 0 {
		t.Errorf("%+v", v)
	}
	v := producttest.Verify(t, Product, made, func(name string, data []byte) []byte {
		if strings.HasPrefix(name, "evidence/answers/") {
			data = bytes.Clone(data)
			data[len(data)/2] ^= 1
		}
		return data
	})
	if len(v.Differences) == 0 {
		t.Errorf("evidence was changed: %+v", v)
	}
}
