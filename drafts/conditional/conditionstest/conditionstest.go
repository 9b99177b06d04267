// Package conditionstest checks an authorizer against KEP-5681, Conditional Authorization, in its author's own tests. An
// authorizer written in Go implements authorizer.Authorizer of k8s.io/apiserver; Run asks it in the same process.
// RunHandler and RunURL ask a webhook, in the revision of the KEP's wire that it speaks.
//
// Policies are given to the authorizer as CEL (vectors.Policy), by Options.Load. Then three things are checked:
//
//   - the webhook vectors of the KEP: what the first phase answers, what a set of conditions evaluates to, and that
//     both come from one state of the policies;
//   - with Run, its position in a chain: the library's own union, with others before it and behind it;
//   - that two phases decide as one phase does, by generated policies, requests and objects. A case that fails is made
//     as small as possible.
//
// Each failure names the section of the KEP and the vector.
package conditionstest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/certifytest"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// T has the methods of *testing.T that the checks need.
type T = certifytest.T

// Options are the options of the checks.
type Options struct {
	// Load replaces the policies of the authorizer.
	Load func([]vectors.Policy) error
	// Seed determines names and generated cases. If it is left out, it is 1, so that failures repeat.
	Seed int64
	// Cases is the number of generated cases that Run tries. If it is left out, Run tries 2,000. If it is negative, Run
	// tries none.
	Cases int
}

// complete runs a test with complete options and the webhook vectors. An error of the test function ends the test.
func (o Options) complete(t T, test func(Options, []*vectors.Vector) error) {
	t.Helper()
	all, err := vectors.Builtin()
	if o.Load == nil {
		err = errors.New("Options.Load is needed: it gives the authorizer the policies that are asked about")
	}
	if err == nil {
		o.Seed, o.Cases = cmp.Or(o.Seed, 1), cmp.Or(o.Cases, 2000)
		err = test(o, slices.DeleteFunc(all, func(v *vectors.Vector) bool { return v.Webhook == nil }))
	}
	if err != nil {
		t.Fatalf("conditionstest: %v", err)
	}
}

// Run checks an authorizer written in Go.
func Run(t T, a authorizer.Authorizer, o Options) {
	t.Helper()
	o.complete(t, func(o Options, all []*vectors.Vector) error {
		all = applicable(t, all, library)
		subject := &subject{ctx: t.Context(), authorizer: a}
		return errors.Join(askVectors(t, all, reference.Handler(library, subject), o), askChains(t, all, a, o), explore(t, subject, o))
	})
}

// RunHandler checks a webhook: AuthorizationConditionsReview at /conditions, SubjectAccessReview at every other path.
func RunHandler(t T, h http.Handler, o Options) {
	t.Helper()
	o.complete(t, func(o Options, all []*vectors.Vector) error { return askVectors(t, all, h, o) })
}

// RunURL checks a webhook that is served already, at two URLs. It does not check the certificates of the webhook.
func RunURL(t T, access, conditions string, o Options) {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, address := range map[string]string{"/": access, reference.ConditionsPath: conditions} {
		h, err := certifytest.At(address)
		if err != nil {
			t.Fatalf("conditionstest: %v", err)
			return
		}
		mux.Handle(pattern, h)
	}
	RunHandler(t, mux, o)
}

// askVectors asks a webhook the vectors, and reports a failure for each vector that is answered wrongly.
func askVectors(t T, all []*vectors.Vector, h http.Handler, o Options) error {
	t.Helper()
	plan, err := certification.NewPlan(all, o.Seed)
	if err != nil {
		return err
	}
	load := func(_ context.Context, all []vectors.Policy) error { return o.Load(all) }
	run, err := certification.CertifyHandler(t.Context(), h, certification.Options{Plan: plan, Load: load})
	if err != nil {
		return err
	}
	if reportForm(t, run.Findings) {
		return nil
	}
	spoken, err := wire.Named(run.Wire)
	if err != nil {
		return err
	}
	failures, list := 0, applicable(t, all, spoken)
	for _, v := range list {
		r, err := plan.JudgeVector(seq.Filter(run.Answers, func(x certification.Exchange) bool { return x.Vector == v.ID }))
		if err != nil {
			return err
		}
		say := t.Logf // advice
		if r.Verdict != verdicts.Passed {
			say = t.Errorf
			failures++
		}
		for _, why := range r.Why {
			say("%s: %s\n  %s", place(v), v.Description, why)
		}
	}
	t.Logf(
		"conditionstest: wire %s, seed %d: %d vectors, %d exchanges, %d failures",
		run.Wire,
		o.Seed,
		len(list),
		len(run.Answers),
		failures,
	)
	return nil
}

// reportForm reports a failure if the webhook answers in no known form, and returns whether that is so.
func reportForm(t T, findings []certify.Finding) (isUnknown bool) {
	t.Helper()
	for _, f := range findings {
		if certification.IsAboutForm(f) {
			t.Errorf("conditionstest: %s: %s", f.Reason, strings.Join(f.Examples, "\n"))
			isUnknown = true
		}
	}
	return isUnknown
}

func place(v *vectors.Vector) string {
	return v.Source.Document + ", " + v.Source.Section + ": " + v.ID
}

// explore compares two phases with one.
func explore(t T, s *subject, o Options) error {
	t.Helper()
	if o.Cases < 0 {
		return nil
	}
	load := func(all []vectors.Policy, _ vectors.FailureMode) (model.LoadedAuthorizer, error) {
		return s, o.Load(all)
	}
	// The authorizer has only one set of policies at a time, and Deny is the only failure mode that the library knows.
	result, err := model.Explore(t.Context(), load, model.Exploration{Wire: library, Cases: o.Cases, Seed: o.Seed, One: true})
	if err != nil {
		return err
	}
	for _, d := range result.Disagreements {
		t.Errorf("KEP-5681, Technical Requirements: generated case %d of seed %d: %s\n%s", d.Case, o.Seed, d.Reason, d.Vector)
	}
	t.Logf("conditionstest: two phases against one: seed %d, %d cases, %d disagreements", o.Seed, result.Cases, len(result.Disagreements))
	return nil
}

// library is the revision of the wire that can express what the types of k8s.io/apiserver can: their decisions are
// unions, IDs begin with a domain, a type can be left out, and authorizer.ConditionsData has neither namespaceObject
// nor impersonatedRequest.
var library = wire.Upstream

// applicable returns the vectors that can be asked in a revision of the wire.
func applicable(t T, all []*vectors.Vector, w *wire.Revision) (out []*vectors.Vector) {
	t.Helper()
	counts := map[string]int{}
	for _, v := range all {
		if why := w.Cannot(v); why != "" {
			counts[why]++
			continue
		}
		out = append(out, v)
	}
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		t.Logf(
			"conditionstest: %d of %d vectors are not applicable: the revision %s of the wire cannot say %s",
			counts[why],
			len(all),
			w.Name,
			why,
		)
	}
	return out
}
