package kind

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// removeAll removes the containers of a cluster, including those that are still being created. kind runs a command for
// each of its containers at the same time, and returns as soon as one of them fails while the others go on.
func removeAll(ctx context.Context, name string) error {
	if err := removeContainers(ctx, name); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		return !isBeingMade(name), nil
	})
	if err != nil {
		return err
	}
	return removeContainers(ctx, name)
}

// isBeingMade reports whether a process of this machine is creating containers of a cluster with this name. Without
// /proc, none is found.
func isBeingMade(name string) bool {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	ownCommandLine := filepath.Join("/proc", strconv.Itoa(os.Getpid()), "cmdline")
	for _, command := range commands {
		line, err := os.ReadFile(command)
		if err != nil || command == ownCommandLine {
			continue // it has ended
		}
		words := bytes.Split(line, []byte{0})
		if isRun := len(words) > 1 && string(words[1]) == "run"; isRun && bytes.Contains(line, []byte(name)) {
			return true
		}
	}
	return false
}
