package granular

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

func bench(t testing.TB) *Bench {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	b, err := Start(t.Context(), serverOptions(local.Newest(), &local.Binaries{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func builtIn(t *testing.T) []*Scenario {
	t.Helper()
	all, err := Load(Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReference has all tests of the reference, which share one control plane. All but the scenarios take turns.
func TestReference(t *testing.T) {
	b := bench(t)
	t.Run("scenarios", func(t *testing.T) { passAll(t, b) })
	parts := []struct {
		name string
		try  func(t *testing.T, b *Bench)
	}{
		{"cost", costs},
		{"strangers", refusesStrangers},
		{"bodies", refusesBodies},
		{"race", doesWhatWasChecked},
		{"secondary", keepsToTheActor},
		{"schemas", describesWhatThereIs},
		{"extension", dropsTheExtension},
		{"watched", followsTheSchema},
		{"clients", keepsControllersAsTheyAre},
		{"reviews", reviewsOfOneself},
		{"in-server", rejectsWhatImplementsNothing},
		{"policies", enforcesByPolicies},
		{"excluded", enforcesExcludedFields},
		{"values", enforcesExcludedValues},
		{"webhooks", enforcesByWebhooks},
	}
	for i, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			sample.InTurn(t, i%2, 2)
			part.try(t, b)
		})
	}
}

func passAll(t *testing.T, b *Bench) {
	for range 2 { // the actors exist already in the second round
		start := time.Now()
		results, err := b.Run(t.Context(), by(t, Reference), builtIn(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			for _, p := range r.problems() {
				t.Errorf("%s: %s", r.ID(), p)
			}
		}
		t.Logf("%d attempts in %s", len(results), time.Since(start))
	}
}

// by is a kind with the built-in descriptions.
func by(t testing.TB, kind string) Enforcement {
	t.Helper()
	set, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	return Enforcement{Kind: kind, Steps: enforcer.Reference(), Descriptions: set}
}

// passBy checks enforcement by the API server, and removes it afterwards. It returns the number of attempts that could
// be made.
func passBy(t *testing.T, b *Bench, by Enforcement) (applicable int) {
	results, err := b.Run(t.Context(), by, builtIn(t))
	b.remove(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for _, p := range r.problems() {
			t.Errorf("%s: %s", r.ID(), p)
		}
	}
	return len(results)
}

// judged is a trial with its result.
type judged struct {
	trial
	reports.Result
}

// problems returns the lines that say what is wrong.
func (j judged) problems() []string {
	if j.Verdict == verdicts.Passed {
		return nil
	}
	return append([]string{j.Reason}, j.Details...)
}

// Run makes every applicable attempt of scenarios, and judges it by what was recorded.
func (b *Bench) Run(ctx context.Context, by Enforcement, scenarios []*Scenario) (results []judged, err error) {
	trials := slices.DeleteFunc(trialsOf(scenarios), func(t trial) bool { return !t.attempt.applies(by.Kind) })
	all, err := b.observe(ctx, by, trials)
	if err != nil {
		return nil, err
	}
	if len(all.strays) > 0 {
		return nil, fmt.Errorf("reviews about nobody who makes an attempt: %v", all.strays)
	}
	for i, t := range trials {
		results = append(results, judged{t, newResult(by, t, all.trials[i])})
	}
	return results, nil
}

// remove has the API server enforce nothing any more. The canary goes last, as it came: once it is no longer in force,
// the others are not either.
func (b *Bench) remove(t *testing.T) {
	t.Helper()
	for _, which := range []metav1.ListOptions{{FieldSelector: "metadata.name!=granular-canary"}, {}} {
		for _, kind := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingwebhookconfigurations"} {
			made := b.admin.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(kind))
			if err := made.DeleteCollection(t.Context(), metav1.DeleteOptions{}, which); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.waitEnforced(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}
