// Package image writes container images without an engine or a registry: one layer with one static program, as
// `docker save` writes an image, so that containerd can import it.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Loader takes an image into the nodes of a cluster.
type Loader interface {
	// LoadImage takes an archive as Write writes it, and returns when the image is there on every node.
	LoadImage(ctx context.Context, archive []byte) error
}

// Image is a program and how it is run.
type Image struct {
	// Name is the whole name that pods ask for, tag included.
	Name string
	// Architecture is that of the program, as GOARCH has it.
	Architecture string
	// Program is the content of a static executable, Path its place in the image
	// and the entrypoint, for example /agent.
	Program []byte
	Path    string
	// User is the number of the user that it runs as.
	User int
}

// epoch stands for every time, so that equal programs make equal archives.
var epoch = time.Unix(0, 0).UTC()

// config is the part of the image configuration that is needed (github.com/opencontainers/image-spec/specs-go/v1).
type config struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Created      time.Time `json:"created"`
	Config       process   `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type process struct {
	User       string   `json:"User"`
	Entrypoint []string `json:"Entrypoint"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is an entry of the archive's manifest.json.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes the archive. Its bytes depend on the image alone.
func (i Image) Write(w io.Writer) error {
	layer, err := archive(entry{i.Path, 0o755, i.Program})
	if err != nil {
		return fmt.Errorf("the layer of %s: %w", i.Name, err)
	}
	sum := sha256.Sum256(layer)
	configuration, err := json.Marshal(config{
		Architecture: i.Architecture, OS: "linux", Created: epoch,
		Config: process{User: fmt.Sprint(i.User), Entrypoint: []string{i.Path}},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	index, err := json.Marshal([]manifest{{Config: "config.json", RepoTags: []string{i.Name}, Layers: []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	all, err := archive(entry{"manifest.json", 0o644, index}, entry{"config.json", 0o644, configuration}, entry{"layer.tar", 0o644, layer})
	if err != nil {
		return fmt.Errorf("the archive of %s: %w", i.Name, err)
	}
	_, err = w.Write(all)
	return err
}

// entry is one file of an archive.
type entry struct {
	path    string
	mode    int64
	content []byte
}

// archive is a tar of files that belong to root.
func archive(files ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		name := f.path
		for len(name) > 0 && name[0] == '/' {
			name = name[1:]
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.content)), ModTime: epoch, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
