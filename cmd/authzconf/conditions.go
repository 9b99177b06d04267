package main

import (
	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/conditions"
)

func newConditions() *cobra.Command {
	c := plainCommand("conditions", (*cobra.Command).Help)
	c.AddCommand(
		productCommand(conditions.Run),
		productCommand(certification.Product),
		newConditionsPolicy(),
		newConditionsServeReference(),
	)
	return c
}
