package certify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// hookTime is how long it may take to load a policy. hookDelay is how long the program's output may stay open after
// that.
const hookTime, hookDelay = 10 * time.Minute, 5 * time.Second

// RunHook runs a vendor's program that loads a policy. The program gets the policy on its standard input.
func RunHook(ctx context.Context, program string, policy []byte, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(policy), stderr, stderr
	// Processes that the program leaves behind would keep the policy, or keep our output open. So its whole process
	// group is ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookDelay
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf(
			"--policy-hook: it ended, and left a process behind that kept its output open for %s; that was ended: a hook has loaded the policy when it ends",
			hookDelay,
		)
	case err != nil:
		return fmt.Errorf("--policy-hook: %w", err)
	}
	return nil
}
