//go:build !linux

package local

import "syscall"

// sysProcAttr gives the child a process group of its own. There is no parent death signal here, so children survive a
// parent that is killed.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
