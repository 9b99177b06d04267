package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/conditional/library"
	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

func newConditions() *cobra.Command {
	c := &cobra.Command{
		Use:   "conditions",
		Short: "Test vectors of conditional authorization (KEP-5681)",
		Long: `Test vectors of KEP-5681, Conditional Authorization: list them, hold the library
that Kubernetes has against them, and try whether two phases amount to what one phase
amounts to. None needs a server.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newConditionsList(), newConditionsLibrary(&filedFlags{}), newConditionsExplore(&conditionsExploreFlags{}))
	return c
}

func newConditionsList() *cobra.Command {
	var flags selectionFlags
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List vectors",
		Long: `Print the vectors of KEP-5681, as a table or as JSON: for each its place in the KEP, and
what it judges, an API server or a webhook.`,
		Example: "  authzconf conditions list -o json | jq '.[] | select(.webhook) | .id'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := flags.vectors()
			if err != nil {
				return err
			}
			switch output {
			case "":
			case "json":
				raw, err := json.MarshalIndent(all, "", "  ")
				if err == nil {
					_, err = fmt.Fprintln(c.OutOrStdout(), string(raw))
				}
				return err
			default:
				return fmt.Errorf("-o %q is not json", output)
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(t, "ID\tKIND\tLEVEL\tSOURCE")
			for _, v := range all {
				kind := "API-server"
				if v.Webhook != nil {
					kind = "webhook"
				}
				_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s: %s\n", v.ID, kind, v.Level, v.Source.Document, v.Source.Section)
			}
			return t.Flush()
		},
	}
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of vector files to use instead of the built-in ones")
	c.Flags().StringVarP(&output, "output", "o", "", "json")
	return c
}

func newConditionsLibrary(flags *filedFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "library",
		Short: "Hold k8s.io/apiserver's conditional authorization against the vectors",
		Long: `Hold the decisions of k8s.io/apiserver/pkg/authorization, in the version that
authzconf is built with, against the API-server vectors. Where the library is known
to do otherwise than the KEP says, it must still do so.

Exit codes: 0 everything is as it is known to be, 1 it is not, 2 bad usage.`,
		Example: "  authzconf conditions library --report-dir out",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.ready(&library.Folder); err != nil {
				return err
			}
			r, err := judgeLibrary(c.Context())
			if err != nil {
				return err
			}
			for _, line := range r.Lines() {
				_, _ = fmt.Fprintln(c.OutOrStdout(), line)
			}
			if err := flags.file(&library.Folder, r, &reports.Pieces{}); err != nil {
				return err
			}
			return failedIf(!r.Passed())
		},
	}
	flags.register(c.Flags(), "library.yaml")
	return c
}

func judgeLibrary(ctx context.Context) (*library.Report, error) {
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	list, err := library.Known()
	if err != nil {
		return nil, err
	}
	return library.Judge(ctx, all, list, library.Library())
}

// libraryAgain judges the library again: vectors and library are all that its report follows from.
func libraryAgain(r *library.Report, _ *reports.Pieces, _ *verifyFlags) (*library.Report, error) {
	if err := reread(newConditionsLibrary(&filedFlags{}), r.Command, "conditions", "library"); err != nil {
		return nil, err
	}
	return judgeLibrary(context.Background())
}

type conditionsExploreFlags struct {
	filedFlags
	cases int
	seed  int64
}

func newConditionsExplore(flags *conditionsExploreFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "explore",
		Short: "Try whether two phases amount to what one phase amounts to",
		Long: `Generate policies, requests and objects, ask the reference authorizer, and compare:
evaluating the policies with the request, and what is left of them with the object,
must amount to what they decide with everything known, which is computed without CEL.
A disagreement is made as small as it can be, and printed as a vector file.

Exit codes: 0 all cases agree, 1 some do not, 2 bad usage, 3 interrupted.`,
		Example: "  authzconf conditions explore --cases 100000 --seed 1",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return flags.run(c) },
	}
	c.Flags().IntVar(&flags.cases, "cases", 100000, "how many cases to try")
	seedFlag(c, &flags.seed, "the cases (default: random, printed)")
	flags.register(c.Flags(), "explore.yaml and the vector files of disagreements")
	return c
}

// explore tries the cases.
func (f *conditionsExploreFlags) explore(ctx context.Context, progress func(done int)) (*model.Explored, error) {
	if f.cases < 1 {
		return nil, fmt.Errorf("--cases %d: the number of cases is at least 1", f.cases)
	}
	r, err := model.Explore(ctx, reference.Subject, model.Exploration{Cases: f.cases, Seed: f.seed, Progress: progress})
	return r, invalid(err)
}

// conditionsExploredAgain tries the same cases again: they are all that a report follows from.
func conditionsExploredAgain(r *model.Explored, _ *reports.Pieces, _ *verifyFlags) (*model.Explored, error) {
	var f conditionsExploreFlags
	c := newConditionsExplore(&f)
	if err := reread(c, r.Command, "conditions", "explore"); err != nil {
		return nil, err
	}
	reseed(c, &f.seed, r.Seed)
	if r.Stopped {
		return nil, errors.New("the exploration was stopped before all its cases were tried: which were, its report does not say")
	}
	return f.explore(context.Background(), nil)
}

func (f *conditionsExploreFlags) run(c *cobra.Command) error {
	if err := f.ready(&filedExplore); err != nil {
		return err
	}
	begin, show := time.Now(), newDisplay(c.ErrOrStderr())
	r, err := f.explore(c.Context(), func(done int) {
		if show.due() {
			show.status(fmt.Sprintf("%d/%d cases, %.0f cases/s", done, f.cases, float64(done)/time.Since(begin).Seconds()))
		}
	})
	show.end()
	if err != nil {
		return err
	}
	return f.finish(c, r, time.Since(begin))
}

// finish prints what was found, even if it cannot be written.
func (f *conditionsExploreFlags) finish(c *cobra.Command, r *model.Explored, took time.Duration) error {
	out := c.OutOrStdout()
	for _, d := range r.Disagreements {
		_, _ = fmt.Fprintf(out, "case %d: %s\n%s", d.Case, d.Reason, d.Vector)
	}
	_, _ = fmt.Fprintf(out, "first phase: %d Allow, %d Deny, %d NoOpinion, %d Conditional\n", r.ByAnswer[vectors.Allow], r.ByAnswer[vectors.Deny], r.ByAnswer[vectors.NoOpinion], r.ByAnswer[vectors.Conditional])
	_, _ = fmt.Fprintf(out, "in the end: %d Allow, %d Deny, %d NoOpinion\n", r.ByDecision[vectors.Allow], r.ByDecision[vectors.Deny], r.ByDecision[vectors.NoOpinion])
	_, _ = fmt.Fprintf(out, "seed %d: %d cases in %.1f s, %d disagreements\n", f.seed, r.Cases, took.Seconds(), len(r.Disagreements))
	switch unwritten := f.file(&filedExplore, r, &reports.Pieces{}); {
	case unwritten != nil:
		return unwritten
	case len(r.Disagreements) > 0:
		return &exitError{code: exitFailed}
	case r.Stopped:
		return invalid(errors.New("interrupted: not all cases were tried"))
	}
	return nil
}

// filedExplore is a report of conditions explore in a folder.
var filedExplore = filing.Kind{
	Name: "report of conditions explore", Marker: "explore.yaml", Head: map[string]string{"cases": "", "byAnswer": ""},
	Files: []string{"case-*" + vectors.Suffix, reports.SignatureFile},
}
