package upgrade

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"

	"github.com/authzconf/authzconf/suites/spec"
	"github.com/authzconf/authzconf/verdicts"
)

// Describe adds one container per leg and one spec per scenario to the spec tree.
// The walk begins before the first spec and is over after the last one, on
// failure and interrupt too; it ends with ctx.
func Describe(ctx context.Context, u *Upgrade) bool {
	return ginkgo.Describe("upgrade "+u.Path.Name, ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
		ginkgo.BeforeAll(func() {
			background, cancel := context.WithCancel(ctx)
			u.Start(background)
			ginkgo.DeferCleanup(func() {
				cancel()
				u.Finish(background)
			})
		})
		for _, leg := range u.Legs {
			ginkgo.Context(leg.Target.Cell.Name, func() { describeLeg(leg) })
		}
	})
}

func describeLeg(leg *Leg) {
	for _, item := range leg.Items {
		if !item.Runs {
			continue
		}
		ginkgo.It(item.Scenario.ID, ginkgo.Label(string(item.Scenario.Level)), func(ctx ginkgo.SpecContext) {
			select {
			case <-leg.done:
			case <-ctx.Done():
				ginkgo.Fail(ctx.Err().Error())
			}
			for _, run := range leg.Runs {
				if run.Result.Scenario == item.Scenario.ID {
					spec.Report(run.Result)
					return
				}
			}
			ginkgo.Fail(fmt.Sprintf("%s: %v", verdicts.Invalid, leg.Problem))
		})
	}
}
