package certify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// smallFlags are the flags of certify with a plan of a few questions, which is made once for all tests.
type smallFlags struct {
	*certifyFlags
	plan    *Plan
	webhook *Webhook
}

func (f *smallFlags) Plan(i *product.Invocation) (product.Plan, error) {
	challenge, err := f.Prepare(i)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, err
	}
	o := Options{Blame: true, Plan: f.plan, LoadOptions: f.load}
	if !i.Verifying() {
		o.Webhook = f.webhook
	}
	o.Plan.setCell(cellFor(f.release))
	return f.trial(o, challenge, io.Discard), nil
}

// smallProduct returns certify with a plan of a few questions.
func smallProduct(b *Plan, w *Webhook) product.Product {
	return product.Product{Name: Product.Name, Command: Product.Command, New: func(fs *pflag.FlagSet) product.Flags {
		return &smallFlags{Product.New(fs).(*certifyFlags), b, w}
	}}
}

// trialRun is a run of certify, with the folder that it wrote.
type trialRun struct {
	product product.Product
	made    *product.RunResult
	folder  string
}

// execute runs certify with a command line.
func execute(ctx context.Context, t *testing.T, b *Plan, w *Webhook, args ...string) trialRun {
	t.Helper()
	p := smallProduct(b, w)
	made := producttest.Run(ctx, t, p, append([]string{"certify"}, args...)...)
	folder := t.TempDir()
	if err := reports.Save(folder, made.Report, made.Log, nil, nil); err != nil {
		t.Fatal(err)
	}
	return trialRun{p, made, folder}
}

// verify verifies the report. change, if given, returns what is read in place of the data of a file.
func (r trialRun) verify(t *testing.T, change func(name string, data []byte) []byte) *product.Verification {
	t.Helper()
	return producttest.VerifyFolder(t, r.product, r.folder, change)
}

// levels returns, for each level, whether it was granted.
func (r trialRun) levels() map[string]string {
	out := map[string]string{}
	for _, g := range r.made.Report.Groups {
		out[g.Name] = grantWord(g)
	}
	return out
}

func TestProduct(t *testing.T) {
	t.Parallel()
	b := plan(t, smallSeed)
	var answered atomic.Int64
	right := reference.Handler(b.Policy.Decide)
	for name, c := range map[string]struct {
		handler http.Handler
		args    []string
		want    verdicts.Verdict
		levels  map[string]string
		failed  string
	}{
		"the reference": {right, nil, verdicts.Passed, map[string]string{"core": granted, "no-overgrant": granted, "robust": granted, "load": notTried, "in-cluster": notTried, "revocation": notTried}, ""},
		"core alone":    {right, []string{"--level=core"}, verdicts.Passed, map[string]string{"core": granted, "no-overgrant": notTried, "robust": notTried}, ""},
		"one case":      {right, []string{"--focus=^case-folded$"}, verdicts.Passed, map[string]string{"core": notTried, "no-overgrant": "not tried in full"}, ""},
		"less than the level": {right, []string{"--level=extended", "--focus=per-second|as-much", "--load", "--load-rates=100", "--load-duration=1s", "--load-volume=0", "--load-p99=5s"}, verdicts.Invalid,
			map[string]string{"core": notTried, "load": inconclusive}, ""},
		"says no from some time on": {reference.Handler(func(s spec) scenarios.Decision {
			if answered.Add(1) > 100 {
				return scenarios.NoOpinion
			}
			return b.Policy.Decide(s)
		}), []string{"--level=core"}, verdicts.Failed, map[string]string{"core": notGranted}, "core/does-not-allow-what-is-granted"},
		"nothing": {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil, verdicts.Failed,
			map[string]string{"core": notGranted, "no-overgrant": notGranted, "robust": notGranted}, "robust/drift"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(
				t.Context(),
				t,
				b,
				startWebhook(t, c.handler),
				append([]string{"--seed=5", "--authorizer-kubeconfig=x"}, c.args...)...)
			if got := r.made.Report.Outcome; got.Result != c.want {
				t.Errorf("the outcome is %s: %q", got.Result, got.Reasons)
			}
			got := r.levels()
			for level, want := range c.levels {
				if got[level] != want {
					t.Errorf("level %s is granted: %s, expected %s", level, got[level], want)
				}
			}
			if c.failed != "" && !slices.ContainsFunc(r.made.Report.Groups, func(g reports.Group) bool {
				return slices.ContainsFunc(g.Cases, func(r reports.Result) bool {
					return g.Name+"/"+r.Case == c.failed &&
						r.Verdict == verdicts.Failed &&
						(g.Name != "core" || len(r.Evidence) > 0)
				})
			}) {
				t.Errorf("%s has not failed", c.failed)
			}
			if v := r.verify(t, nil); len(v.Differences) > 0 || v.Cases == 0 {
				t.Errorf("verify: %d cases, %q", v.Cases, v.Differences)
			}
		})
	}
}

// TestVerifyNotices changes a byte of each piece of evidence, and expects that verify finds it.
func TestVerifyNotices(t *testing.T) {
	t.Parallel()
	b := plan(t, smallSeed)
	r := execute(
		t.Context(),
		t,
		b,
		startWebhook(t, reference.Handler(b.Policy.Decide)),
		"--seed=5",
		"--authorizer-kubeconfig=x",
		"--level=core",
	)
	view := r.made.Log.View()
	for _, key := range view.Keys("") {
		file := view.EvidenceFile(key)
		v := r.verify(t, func(name string, data []byte) []byte {
			if name == file {
				data = bytes.Clone(data)
				data[len(data)/2] ^= 1
			}
			return data
		})
		if !slices.Contains(v.Differences, file+": its digest is not the one in "+record.IndexFile) {
			t.Errorf("%s: %q", file, v.Differences)
		}
	}
	v := r.verify(t, func(name string, data []byte) []byte {
		if name == reports.ReportFile {
			return bytes.Replace(data, []byte("- \"yes\"\n"), []byte("- \"no\"\n"), 1)
		}
		return data
	})
	if len(v.Differences) != 1 || !strings.Contains(v.Differences[0], "it is not what the record gives") {
		t.Errorf("another level: %q", v.Differences)
	}
}

// TestInterrupted ends a run early. The report contains what was asked, and nothing is granted.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := plan(t, smallSeed)
	ctx, cancel := context.WithCancelCause(t.Context())
	var n atomic.Int64
	right := reference.Handler(b.Policy.Decide)
	r := execute(ctx, t, b, startWebhook(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n.Add(1) == 500 {
			cancel(errors.New("somebody has pressed Ctrl-C"))
		}
		right.ServeHTTP(w, req)
	})), "--seed=5", "--authorizer-kubeconfig=x")
	got := r.made.Report
	if got.Outcome.Result != verdicts.Invalid || !strings.Contains(strings.Join(got.Outcome.Reasons, "\n"), "Ctrl-C") {
		t.Errorf("%+v", got.Outcome)
	}
	if levels := r.levels(); levels["no-overgrant"] != inconclusive || levels["robust"] != inconclusive {
		t.Errorf("%v", levels)
	}
	for _, g := range got.Groups {
		for _, c := range g.Cases {
			if c.Verdict == verdicts.Failed {
				t.Errorf("%s/%s: %s", g.Name, c.Case, c.Reason)
			}
		}
	}
	if v := r.verify(t, nil); len(v.Differences) > 0 {
		t.Errorf("verify: %q", v.Differences)
	}
}

// TestRecordKeepsQuestions checks that no question looks like a secret, so that the record contains an answer that
// repeats it unchanged.
func TestRecordKeepsQuestions(t *testing.T) {
	sample.InTurn(t, 1, 2)
	b := plan(t, 1)
	for _, v := range b.All() {
		raw, err := v.body()
		if err != nil {
			t.Fatal(err)
		}
		a := Answer{Check: plainCheck, Vector: v.ID, HTTP: 200}
		a.keepBody(raw, v)
		if a.RepeatsAnotherSpec {
			t.Errorf("%s: its own spec is foreign", v.ID)
		}
		again, err := record.RedactedCopy(&a, "an answer")
		if err != nil {
			t.Fatal(err)
		}
		if read := again.readBodyAgain(v); read.RepeatsAnotherSpec || read.Fault != a.Fault || read.HasStatus != a.HasStatus {
			t.Errorf("%s: %+v becomes %+v", v.ID, a, read)
		}
	}
}
