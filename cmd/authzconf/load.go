package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/loadgen/storm"
)

func newLoad() *cobra.Command {
	c := productCommand(loadgen.Product)
	c.AddCommand(
		newLoadPredict(),
		newLoadCompare(),
		newLoadProfiles(),
		newLoadPart(loadgen.ShardCommand, shard.Run),
		newLoadPart(loadgen.RecorderCommand, storm.ServeRecorder),
	)
	return c
}

// newLoadPart returns a command by which a run starts its shards and its recorder. These read orders from stdin and
// answer on stdout.
func newLoadPart(name string, serve func(ctx context.Context, in io.Reader, out io.Writer) error) *cobra.Command {
	c := plainCommand(name, func(c *cobra.Command) error { return invalid(serve(c.Context(), c.InOrStdin(), c.OutOrStdout())) })
	c.Short, c.Hidden = "Be the "+name+" of a storm, by stdin and stdout", true
	return c
}

func newLoadProfiles() *cobra.Command {
	return plainCommand("profiles", func(c *cobra.Command) error {
		lines, err := profile.Describe()
		if err == nil {
			_, err = fmt.Fprintln(c.OutOrStdout(), strings.Join(lines, "\n"))
		}
		return err
	})
}
