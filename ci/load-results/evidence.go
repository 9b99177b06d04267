package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// archiveSuffix ends the names of the archives in which the evidence of a run is published: the folder of its report.
const archiveSuffix = ".tar.gz"

// checkTool returns an error if nobody could build again the authzconf that made a run: what it measured could not be checked.
func checkTool(version string) error {
	isKnown := version != "" && version != "unknown" && version != "(devel)"
	if !isKnown || strings.Contains(version, "dirty") {
		return fmt.Errorf(
			"it was made by authzconf %q, which is no commit of the repository: commit, run make build, and measure it again",
			version,
		)
	}
	return nil
}

// packEvidence returns an archive of the folder of a report. The pages for people are in it, too: the report has their digests,
// and without them it could not be verified.
func packEvidence(folder string) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	top := filepath.Base(folder)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(filepath.Join(top, name)), Mode: 0o644, Size: int64(len(data))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	if err := errors.Join(err, archive.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// unpackEvidence writes the files of an archive below a folder, and returns the folder of the report.
func unpackEvidence(archive, dir string) (folder string, err error) {
	packed, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer func() { _ = packed.Close() }()
	compressed, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", archive, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	for files := tar.NewReader(compressed); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return folder, nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		if err := writeBelow(root, header.Name, files); err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		top, _, _ := strings.Cut(header.Name, "/")
		folder = filepath.Join(dir, top)
	}
}

func writeBelow(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from) //nolint:gosec // archives of this repository
	return errors.Join(err, file.Close())
}
