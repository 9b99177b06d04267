package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/authzconf/authzconf/clusters/local"
)

// runTimed runs a test's program for `go test -exec`, and adds a line to timesFile in the profile's folder: the package's
// folder, and the processor time in seconds that the program and its ended children have used. The package's folder is relative
// to that of the go.mod above it. Control planes that the program starts are noted in a file of the package, in startsFolder.
func runTimed(profile string, command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := packageFolder()
	if err != nil {
		return err
	}
	starts := filepath.Join(profile, startsFolder, folder+".txt")
	if err := os.MkdirAll(filepath.Dir(starts), 0o755); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(), local.StartsVariable+"="+starts)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	failed := c.Run()
	if c.ProcessState == nil {
		return failed
	}
	out, err := os.OpenFile(filepath.Join(profile, timesFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cpuTime := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	_, err = fmt.Fprintf(out, "%s %.3f\n", folder, cpuTime.Seconds())
	return errors.Join(failed, err, out.Close())
}

// packageFolder returns the folder in which go test runs the program of a package.
func packageFolder() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for root := folder; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return strings.TrimPrefix(strings.TrimPrefix(folder, root), "/"), nil
		}
	}
	return "", fmt.Errorf("%s is in no module", folder)
}
