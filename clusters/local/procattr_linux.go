package local

import "syscall"

// sysProcAttr makes the kernel kill the child when the thread that started it ends, which is how
// children die with a parent that was killed itself. A process group of its own keeps a
// terminal's Ctrl-C from the child: this process decides in which order things end.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
