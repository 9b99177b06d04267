package main

import (
	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/surface"
	"github.com/authzconf/authzconf/conformance/upgrade"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/conditions"
	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/loadgen"
)

// productEntry is a product with its place in the help text of the program.
type productEntry struct {
	product product.Product
	// group is the ID of the group of its command. It is empty for a product whose command has subcommands, or others
	// beside it, which commandGroups names itself.
	group string
}

// productTable has all products.
var productTable = []productEntry{
	{conformance.Product, judgeGroup},
	{upgrade.Product, judgeGroup},
	{explore.Product, judgeGroup},
	{surface.Product, judgeGroup},
	{deputy.Product, judgeGroup},
	{granular.Product, ""},
	{conditions.Run, ""},
	{loadgen.Product, ""},
	{certify.Product, ""},
	{certify.SafeProduct, ""},
	{certification.Product, ""},
}

// productCommands returns the commands of the products of a group.
func productCommands(group string) (commands []*cobra.Command) {
	for _, entry := range productTable {
		if entry.group == group {
			commands = append(commands, productCommand(entry.product))
		}
	}
	return commands
}
