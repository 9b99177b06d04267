package main

import (
	"path/filepath"
	"strings"
)

// What a command of runc reads the wanted capabilities from.
type fileKind int

const (
	nothing     fileKind = iota
	bundle               // config.json of a bundle: a container with its first process
	processFile          // the file of `exec --process`: one more process
)

// globalWithValue are runc's flags before the command that take the next argument as their value.
var globalWithValue = map[string]bool{"root": true, "log": true, "log-format": true, "criu": true, "rootless": true}

// fileToRewrite names the file in which runc, started with these arguments, will read which capabilities a process
// is to have.
func fileToRewrite(args []string) (string, fileKind) {
	command, rest := split(args)
	switch command {
	case "create", "run":
		return filepath.Join(flagValue(rest, "bundle", "b"), "config.json"), bundle
	case "exec":
		if file := flagValue(rest, "process", "p"); file != "" {
			return file, processFile
		}
	}
	return "", nothing
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
