package local

import "syscall"

// sysProcAttr makes the kernel kill the child when the thread that started it ends. That is how children die with a
// parent that was killed itself. The child has a process group of its own, so that a terminal's Ctrl-C does not reach
// it: this process decides in which order things end.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
