package main

import (
	_ "embed" // the page
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

func newCoverage() *cobra.Command {
	var f runFlags
	var docs string
	c := &cobra.Command{
		Use:   "coverage",
		Short: "Count which places of the code the suite reaches",
		Long: `Run the whole suite against the kube-apiserver with all mutants in it, none of them
chosen, gate on and gate off, and print how many of the places where a mutant changes
something are reached, of each part.

Exit codes: 0 every place was reached, is argued to be unreachable, or stands in
open.yaml; 1 one is not, or an argument is wrong; 2 bad usage or input; 3 the
environment broke.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			run, found, err := f.measure(c)
			if err != nil {
				return err
			}
			r := newReach(found, run.Reached)
			if err := os.WriteFile(docs, []byte(r.markdown()), 0o644); err != nil {
				return invalid(err)
			}
			_, _ = fmt.Fprintln(c.OutOrStdout(), r.total())
			if len(r.wrong) > 0 {
				return failed(errors.Join(r.wrong...))
			}
			return nil
		},
	}
	f.register(c)
	c.Flags().StringVar(&docs, "docs", "docs/server-coverage.md", "the published table")
	return c
}

// reach is which places the suite reaches.
type reach struct {
	*results
	reached func(number int) bool
	// argued are places that no client reaches, missing those that nothing is argued about.
	argued, missing []mutate.Mutant
	wrong           []error
}

func newReach(found *results, reached func(int) bool) *reach {
	r := &reach{results: found, reached: reached}
	for _, m := range found.mutants {
		switch {
		case reached(m.Number) && found.is(m.Key, unreachable):
			r.wrong = append(r.wrong, fmt.Errorf("%s: argued to be unreachable, but reached: %s", m.Key, m.Snippet))
		case reached(m.Number):
		case found.argued(m.Key):
			r.argued = append(r.argued, m)
		default:
			r.missing = append(r.missing, m)
			if !found.is(m.Key, open) {
				r.wrong = append(r.wrong, fmt.Errorf("%s: not reached, no argument why, and not in %s: %s", m.Key, openFile, m.Snippet))
			}
		}
	}
	return r
}

// total is what is reached of each part.
func (r *reach) total() string {
	var lines []string
	for _, p := range r.parts {
		count := func(some []mutate.Mutant) (n int) {
			for _, m := range some {
				if m.Part == p.Name {
					n++
				}
			}
			return n
		}
		all, left := count(r.mutants), count(r.missing)
		reachable := all - count(r.argued)
		lines = append(lines, fmt.Sprintf("%s: %d of %d places (%s); of the %d that a client can reach, %s",
			p.Name, reachable-left, all, percent(reachable-left, all), reachable, percent(reachable-left, reachable)))
	}
	return strings.Join(lines, "\n")
}

// coveragePage is the published page: the release, the totals, the functions, and what is not reached, argued and not.
//
//go:embed coverage.txt
var coveragePage string

// markdown is the published page.
func (r *reach) markdown() string {
	functions := newTable("part", "file", "function", "places:", "reached:", "share:")
	for i := 0; i < len(r.mutants); {
		first, places, reached := r.mutants[i], 0, 0
		for ; i < len(r.mutants) && r.mutants[i].File == first.File && r.mutants[i].Function == first.Function; i++ {
			places++
			if r.reached(r.mutants[i].Number) {
				reached++
			}
		}
		functions.row(first.Part, first.File, code(first.Function), places, reached, percent(reached, places))
	}
	list := func(all []mutate.Mutant) string {
		if len(all) == 0 {
			return "Nothing.\n"
		}
		t, last := newTable("where", "source", "why"), ""
		for _, m := range all {
			where := fmt.Sprintf("%s:%d, %s", m.File, m.Line, code(m.Function))
			if why := r.arguments[m.Key].Reason; why == "" || where+why != last {
				t.row(where, code(m.Snippet), why)
				last = where + why
			}
		}
		return t.String()
	}
	return fmt.Sprintf(coveragePage, r.Kubernetes, strings.ReplaceAll(r.total(), "\n", "\n- "), functions, list(r.argued), list(r.missing))
}
