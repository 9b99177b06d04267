package surface

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// Process is what a process holds.
type Process struct {
	// Children is the number of processes that it has started, Threads of its own threads.
	Children int `json:"children"`
	Threads  int `json:"threads"`
	// Files is the number of its open files, Sockets of those that are sockets.
	Files   int `json:"files"`
	Sockets int `json:"sockets"`
	// Memory is what it holds resident, in bytes.
	Memory int `json:"memoryBytes"`
	// Peers are the addresses of other machines that it is connected with.
	Peers []string `json:"peers"`
}

// readProcess reads what a process holds.
func readProcess(pid int) (out Process, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return out, fmt.Errorf("the API server's process: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return out, err
	}
	out.Threads, out.Memory = stat.NumThreads, stat.ResidentMemory()
	files, err := proc.FileDescriptorTargets()
	if err != nil {
		return out, err
	}
	sockets := map[string]bool{}
	for _, target := range files {
		if inode, isSocket := strings.CutPrefix(target, "socket:["); isSocket {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	out.Files, out.Sockets = len(files), len(sockets)
	if out.Children, err = countChildren(pid); err != nil {
		return out, err
	}
	out.Peers, err = findPeers(proc, sockets)
	return out, err
}

// countChildren counts the processes that a process has started and that still run.
func countChildren(pid int) (n int, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid { // one that has ended meanwhile is none
			n++
		}
	}
	return n, nil
}

// findPeers returns the addresses beyond this machine to which sockets of a process are connected.
func findPeers(proc procfs.Proc, sockets map[string]bool) ([]string, error) {
	fs, err := procfs.NewFS(fmt.Sprintf("/proc/%d", proc.PID))
	if err != nil {
		return nil, err
	}
	lines, err := fs.NetTCP() //nolint:staticcheck // netlink would be one more dependency, and this reads two files now and then
	if err != nil {
		return nil, err
	}
	more, err := fs.NetTCP6()              //nolint:staticcheck // as above
	if err != nil && !os.IsNotExist(err) { // a machine without IPv6 has no such file
		return nil, err
	}
	peers := []string{}
	for _, l := range slices.Concat(lines, more) {
		if sockets[fmt.Sprint(l.Inode)] && isElsewhere(l.RemAddr) {
			peers = append(peers, l.RemAddr.String())
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers), nil
}

// isElsewhere reports whether an address is that of another machine. A socket that listens has none.
func isElsewhere(address net.IP) bool { return !address.IsLoopback() && !address.IsUnspecified() }
