package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

func newConditions() *cobra.Command {
	c := plainCommand("conditions", (*cobra.Command).Help)
	c.AddCommand(newConditionsLibrary(&filedFlags{}), newConditionsRun(&conditionsRunFlags{}), newConditionsExplore(&conditionsExploreFlags{}))
	return c
}

// spoken is the --wire that has the webhook asked.
const spoken = "auto"

// wireFlag is --wire where there is nobody to ask.
func wireFlag(c *cobra.Command, into *string, usage string) {
	c.Flags().StringVar(into, "wire", wire.Seed.Name, usage+": seed or merged")
}

func revisionOf(name string) (*wire.Revision, error) {
	w, err := wire.Named(name)
	if err != nil {
		return nil, fmt.Errorf("--wire: %w", err)
	}
	return w, nil
}

func newConditionsLibrary(flags *filedFlags) *cobra.Command {
	c := plainCommand("library", func(c *cobra.Command) error {
		if err := flags.ready(&library.Folder); err != nil {
			return err
		}
		r, err := libraryAgain(nil, nil, nil, nil, nil)
		if err != nil {
			return err
		}
		err = errors.Join(renderTable(c.OutOrStdout(), "library", r, 0), flags.file(&library.Folder, r, &reports.Pieces{}))
		return cmp.Or(err, failedIf(!r.Passed()))
	})
	flags.register(c.Flags(), "library.yaml")
	return c
}

// libraryAgain judges the library: vectors and library are all that its report follows from.
func libraryAgain(_ *filedFlags, _ *cobra.Command, _ *library.Report, _ *reports.Pieces, _ *verifyFlags) (*library.Report, error) {
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	list, err := library.Known()
	if err != nil {
		return nil, err
	}
	return library.Judge(context.Background(), all, list, library.Library())
}

type conditionsExploreFlags struct {
	filedFlags
	cases int
	seed  int64
	wire  string
}

func newConditionsExplore(flags *conditionsExploreFlags) *cobra.Command {
	c := plainCommand("explore", flags.run)
	c.Flags().IntVar(&flags.cases, "cases", 100000, "how many cases to try")
	seedFlag(c, &flags.seed, "the cases (default: random, printed)")
	wireFlag(c, &flags.wire, "the revision of the wire in which the reference is asked")
	flags.register(c.Flags(), "explore.yaml and the vector files of disagreements")
	return c
}

func (f *conditionsExploreFlags) explore(ctx context.Context, progress func(done int)) (*model.Explored, error) {
	if f.cases < 1 {
		return nil, fmt.Errorf("--cases %d: the number of cases is at least 1", f.cases)
	}
	w, err := revisionOf(f.wire)
	if err != nil {
		return nil, err
	}
	r, err := model.Explore(ctx, reference.Subject(w), model.Exploration{Wire: w, Subject: ourReference, Cases: f.cases, Seed: f.seed, Progress: progress})
	return r, invalid(err)
}

// again tries the same cases again: they are all that a report follows from.
func (f *conditionsExploreFlags) again(c *cobra.Command, r *model.Explored, _ *reports.Pieces, _ *verifyFlags) (*model.Explored, error) {
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
	var broken error
	if r.Stopped {
		broken = errors.New("interrupted: not all cases were tried")
	}
	// What was found is printed even if it cannot be written.
	unwritten := errors.Join(render(c.OutOrStdout(), "two phases", r), f.file(&filedExplore, r, &reports.Pieces{}))
	_, _ = fmt.Fprintf(c.OutOrStdout(), "seed %d, wire %s: %d cases in %.1f s, %d disagreements\n", f.seed, r.Wire, r.Cases, time.Since(begin).Seconds(), len(r.Disagreements))
	return concluded(unwritten, len(r.Disagreements) > 0, broken)
}

var filedExplore = filing.Kind{
	Name: "report of conditions explore", Marker: "explore.yaml", Head: map[string]string{"cases": "", "byAnswer": ""},
	Files: append([]string{"case-*" + vectors.Suffix}, reports.BriefFiles...),
}
