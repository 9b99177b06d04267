package product

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"
)

// ReadFolder returns the files below a folder that the command line names, those whose names end in suffix. They become
// part of the record, as with ReadInput. Hidden files and folders are left out.
func (i *Invocation) ReadFolder(dir, suffix string) (fs.FS, error) {
	if i.Verifying() {
		return i.recordedFolder(dir, suffix), nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s: there is no such folder", dir)
	}
	files := fstest.MapFS{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s cannot be read (expected a readable folder): %w", path, err)
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		hidden := relative != "." && strings.HasPrefix(d.Name(), ".")
		switch {
		case hidden && d.IsDir():
			return filepath.SkipDir
		case hidden, d.IsDir(), !strings.HasSuffix(d.Name(), suffix):
			return nil
		}
		name := filepath.ToSlash(relative)
		data, err := i.readAs(dir+"/"+name, path)
		files[name] = &fstest.MapFile{Data: data}
		return err
	})
	return files, err
}

// recordedFolder returns the files below dir that the record has, those whose names end in suffix.
func (i *Invocation) recordedFolder(dir, suffix string) fs.FS {
	files := fstest.MapFS{}
	for path, text := range i.inputs {
		if name, isIn := strings.CutPrefix(path, dir+"/"); isIn && strings.HasSuffix(name, suffix) {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return files
}
