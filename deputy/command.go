package deputy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/internal/usage"
)

// runCommand starts the proxy in a process group of its own, and waits until its URL answers. KUBECONFIG has a context
// for each control plane. stop ends the process group.
func (p *Proxy) runCommand(ctx context.Context, planes []*plane) (stop func() error, err error) {
	dir, err := planes[0].TempDir("proxy-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := writeKubeconfig(dir, p.clusters, planes)
	if err != nil {
		return nil, err
	}
	if p.answers(ctx) {
		return nil, &usage.Error{
			Problem: fmt.Sprintf("something answers at %s before --proxy-command was started: it would be judged in its place", p.URL),
		}
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	cmd, ended, err := launch(p.Command, output, output, "KUBECONFIG="+kubeconfig)
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	stop = func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the processes that it has started as well
		<-ended
		return errors.Join(output.Close(), os.RemoveAll(dir))
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, p.Timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, &usage.Error{
				Problem: fmt.Sprintf("--proxy-command ended (%s) before %s answered: %q", cmd.ProcessState, p.URL, lastOutput(output)),
			}
		default:
			return p.answers(ctx), nil
		}
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = &usage.Error{
			Problem: fmt.Sprintf(
				"--proxy-command runs, and nothing answers at %s within %s (--timeout): %q",
				p.URL,
				p.Timeout,
				lastOutput(output),
			),
		}
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// lastOutput returns the end of what a program has written to a file.
func lastOutput(file *os.File) string {
	const most = 500
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	data, _ := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-most), most))
	return string(data)
}

// launch starts a shell command in a process group of its own. A process of the group waits on a pipe whose other end
// this process has, and kills the group when the pipe is closed. So the command, and everything that it started, ends
// with this process, however this process ends.
func launch(command string, stdout, stderr *os.File, env ...string) (cmd *exec.Cmd, ended chan struct{}, err error) {
	alive, keepAlive, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command("/bin/sh", "-c", "(trap '' TERM; read -r _; kill -KILL 0) <&3 3<&- >/dev/null 2>&1 &\nexec 3<&-\n"+command) //nolint:noctx // it lives until it is stopped
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr, cmd.ExtraFiles = stdout, stderr, &syscall.SysProcAttr{Setpgid: true}, []*os.File{alive}
	if err := errors.Join(cmd.Start(), alive.Close()); err != nil {
		return nil, nil, errors.Join(err, keepAlive.Close())
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = keepAlive.Close()
		close(ended)
	}()
	return cmd, ended, nil
}

// answers reports whether something listens at the proxy's URL.
func (p *Proxy) answers(ctx context.Context) bool {
	conn, err := dial(ctx, &url.URL{Scheme: "http", Host: p.endpoint.url.Host}, nil, nil, "", attack{}.answerTimeout(), nil)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
