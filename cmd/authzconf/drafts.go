package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/reports"
)

// newGranular returns the command of the product, with the commands that print the policies and the permissions.
func newGranular() *cobra.Command {
	c := productCommand(granular.Product)
	c.AddCommand(newGranularPolicies(), newGranularPermissions())
	return c
}

func newGranularPolicies() *cobra.Command {
	var dir string
	c := plainCommand("policies", func(c *cobra.Command) error {
		set, err := loadDescriptions(dir)
		if err != nil {
			return err
		}
		text, err := set.Policies()
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	})
	descriptionsFlag(c, &dir)
	return c
}

// descriptionsFlag adds the flag that names a folder of descriptions.
func descriptionsFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "descriptions", "", "folder of descriptions of fields to use instead of the built-in ones")
}

// loadDescriptions reads the descriptions of a folder, or the built-in ones.
func loadDescriptions(dir string) (*permissions.Set, error) {
	var files fs.FS = permissions.Descriptions
	if dir != "" {
		files = os.DirFS(dir)
	}
	return granular.LoadDescriptions(files, dir)
}

// These are the KEPs whose cases list and lint show, in addition to the scenarios of impersonation.
const (
	granularKEP    = "3617"
	conditionalKEP = "5681"
)

// kepFlag adds the flag that names a KEP.
func kepFlag(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "kep", "", "the cases of a draft instead: 3617 (granular) or 5681 (conditions)")
}

// loadGranular reads the scenarios of KEP-3617 that the flags select.
func (f *selectionFlags) loadGranular() ([]*granular.Scenario, error) {
	files, err := folderOr(f.dir, granular.Scenarios)
	if err != nil {
		return nil, err
	}
	all, err := granular.Load(files)
	if err != nil {
		return nil, err
	}
	focus, err := pattern("focus", f.focus)
	if err != nil {
		return nil, err
	}
	skip, err := pattern("skip", f.skip)
	if err != nil {
		return nil, err
	}
	return selectIDs(all, func(s *granular.Scenario) string { return s.ID }, focus, skip)
}

// listDraft prints the cases of a KEP.
func (f *selectionFlags) listDraft(w io.Writer, kep, output string) error {
	switch kep {
	case granularKEP:
		return f.listGranular(w, output)
	case conditionalKEP:
		return f.listVectors(w, output)
	}
	return unknownKEP(kep)
}

// listGranular prints the scenarios of KEP-3617 that the flags select.
func (f *selectionFlags) listGranular(w io.Writer, output string) error {
	all, err := f.loadGranular()
	if err != nil {
		return err
	}
	switch output {
	case "":
		return renderTable(w, "granular scenarios", all, 0)
	case "json":
		return printAs(w, output, "", all)
	}
	return fmt.Errorf("-o %q is not json", output)
}

func unknownKEP(kep string) error {
	return fmt.Errorf("--kep %q is not one of 3617, 5681", kep)
}

// lintDraft checks the files of a KEP.
func (f *selectionFlags) lintDraft(w io.Writer, kep string) error {
	switch kep {
	case granularKEP:
		all, err := f.loadGranular()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s, no errors\n", reports.Plural(len(all), "scenario"))
		return err
	case conditionalKEP:
		all, err := f.vectors()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s, no errors\n", reports.Plural(len(all), "vector"))
		return err
	}
	return unknownKEP(kep)
}
