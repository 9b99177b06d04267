package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

func newKeygen() *cobra.Command {
	return commandWith("keygen FILE", func(c *cobra.Command, args []string) error {
		key, err := record.NewKey(args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "private key: %s\npublic key: %[1]s.pub\nid: %s\n", args[0], key.ID())
		return err
	})
}

// publicKeys reads the keys that --key names.
func publicKeys(paths []string) (keys []*record.Key, err error) {
	for _, path := range paths {
		key, err := record.LoadKey(path)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// differs prints differences, and returns the error that they are.
func differs(c *cobra.Command, differences []string, what string) error {
	for _, d := range differences {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "differs: %s\n", d)
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("%s: %s", what, reports.Plural(len(differences), "difference"))}
}
