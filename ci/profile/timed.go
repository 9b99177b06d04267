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
)

// runTimed runs a test's program for `go test -exec`, and adds a line to a file: the package's folder, and the processor
// time in seconds that the program and its ended children have used. The folder is relative to that of the go.mod
// above it.
func runTimed(file string, command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	failed := c.Run()
	if c.ProcessState == nil {
		return failed
	}
	folder, err := packageFolder()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	used := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	_, err = fmt.Fprintf(out, "%s %.3f\n", folder, used.Seconds())
	return errors.Join(failed, err, out.Close())
}

// packageFolder returns the folder in which go test runs the program of a package.
func packageFolder() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for root := here; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return strings.TrimPrefix(strings.TrimPrefix(here, root), "/"), nil
		}
	}
	return "", fmt.Errorf("%s is in no module", here)
}
