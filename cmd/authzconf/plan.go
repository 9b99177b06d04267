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

// writePlan shows what would run: each group, how many of its cases would run, and which. It counts the cases that
// would not run. Unless the user left them out, it also shows the reason if the target cannot run them or if verbose is
// set.
func writePlan(w io.Writer, p product.Plan, verbose bool) error {
	var text strings.Builder
	groups, describes := p.(product.GroupDescriber)
	cases := p.Cases()
	for len(cases) > 0 {
		group := cases[:countGroup(cases)]
		cases = cases[len(group):]
		name := group[0].Group
		if describes {
			name += ": " + groups.DescribeGroup(name)
		}
		fmt.Fprintf(&text, "%s: %s\n", name, countCases(group))
		for _, c := range group {
			switch {
			case c.NotRun == nil:
				fmt.Fprintf(&text, "  run  %s\n", c.Name)
			case c.NotRun.Cause == reports.CauseUser:
				// The user knows the reason.
			case verbose, c.NotRun.Cause == reports.CauseTargetLacks:
				fmt.Fprintf(&text, "  not  %s  (%s)\n", c.Name, c.NotRun.Why)
			}
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// countCases returns in words how many cases would run, and how many would not for which kind of reason.
func countCases(group []product.Case) string {
	count := func(cause reports.NotRunCause) int {
		return seq.Count(group, func(c product.Case) bool { return c.NotRun != nil && c.NotRun.Cause == cause })
	}
	text := fmt.Sprintf("%d to run", seq.Count(group, func(c product.Case) bool { return c.NotRun == nil }))
	for _, kind := range []struct {
		cause reports.NotRunCause
		words string
	}{
		{reports.CauseTarget, "for other versions or gates"},
		{reports.CausePath, "for later stages"},
		{reports.CauseUser, "left out"},
		{reports.CauseTargetLacks, "not supported"},
	} {
		if n := count(kind.cause); n > 0 {
			text += fmt.Sprintf(", %d %s", n, kind.words)
		}
	}
	return text
}

// countGroup returns how many cases at the beginning belong to one group.
func countGroup(cases []product.Case) int {
	n := slices.IndexFunc(cases, func(c product.Case) bool { return c.Group != cases[0].Group })
	if n < 0 {
		return len(cases)
	}
	return n
}
