// Command runtime replaces runc where the machine withholds capabilities even from root.
//
// A privileged container asks for all capabilities there are. Where one of them is missing from the bounding set,
// as in some virtual machines, runc refuses ("unable to apply caps: operation not permitted"), and kind's nodes
// are privileged containers. This command removes what cannot be had from what the engine asks for, and then
// becomes runc. It is given to dockerd with --add-runtime.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "authzconf runtime:", err)
		os.Exit(1)
	}
}

// run returns only if runc could not be started.
func run(args []string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	bounding, err := boundingSet(string(status))
	if err != nil {
		return err
	}
	if file, kind := fileToRewrite(args); kind != nothing {
		if err := rewriteFile(file, kind, bounding); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("%w: install runc (Debian's package runc)", err)
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}
