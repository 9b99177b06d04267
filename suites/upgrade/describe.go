package upgrade

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"

	"github.com/authzconf/authzconf/suites/spec"
	"github.com/authzconf/authzconf/verdicts"
)

// Describe adds one container per stage and one spec per scenario to the spec tree.
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
		for _, stage := range u.Stages {
			ginkgo.Context(stage.Target.Cell.Name, func() { describeStage(stage) })
		}
	})
}

func describeStage(stage *Stage) {
	for _, item := range stage.Items {
		if !item.Runs {
			continue
		}
		ginkgo.It(item.Scenario.ID, ginkgo.Label(string(item.Scenario.Level)), func(ctx ginkgo.SpecContext) {
			select {
			case <-stage.done:
			case <-ctx.Done():
				ginkgo.Fail(ctx.Err().Error())
			}
			for _, run := range stage.Runs {
				if run.Result.Scenario == item.Scenario.ID {
					spec.Report(run.Result)
					return
				}
			}
			ginkgo.Fail(fmt.Sprintf("%s: %v", verdicts.Invalid, stage.Problem))
		})
	}
}
