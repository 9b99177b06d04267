package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

// writePlan shows what would run: the number of cases of each group, and each case with the reason if it would not run.
func writePlan(w io.Writer, cases []product.Case) error {
	var text strings.Builder
	for len(cases) > 0 {
		group := cases[:countGroup(cases)]
		cases = cases[len(group):]
		runs := seq.Count(group, func(c product.Case) bool { return c.NotRun == nil })
		fmt.Fprintf(&text, "%s: %d of %s to run\n", group[0].Group, runs, reports.Plural(len(group), "case"))
		for _, c := range group {
			if c.NotRun == nil {
				fmt.Fprintf(&text, "  run  %s\n", c.Name)
			} else {
				fmt.Fprintf(&text, "  not  %s (%s)\n", c.Name, c.NotRun.Why)
			}
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// countGroup returns how many cases at the beginning belong to one group.
func countGroup(cases []product.Case) int {
	n := slices.IndexFunc(cases, func(c product.Case) bool { return c.Group != cases[0].Group })
	if n < 0 {
		return len(cases)
	}
	return n
}
