// Shard is a shard of a storm in a pod of an Indexed Job: it sends its part of the one block that it is told of in its
// environment, and writes what it counted to stdout. It ends when it is told to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/authzconf/authzconf/loadgen/shard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := shard.Run(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
