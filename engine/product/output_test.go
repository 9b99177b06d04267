package product_test

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
)

// TestFullDisk writes a report to a disk that has no room for it: the user reads why, and no half of a report is left.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("a small disk cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", disk).Run() })
	made, _ := run(t, producttest.NewPlan(3, 7))
	folder := filepath.Join(disk, "report")
	output, err := product.OpenOutput(product.Options{ReportDir: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := output.Save(made); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want %v", err, syscall.ENOSPC)
	}
	err = filepath.WalkDir(disk, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
