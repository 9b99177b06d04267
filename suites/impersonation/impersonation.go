// Package impersonation is the Ginkgo suite of the scenarios about
// impersonation. It is thin: it walks what a session runs and reports each
// verdict to Ginkgo.
package impersonation

import (
	"context"

	"github.com/onsi/ginkgo/v2"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/suites/spec"
)

// Folders are the scenario folders that belong to this suite.
func Folders() []string { return []string{"kep-5284", "docs-user-impersonation", "kubernetes"} }

// Describe adds one container per cell and one spec per scenario to the spec
// tree. The session is started before the first spec and stopped after the last
// one, on failure and interrupt too; it ends with ctx. Call it while the tree is
// built: at the top level of a test package, or before RunSpecs.
func Describe(ctx context.Context, s *session.Session) bool {
	return ginkgo.Describe("impersonation", ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
		ginkgo.BeforeAll(func(node ginkgo.SpecContext) {
			// The scenarios go on in the background after this node, so they must not
			// end with the node's own context.
			background, cancel := context.WithCancel(ctx)
			ginkgo.DeferCleanup(func() error {
				cancel()
				return s.Stop()
			})
			stop := context.AfterFunc(node, cancel) // an interrupt while starting
			defer stop()
			if err := s.Start(background); err != nil {
				ginkgo.Fail(err.Error())
			}
		})
		for _, c := range s.Cells {
			ginkgo.Context(c.Plan.Target.Cell.Name, func() { describeCell(c) })
		}
	})
}

func describeCell(c *session.Cell) {
	for _, item := range c.Plan.Items {
		id := item.Scenario.ID
		switch item.Fate {
		case session.Run:
			ginkgo.It(id, ginkgo.Label(string(item.Scenario.Level)), func(ctx ginkgo.SpecContext) {
				result, err := c.Result(ctx, id)
				if err != nil {
					ginkgo.Fail(err.Error())
				}
				spec.Report(result)
			})
		case session.Unsupported:
			ginkgo.It(id, func() { ginkgo.Skip(item.Why) })
		}
	}
}
