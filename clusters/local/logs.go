package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ExportLogs copies the logs of etcd and kube-apiserver to an existing folder.
func (c *ControlPlane) ExportLogs(ctx context.Context, dest string) error {
	logs, err := filepath.Glob(filepath.Join(c.run.path, "*.log"))
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return errors.New("the control plane has written no logs")
	}
	for _, log := range logs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := os.ReadFile(log)
		if err != nil {
			return fmt.Errorf("exporting a log: %w", err)
		}
		if err := WriteFile(filepath.Join(dest, filepath.Base(log)), data); err != nil {
			return fmt.Errorf("exporting a log: %w", err)
		}
	}
	return nil
}
