package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Program is a static executable for an image: the file that the environment variable names, where there are no
// sources or no Go, or a build of a main package of the module in the working folder.
func Program(ctx context.Context, variable, mainPackage string) ([]byte, error) {
	path := os.Getenv(variable)
	if path == "" {
		dir, err := os.MkdirTemp("", "authzconf-program-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path = filepath.Join(dir, "program")
		if err := build(ctx, path, mainPackage); err != nil {
			return nil, fmt.Errorf("building %s (with authzconf's sources as the working folder, or set %s to one that is built): %w", mainPackage, variable, err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the program of an image: %w", err)
	}
	return content, nil
}

// build compiles without cgo, since the image holds nothing but the program.
func build(ctx context.Context, target, mainPackage string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", target, mainPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// Of is the image that the first container of a pod asks for, with a program as Program finds it at a path.
func Of(ctx context.Context, spec corev1.PodSpec, variable, mainPackage, path string) (Image, error) {
	content, err := Program(ctx, variable, mainPackage)
	return Image{Name: spec.Containers[0].Image, Architecture: runtime.GOARCH, Program: content, Path: path, User: int(*spec.SecurityContext.RunAsUser)}, err
}

// Load puts the image on the nodes.
func (i Image) Load(ctx context.Context, nodes Loader) error {
	archive, err := i.Archive()
	if err != nil {
		return err
	}
	return nodes.LoadImage(ctx, archive)
}
