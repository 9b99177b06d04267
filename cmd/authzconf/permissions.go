package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/granular/markers"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// permissionsFlags are the flags of the command that lists permissions.
type permissionsFlags struct {
	descriptions, types, crd string
	output                   string
}

// newGranularPermissions returns the command that lists the described permissions, by field and by themselves.
func newGranularPermissions() *cobra.Command {
	var flags permissionsFlags
	c := plainCommand("permissions", func(c *cobra.Command) error {
		set, err := flags.load()
		if err != nil {
			return err
		}
		return flags.print(c.OutOrStdout(), set)
	})
	descriptionsFlag(c, &flags.descriptions)
	c.Flags().StringVar(&flags.types, "types", "", "folder of Go types, with the folders below it, whose markers to read instead")
	c.Flags().StringVar(&flags.crd, "crd", "", "file of CustomResourceDefinitions whose schemas to read instead")
	c.Flags().StringVarP(&flags.output, "output", "o", "text", "text, or yaml: a file for --descriptions")
	return c
}

// load reads the descriptions from where the flags say.
func (f *permissionsFlags) load() (*permissions.Set, error) {
	switch {
	case f.types != "":
		set, err := markers.ReadTypes(f.types)
		if err != nil {
			return nil, fmt.Errorf("--types %s: %w", f.types, err)
		}
		return set, nil
	case f.crd != "":
		data, err := os.ReadFile(f.crd)
		if err != nil {
			return nil, fmt.Errorf("--crd: %w", err)
		}
		set, err := markers.ReadCRDs(f.crd, data)
		if err != nil {
			return nil, fmt.Errorf("--crd %w", err)
		}
		return set, nil
	}
	return loadDescriptions(f.descriptions)
}

// print prints the descriptions: as tables, or as a file that can be read again.
func (f *permissionsFlags) print(w io.Writer, set *permissions.Set) error {
	switch f.output {
	case "text":
		if err := renderTable(w, "guards", set.Guards(), 0); err != nil {
			return err
		}
		return renderTable(w, "granular verbs", set.Verbs(), 0)
	case "yaml":
		text, err := set.Format()
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return fmt.Errorf("-o %q is not one of text, yaml", f.output)
}
