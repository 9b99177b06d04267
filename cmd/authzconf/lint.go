package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newLint() *cobra.Command {
	var flags selectionFlags
	c := &cobra.Command{
		Use:   "lint [FOLDER]",
		Short: "Check scenario files against every rule of the format",
		Long: `Check the scenario files of FOLDER (or the built-in ones) against every rule of
the format: fields, types, version ranges, fixtures, requestors, grants, steps,
and that every denial names an allowed twin. All errors are printed, each with
file, line and column. So are notes, on what can be left out because it follows
from the rest, and on old names. Vector files (*.vector.yaml) are checked too. No
server is needed.`,
		Example: `  authzconf lint
  authzconf lint my-scenarios                # before authzconf run --scenarios my-scenarios`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				flags.dir = args[0]
			}
			texts, err := flags.load()
			if err != nil {
				return err
			}
			all, err := flags.vectors()
			if err != nil {
				return err
			}
			noteDeprecated(c, all)
			for _, e := range texts.Set.Restated() {
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "note: %s: %s\n", filepath.Join(flags.dir, e.Place()), e.Msg)
			}
			text := fmt.Sprintf("%d scenarios", len(texts.Set.All()))
			if len(all) > 0 {
				text += fmt.Sprintf(", %d vectors", len(all))
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), text+", no errors")
			return err
		},
	}
	return c
}
