// Command runtime replaces runc where the machine withholds capabilities even from root.
//
// A privileged container asks for all capabilities there are. Where one of them is missing from the bounding set, as in
// some virtual machines, runc refuses ("unable to apply caps: operation not permitted"), and kind's nodes are privileged
// containers. This command, given to dockerd with --add-runtime, drops what cannot be had, and becomes runc.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
		flag, isFlag := flagName(arg)
		for _, name := range names {
			if value, found := strings.CutPrefix(flag, name+"="); isFlag && found {
				return value
			}
			if isFlag && flag == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

func flagName(arg string) (name string, isFlag bool) {
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	return name, name != arg
}

// capabilities are all of Linux, in the order of their numbers (linux/capability.h).
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE",
	"CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE",
	"CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT",
	"CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE",
	"CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// boundingSet reads the line CapBnd of /proc/<pid>/status: one bit for each capability.
func boundingSet(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "CapBnd:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, errors.New("/proc/self/status has no line CapBnd")
}

// available says whether a process may have the capability. A name that is not known here is left for runc to judge.
func available(name string, bounding uint64) bool {
	number := slices.Index(capabilities, name)
	return number < 0 || bounding&(1<<number) != 0
}

// rewriteFile drops unavailable capabilities from the file, in one step, or leaves it alone if there are none.
func rewriteFile(file string, members []string, bounding uint64) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := rewrite(before, members, bounding)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".authzconf")
	if err := os.WriteFile(temporary, after, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

// rewrite drops from the sets that members lead to (bounding, effective, permitted, …) what cannot be had. If that is
// nothing, the data is returned itself.
func rewrite(data []byte, members []string, bounding uint64) ([]byte, error) {
	var config map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // everything else stays as it was written
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	sets, dropped := config, false
	for _, member := range members {
		sets, _ = sets[member].(map[string]any)
	}
	for set := range sets {
		names, _ := sets[set].([]any)
		capabilities := slices.DeleteFunc(slices.Clone(names), func(name any) bool { return !available(fmt.Sprint(name), bounding) })
		if len(capabilities) < len(names) {
			sets[set], dropped = capabilities, true
		}
	}
	if !dropped {
		return data, nil
	}
	return json.Marshal(config)
}
