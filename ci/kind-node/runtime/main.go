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
	"path/filepath"
	"strings"
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
	if file, members := fileToRewrite(args); members != nil {
		if err := rewriteFile(file, members, bounding); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("%w: install runc (Debian's package runc)", err)
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// The members that lead to the wanted capabilities in the files that runc reads: config.json of a bundle has a
// container with its first process, the file of `exec --process` one more process.
var (
	bundle      = []string{"process", "capabilities"}
	processFile = []string{"capabilities"}
)

// globalWithValue are runc's flags before the command that take the next argument as their value.
var globalWithValue = map[string]bool{"root": true, "log": true, "log-format": true, "criu": true, "rootless": true}

// fileToRewrite names the file in which runc, started with these arguments, will read which capabilities a process
// is to have, and the members that lead to them; none if there is no such file.
func fileToRewrite(args []string) (file string, members []string) {
	command, rest := split(args)
	switch command {
	case "create", "run":
		return filepath.Join(flagValue(rest, "bundle", "b"), "config.json"), bundle
	case "exec":
		if file := flagValue(rest, "process", "p"); file != "" {
			return file, processFile
		}
	}
	return "", nil
}

// split finds runc's command among the arguments.
func split(args []string) (command string, rest []string) {
	for i := 0; i < len(args); i++ {
		name, isFlag := flagName(args[i])
		if !isFlag {
			return args[i], args[i+1:]
		}
		if globalWithValue[name] {
			i++
		}
	}
	return "", nil
}

// flagValue returns the value of a flag that may be written in any of the usual ways, or "".
func flagValue(args []string, names ...string) string {
	for i, arg := range args {
		given, isFlag := flagName(arg)
		for _, name := range names {
			if value, found := strings.CutPrefix(given, name+"="); isFlag && found {
				return value
			}
			if isFlag && given == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// flagName removes the dashes.
func flagName(arg string) (name string, isFlag bool) {
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	return name, name != arg
}
