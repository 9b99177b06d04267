// Package suites is the view of Ginkgo on what the engine runs: a spec for every scenario on every cell, with labels.
// Planning, running and reports are the engine's, with or without it, and what Ginkgo's filters leave out is not run.
package suites

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type subject struct {
	name    string
	folders []string
}

// subjects are the suites by name, each with the scenario folders it owns.
var subjects = []subject{
	{"impersonation", []string{"kep-5284", "docs-user-impersonation", "kubernetes"}},
	{"deputy", []string{"periscope"}},
}

// Names are the names of all suites.
func Names() []string {
	return scenarios.Each(subjects, func(s subject) string { return s.name })
}

// Folders are the scenario folders of the named suites; without names of all.
func Folders(names ...string) ([]string, error) {
	var folders []string
	for _, name := range names {
		i := slices.Index(Names(), name)
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(Names(), ", "))
		}
		folders = append(folders, subjects[i].folders...)
	}
	return folders, nil
}

// LabelFilter reads an expression of labels in the language of Ginkgo's --label-filter.
func LabelFilter(text string) (func(labels []string) bool, error) {
	return types.ParseLabelFilter(text)
}

// Describe adds one container per cell and one spec per scenario to the spec tree. The session is started before the
// first spec and stopped after the last one, on failure and interrupt too; it ends with ctx. Call it at the top level of
// a test, before Choose and RunSpecs.
func Describe(ctx context.Context, name string, s *session.Session) bool {
	var planned [][]session.Item // what Choose leaves out stays a spec, which Ginkgo skips
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

func describeCell(c *session.Cell, planned []session.Item) {
	for _, item := range planned {
		id, labels := item.Scenario.ID, ginkgo.Label(session.Labels(item.Scenario)...)
		switch item.Fate {
		case session.Run:
			ginkgo.It(id, labels, func(ctx ginkgo.SpecContext) {
				result, err := c.Result(ctx, id)
				if err != nil {
					ginkgo.Fail(err.Error())
				}
				report(result)
			})
		case session.Unsupported:
			ginkgo.It(id, labels, func() { ginkgo.Skip(item.Why) })
		}
	}
}

// Choose asks Ginkgo which specs its filters leave (focus, skip, labels), and has the session run no others.
func Choose(name string, s *session.Session) {
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
