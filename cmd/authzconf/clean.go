package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/kind"
)

func newClean() *cobra.Command {
	var dryRun bool
	var kubeconfig string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what earlier runs left behind: kind clusters, objects in an existing cluster",
		Long: `Find kind clusters that authzconf created and whose run is over (they were kept with
--keep, or the process was killed), and remove them with their folders.
Clusters in use, and everything else on the container engine, are left alone.

With --kubeconfig, remove what runs with --provider existing left in that cluster:
namespaces and roles with the label authzconf.dev/run. No such run may be in progress.

Exit codes: 0 everything was removed, 2 bad usage, 3 the container engine or the
cluster cannot be reached, or something could not be removed.`,
		Example: `  authzconf clean --dry-run
  authzconf clean`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if kubeconfig != "" {
				return cleanExisting(c, kubeconfig, dryRun)
			}
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
				_, _ = fmt.Fprintln(out, "nothing is left behind")
			}
			if err := errors.Join(errs...); err != nil {
				return invalid(err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "clean up this cluster, in which runs with --provider existing took place")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	return c
}
