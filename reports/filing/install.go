package filing

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
)

// install writes files beside the earlier report, if there is one, then puts them in its place. Cut short at any
// point it leaves no marker that does not fit the other files, and a later Write mends the folder.
func (k *Kind) install(root *os.Root, files map[string][]byte) error {
	old, err := k.owned(root)
	if err != nil {
		return err
	}
	previous := path.Join(stagingDir, previousFile)
	if exists(root, previous) {
		// A replacement was cut short: what it was to install is not wanted any more, but its lists say what to
		// remove.
		if err := remove(root, old); err != nil {
			return err
		}
	}
	if err := root.RemoveAll(stagingDir); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		to := path.Join(stagingDir, name)
		if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(to, files[name], 0o644); err != nil {
			return err
		}
	}
	if exists(root, k.Marker) {
		if err := root.Rename(k.Marker, previous); err != nil {
			return err
		}
	}
	if err := remove(root, old); err != nil {
		return err
	}
	for _, name := range names {
		if name == k.Marker {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.Rename(path.Join(stagingDir, name), name); err != nil {
			return err
		}
	}
	if err := root.Rename(path.Join(stagingDir, k.Marker), k.Marker); err != nil {
		return err
	}
	return root.RemoveAll(stagingDir)
}

// remove removes the files of an earlier report, and the folders that this empties.
func remove(root *os.Root, owned map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			if root.Remove(d) != nil {
				break // Not empty yet, or not there.
			}
		}
	}
	return nil
}
