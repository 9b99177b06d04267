package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/scenarios"
)

func newList() *cobra.Command {
	var flags selectionFlags
	var output string
	var full bool
	c := plainCommand("list", func(c *cobra.Command) error {
		texts, err := flags.load()
		if err != nil {
			return err
		}
		sel, err := flags.selection()
		if err != nil {
			return err
		}
		chosen := sel.Choose(texts.Set)
		if len(chosen) == 0 {
			return fmt.Errorf("no scenario matches: %w", session.ErrNothingSelected)
		}
		if full && output != "json" && output != "yaml" {
			return errors.New("--full is for -o json and -o yaml")
		}
		return list(c.OutOrStdout(), chosen, output, full)
	})
	flags.register(c)
	c.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml")
	c.Flags().BoolVar(&full, "full", false, "with -o json or yaml: also what the loader derives")
	return c
}

// listed is a scenario with its ID, which is not part of the file.
type listed struct {
	ID string `json:"id"`
	*scenarios.Scenario
}

func list(w io.Writer, chosen []*scenarios.Scenario, output string, full bool) error {
	switch output {
	case "", "wide":
		return renderTable(w, "scenarios", struct {
			Chosen []*scenarios.Scenario
			Wide   bool
		}{chosen, output == "wide"}, 0)
	case "json", "yaml":
		items := []listed{}
		for _, s := range chosen {
			if !full {
				s = s.Lean()
			}
			items = append(items, listed{s.ID, s})
		}
		return printAs(w, output, "", items)
	}
	return fmt.Errorf("-o %q is none of wide, json, yaml", output)
}

func newLint() *cobra.Command {
	var flags selectionFlags
	return commandWith("lint [FOLDER]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
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
		for _, e := range texts.Set.Noted() {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "note: %s: %s\n", filepath.Join(flags.dir, e.Place()), e.Msg)
		}
		text := fmt.Sprintf("%d scenarios", len(texts.Set.All()))
		if len(all) > 0 {
			text += fmt.Sprintf(", %d vectors", len(all))
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), text+", no errors")
		return err
	})
}
