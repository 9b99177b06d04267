package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/kind"
)

func newClean() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove clusters of kind that earlier runs left",
		Long: `Find clusters of kind that authzconf made and whose run is over, because they were
kept (--keep) or their process was killed, and remove them with their folders.
Clusters in use, and everything else on the container engine, stay.`,
		Example: `  authzconf clean --dry-run
  authzconf clean`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := kind.CheckEngine(c.Context()); err != nil {
				return err
			}
			names, err := kind.Leftovers(c.Context())
			if err != nil {
				return invalid(err)
			}
			out := c.OutOrStdout()
			var errs []error
			for _, name := range names {
				if dryRun {
					_, _ = fmt.Fprintf(out, "would remove %s\n", name)
					continue
				}
				if err := kind.Remove(c.Context(), name); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
					continue
				}
				_, _ = fmt.Fprintf(out, "removed %s\n", name)
			}
			if len(names) == 0 {
				_, _ = fmt.Fprintln(out, "nothing is left over")
			}
			if err := errors.Join(errs...); err != nil {
				return invalid(err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be removed, and stop")
	return c
}
