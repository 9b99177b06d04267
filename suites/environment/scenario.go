package environment

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// catalogue returns the built-in scenarios.
var catalogue = sync.OnceValues(func() (*scenarios.Set, error) { return scenarios.Load(scenarios.FS, fixtures.FS) })

// Scenario returns a step, for features.FeatureBuilder.Assess, that replays a built-in scenario on the cluster of the
// environment. It fails if the API server does not behave as the scenario says. It is skipped, with the reason, if the
// scenario is for another version, gate or authorizer chain.
func Scenario(id string) features.Func {
	return func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
		t.Helper()
		set, err := catalogue()
		if err != nil {
			t.Fatal(err)
		}
		s, known := set.Get(id)
		if !known {
			t.Fatalf("there is no scenario %q (authzconf list has them all)", id)
		}
		target := ServerOf(ctx)
		if selected, _, why := s.Selected(target.Facts); !selected {
			t.Skip(why)
		}
		replayer, err := replay.New(target)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Rebase(ctx); err != nil { // other steps have sent requests, which are counted, too
			t.Fatal(err)
		}
		evidence := replayer.Replay(ctx, s, scenarios.Suffix(1, t.Name(), s.ID))
		if r := verdicts.Judge(s, evidence); r.Verdict != verdicts.Passed {
			t.Error(describe(r))
		}
		return ctx
	}
}

// describe returns what is wrong, with a line for each difference.
func describe(r verdicts.Result) string {
	var lines strings.Builder
	fmt.Fprintf(&lines, "%s: %s (blame: %s): %s", r.Scenario, r.Verdict, r.Blame, r.Reason)
	for _, d := range r.Differences {
		fmt.Fprintf(&lines, "\nstep %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
	}
	return lines.String()
}
