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

// hookTime is how long loading a policy may take, hookDelay how long its output may be open after that.
const hookTime, hookDelay = 10 * time.Minute, 5 * time.Second

// RunHook has a vendor's program load a policy, which it gets on its standard input.
func RunHook(ctx context.Context, program string, policy []byte, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(policy), stderr, stderr
	// What it starts and leaves behind would hold the policy, or our output: its group ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookDelay
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("--policy-hook: it ended, and left a process behind that kept its output open for %s; that was ended: a hook has loaded the policy when it ends", hookDelay)
	case err != nil:
		return fmt.Errorf("--policy-hook: %w", err)
	}
	return nil
}
