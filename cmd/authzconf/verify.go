package main

import (
	"github.com/spf13/cobra"
)

func newVerify() *cobra.Command {
	var flags verifyFlags
	c := commandWith("verify FOLDER", func(c *cobra.Command, args []string) error { return verify(c, args[0], &flags) })
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of scenario files to judge by instead of the built-in ones")
	c.Flags().StringArrayVar(&flags.keys, "key", nil, "a public key: one of those given must have signed the report")
	c.Flags().StringVar(&flags.challenge, "challenge", "", "the challenge that the report has to answer")
	return c
}

// verifyFlags say how a report is judged again.
type verifyFlags struct {
	selectionFlags
	keys []string
	// challenge is the file of the challenge that the report has to answer.
	challenge string
}

func verify(c *cobra.Command, path string, flags *verifyFlags) error {
	keys, err := publicKeys(flags.keys)
	if err != nil {
		return err
	}
	return verifyReport(c, path, flags.dir, keys, flags.challenge)
}
