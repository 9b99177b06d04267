// Command image writes the container image of authzconf, as `docker save` does, for clusters in which it certifies
// authorizers:
//
//	go run ./ci/certify/image TAG FILE
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/authzconf/authzconf/clusters/image"
)

const (
	name = "authzconf.dev/authzconf"
	// user is nobody in particular, as the manifests say.
	user = 65532
)

func main() {
	if len(os.Args) != 3 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: image TAG FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(3)
	}
}

// write builds a static program and wraps it.
func write(tag, file string) error {
	dir, err := os.MkdirTemp("", "authzconf-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "authzconf")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X main.version="+tag, "-o", program, "./cmd/authzconf") //nolint:noctx // ends with this program
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building authzconf: %w", err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	err = image.Image{Name: name + ":" + tag, Architecture: runtime.GOARCH, Program: content, Path: "/authzconf", User: user}.Write(out)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}
