package local

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// kubectl is built from the pinned release's own source, as kube-apiserver is.
func kubectl() (program, error) {
	pin, err := readPin("kubectl")
	if err != nil {
		return program{}, err
	}
	version, err := pin.version(kubernetesModule)
	return program{
		name:    "kubectl",
		version: version,
		pin:     pin.name,
		pkg:     kubernetesModule + "/cmd/kubectl",
		// The second is what the user agent says, as in a released kubectl.
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v" + version +
			" -X k8s.io/client-go/pkg/version.gitVersion=v" + version,
		variable: "TEST_ASSET_KUBECTL",
	}, err
}

// Kubectl returns the path of a kubectl: the one TEST_ASSET_KUBECTL names, or else found as the
// other programs are. It is one version, whatever the control planes are.
func (b *Binaries) Kubectl(ctx context.Context) (string, error) {
	program, err := kubectl()
	if err != nil {
		return "", err
	}
	return b.find(ctx, program)
}

// RunChild runs a command to its end. Like the control planes, the child dies with this process;
// when the command's context ends, it is killed with all it has started.
func RunChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = sysProcAttr()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// Whoever inherited its output must not keep us waiting.
	cmd.WaitDelay = time.Second
	return runLocked(cmd)
}
