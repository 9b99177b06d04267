package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/authzconf/authzconf/internal/seq"
)

// ReadCommand implements clusters.CommandReader. Without /proc it returns the arguments with which the process was
// started.
func (c *ControlPlane) ReadCommand(context.Context) ([]string, error) {
	pid := c.PIDs().KubeAPIServer
	if pid == 0 {
		return nil, errors.New("no kube-apiserver runs whose command line could be read")
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return apiServerArgs(c.Options(), c.Port(), c.run.path), nil
	}
	if err != nil {
		return nil, err
	}
	return SplitCommand(raw), nil
}

// SplitCommand returns the arguments in a file cmdline of /proc, without the program.
func SplitCommand(raw []byte) []string {
	words := bytes.Split(bytes.TrimSuffix(raw, []byte{0}), []byte{0})
	return seq.Map(words[1:], func(word []byte) string { return string(word) })
}
