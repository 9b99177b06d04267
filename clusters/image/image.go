// Package image writes container images without an engine or a registry. An image has one layer with one static
// program, in the format of `docker save`, so that containerd can import it.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Loader brings an image to the nodes of a cluster.
type Loader interface {
	// LoadImage takes an archive such as Image.Archive returns, and returns when every node has the image.
	LoadImage(ctx context.Context, archive []byte) error
}

// Image is a program and how it is run.
type Image struct {
	Name         string // the whole name that pods ask for, tag included
	Architecture string // the architecture of the program, as in GOARCH
	// Program is a static executable, Path its place in the image and the entrypoint, for example /agent.
	Program []byte
	Path    string
	User    int // the number of the user that it runs as
}

var epoch = time.Unix(0, 0).UTC()

// Archive returns what docker save would write. Its bytes depend only on the image.
func (i Image) Archive() ([]byte, error) {
	layer, err := archive(entry{i.Path, 0o755, i.Program})
	if err != nil {
		return nil, fmt.Errorf("the layer of %s: %w", i.Name, err)
	}
	sum := sha256.Sum256(layer)
	// This is the part of the image configuration that is needed (github.com/opencontainers/image-spec/specs-go/v1).
	configuration, err := json.Marshal(map[string]any{
		"architecture": i.Architecture, "os": "linux", "created": epoch,
		"config": map[string]any{"User": fmt.Sprint(i.User), "Entrypoint": []string{i.Path}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	all, err := archive(entry{"manifest.json", 0o644, index}, entry{"config.json", 0o644, configuration}, entry{"layer.tar", 0o644, layer})
	if err != nil {
		return nil, fmt.Errorf("the archive of %s: %w", i.Name, err)
	}
	return all, nil
}

type entry struct {
	path    string
	mode    int64
	content []byte
}

func archive(files ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     strings.TrimLeft(f.path, "/"),
			Mode:     f.mode,
			Size:     int64(len(f.content)),
			ModTime:  epoch,
			Format:   tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// Program returns a static executable for an image. It is the file that the environment variable names, for machines
// without sources or Go, or else a build of a main package of the module in the working folder.
func Program(ctx context.Context, variable, mainPackage string) ([]byte, error) {
	path := os.Getenv(variable)
	if path == "" {
		dir, err := os.MkdirTemp("", "authzconf-program-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path = filepath.Join(dir, "program")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, mainPackage)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH) // no cgo, because the image contains only the program
		if output, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s (with authzconf's sources as the working folder, or set %s to one that is built): %w\n%s",
				mainPackage, variable, err, strings.TrimSpace(string(output)))
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the program of an image: %w", err)
	}
	return content, nil
}

// Of is the image that the first container of a pod asks for, with a program as Program finds it at a path.
func Of(ctx context.Context, spec corev1.PodSpec, variable, mainPackage, path string) (Image, error) {
	content, err := Program(ctx, variable, mainPackage)
	return Image{
		Name:         spec.Containers[0].Image,
		Architecture: runtime.GOARCH,
		Program:      content,
		Path:         path,
		User:         int(*spec.SecurityContext.RunAsUser),
	}, err
}

// Load brings the image to the nodes.
func (i Image) Load(ctx context.Context, nodes Loader) error {
	archive, err := i.Archive()
	if err != nil {
		return err
	}
	return nodes.LoadImage(ctx, archive)
}
