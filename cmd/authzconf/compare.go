package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/loadgen/compare"
	"github.com/authzconf/authzconf/suites/labels"
)

// newLoadCompare returns the command that compares two storms.
func newLoadCompare() *cobra.Command {
	output := "text"
	var pairs map[string]string
	c := commandWith("compare BEFORE AFTER", func(c *cobra.Command, folders []string) error {
		if err := checkForm(output); err != nil {
			return err
		}
		before, err := openStorm(folders[0])
		if err != nil {
			return err
		}
		after, err := openStorm(folders[1])
		if err != nil {
			return err
		}
		comparison, err := compare.Compare(before, after, compare.Options{Pairs: pairs})
		if err != nil {
			return fmt.Errorf("%s and %s cannot be compared: %w", folders[0], folders[1], err)
		}
		if unknown := findUnpaired(comparison, pairs); unknown != "" {
			return &usage.Error{Problem: unknown}
		}
		if output == "text" {
			return invalid(renderTable(c.OutOrStdout(), "compared storms", comparison, 0))
		}
		return invalid(printAs(c.OutOrStdout(), output, "", comparison))
	})
	c.Args = cobra.ExactArgs(2)
	c.Flags().StringVarP(&output, "output", "o", output, "text, json or yaml")
	c.Flags().
		StringToStringVar(&pairs, "variants", nil, "variants that belong together though they have other names, BEFORE=AFTER (such as legacy-node=associated-node)")
	return c
}

// openStorm reads a storm from the folder of its report, and verifies it.
func openStorm(dir string) (*compare.Storm, error) {
	s, err := loadgen.Open(dir, labels.Filter)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(s.Differences) > 0 {
		return nil, fmt.Errorf(
			"%s does not follow from its evidence, and is not compared: %s (authzconf verify %s says more)",
			dir,
			s.Differences[0],
			dir,
		)
	}
	return &compare.Storm{Run: s.Run, Result: s.Result}, nil
}

// findUnpaired returns what is wrong with the variants that the user named, or "" if both storms have them.
func findUnpaired(c *compare.Comparison, pairs map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		isPaired := slices.ContainsFunc(c.Variants, func(v compare.Variant) bool { return v.Before == name && v.After == pairs[name] })
		if !isPaired {
			return fmt.Sprintf("--variants %s=%s: expected a variant of the first storm and one of the second (not compared: %s; %s)",
				name, pairs[name], strings.Join(c.OnlyBefore, ", "), strings.Join(c.OnlyAfter, ", "))
		}
	}
	return ""
}
