package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/matrix"
)

// version is set by the Makefile (-ldflags -X main.version=...).
var version = ""

// suiteVersion is the version of authzconf: stamped, else that of the module.
func suiteVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of authzconf and the Kubernetes versions it runs",
		Long: `Print the version of authzconf, which reports carry, and the Kubernetes versions
that --kubernetes accepts. The exit code is 0.`,
		Example: `  authzconf version`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "authzconf %s (Kubernetes %s)\n", suiteVersion(), matrix.Known())
			return err
		},
	}
}
