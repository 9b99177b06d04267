// Shard is a shard of a storm in a pod of an Indexed Job: it does what the shard processes of one machine do. Its
// job and orders come in on stdin, blocks go out on stdout; it ends with its input.
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
	err := shard.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
