package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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

// available says whether a process may have the capability. A name that is not known here is left for runc to
// judge.
func available(name string, bounding uint64) bool {
	number := slices.Index(capabilities, name)
	return number < 0 || bounding&(1<<number) != 0
}

// rewriteFile drops unavailable capabilities from the file. It is replaced in one step, and left alone if nothing
// has to be dropped.
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

// dropFromSets drops from each of the sets (bounding, effective, permitted, …).
func dropFromSets(data []byte, bounding uint64) ([]byte, error) {
	var sets map[string][]string
	if err := json.Unmarshal(data, &sets); err != nil {
		return nil, err
	}
	dropped := false
	for set, names := range sets {
		kept := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !available(name, bounding) })
		dropped = dropped || len(kept) != len(names)
		sets[set] = kept
	}
	if !dropped {
		return data, nil
	}
	return json.Marshal(sets)
}

// rewrite drops from the sets that members lead to. Everything else stays as it was written; without such members,
// or if nothing has to be dropped, the data is returned itself.
func rewrite(data []byte, members []string, bounding uint64) ([]byte, error) {
	if len(members) == 0 {
		return dropFromSets(data, bounding)
	}
	var parent map[string]json.RawMessage
	if err := json.Unmarshal(data, &parent); err != nil {
		return nil, err
	}
	before, found := parent[members[0]]
	if !found || string(before) == "null" {
		return data, nil
	}
	after, err := rewrite(before, members[1:], bounding)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", members[0], err)
	}
	if bytes.Equal(before, after) {
		return data, nil
	}
	parent[members[0]] = after
	return json.Marshal(parent)
}
