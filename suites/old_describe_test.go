package suites_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/verdicts"
)

// describe adds one container per cell and one spec per scenario to the spec tree. The session is started before the
// first spec and stopped after the last one, on failure and interrupt too; it ends with ctx. Call it at the top level of
// a test, before choose and RunSpecs.
func describe(ctx context.Context, name string, s *conformance.Session) bool {
	var planned [][]conformance.Item // what choose leaves out stays a spec, which Ginkgo skips
	for _, c := range s.Cells {
		planned = append(planned, slices.Clone(c.Plan.Items))
	}
	return ginkgo.Describe(name, ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
		ginkgo.BeforeAll(func(node ginkgo.SpecContext) {
			// The scenarios go on in the background after this node, so they must not end with the node's own context.
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
		for i, c := range s.Cells {
			ginkgo.Context(c.Plan.Target.Cell.Name, func() { describeCell(c, planned[i]) })
		}
	})
}

func describeCell(c *conformance.Cell, planned []conformance.Item) {
	for _, item := range planned {
		id, labels := item.Scenario.ID, ginkgo.Label(conformance.Labels(item.Scenario)...)
		switch item.Fate {
		case conformance.Run:
			ginkgo.It(id, labels, func(ctx ginkgo.SpecContext) {
				result, err := c.Result(ctx, id)
				if err != nil {
					ginkgo.Fail(err.Error())
				}
				report(result)
			})
		case conformance.Unsupported:
			ginkgo.It(id, labels, func() { ginkgo.Skip(item.Why) })
		}
	}
}

// choose asks Ginkgo which specs its filters leave (focus, skip, labels), and has the session run no others.
func choose(name string, s *conformance.Session) {
	var left []string
	for _, spec := range ginkgo.PreviewSpecs(name).SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt && !spec.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
			cell := spec.ContainerHierarchyTexts[len(spec.ContainerHierarchyTexts)-1]
			left = append(left, cell+" "+spec.LeafNodeText)
		}
	}
	for _, c := range s.Cells {
		c.Only(func(cell, id string) bool { return slices.Contains(left, cell+" "+id) }, "left out by Ginkgo's filters")
	}
}

// report says a verdict in the words of Ginkgo.
func report(r verdicts.Result) {
	switch r.Verdict {
	case verdicts.Passed:
	case verdicts.Skipped, verdicts.NotSupported:
		ginkgo.Skip(r.Reason)
	default:
		var lines strings.Builder
		fmt.Fprintf(&lines, "%s (blame: %s): %s", r.Verdict, r.Blame, r.Reason)
		for _, d := range r.Differences {
			fmt.Fprintf(&lines, "\nstep %d: %s\n  want %s\n  got  %s", d.Step, d.Field, d.Want, d.Got)
		}
		ginkgo.Fail(lines.String())
	}
}
