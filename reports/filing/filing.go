// Package filing writes reports into folders. A report replaces an earlier one of its kind: all files of that one are
// removed. Other files are never touched.
package filing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Kind is a kind of report.
type Kind struct {
	Name string // its name in errors, such as "load report"
	// Marker is the file by which a report is known. It is written last, so that a folder with a marker is whole.
	Marker string
	// Head are the fields of the marker that all versions of authzconf write, with path.Match patterns of their values,
	// or "" for any value.
	Head  map[string]string
	Files []string // path.Match patterns of the other files
	// ListedIn, if it is given, returns by the marker which files in a folder belong to the report. Then only these do,
	// and nothing else may be at Reserved.
	ListedIn func(folder fs.FS, marker []byte) []string
	Reserved []string
}

const (
	// stagingDir is the folder in which a report is written before it replaces an earlier one. Then it also has the
	// earlier one's marker as previousFile.
	stagingDir   = ".authzconf-new"
	previousFile = "previous"
	probeFile    = ".authzconf-probe"
)

// CheckWritable returns an error if Write could not write to dir, and creates dir if it is missing. It should be called
// before a run, so that no run ends without a place for its report.
func (k *Kind) CheckWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the report folder cannot be made: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("the report folder cannot be opened: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := k.checkReplaceable(root); err != nil {
		return fmt.Errorf("%s %w; give another folder, or empty it", dir, err)
	}
	if err := root.WriteFile(probeFile, nil, 0o644); err != nil {
		return fmt.Errorf("the report folder cannot be written to: %w", err)
	}
	return root.Remove(probeFile)
}

// Write writes the files of a report, by their slash-separated names, in the place of an earlier one of the same kind.
func (k *Kind) Write(dir string, files map[string][]byte) error {
	if files[k.Marker] == nil {
		return fmt.Errorf("a %s without %s", k.Name, k.Marker)
	}
	for name := range files {
		if name != k.Marker && !k.mayHold(name) {
			return fmt.Errorf("%s is not a file of a %s", name, k.Name)
		}
	}
	if err := k.CheckWritable(dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := k.install(root, files); err != nil {
		return fmt.Errorf("writing the report to %s: %w", dir, err)
	}
	return nil
}

// WriteReport writes a report that is its own marker, as YAML or JSON by the marker's name, with its other files.
func (k *Kind) WriteReport(dir string, report any, others map[string][]byte) error {
	data, err := k.Encode(report)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", k.Marker, err)
	}
	files := map[string][]byte{k.Marker: data}
	maps.Copy(files, others)
	return k.Write(dir, files)
}

// Encode is a report as its marker has it.
func (k *Kind) Encode(report any) ([]byte, error) {
	if path.Ext(k.Marker) == ".json" {
		return EncodeJSON(report)
	}
	return yaml.Marshal(report)
}

// Render returns files by their names.
func Render(content map[string]func() ([]byte, error)) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, render := range content {
		data, err := render()
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		files[name] = data
	}
	return files, nil
}

// EncodeJSON returns JSON as reports have it: indented by one space, with a newline at the end.
func EncodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", " ")
	return append(data, '\n'), err
}

// Read reads the files of a report in a folder, by their names.
func (k *Kind) Read(dir string) (map[string][]byte, error) {
	root, err := OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	owned, err := k.findOwned(root)
	files := map[string][]byte{}
	for name := range owned {
		if err == nil {
			files[name], err = ReadFile(root.FS(), name)
		}
	}
	return files, err
}

// Limit is how many bytes a file of a report may have.
const Limit = 64 << 20

// ReadIn does the same as ReadFile for a file in a folder. It follows no link out of the folder.
func ReadIn(dir, name string) ([]byte, error) {
	root, err := OpenFolder(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return ReadFile(root.FS(), name)
}

// ReadFile reads a file. It refuses devices, pipes, and files that are larger than anything in a report may be.
func ReadFile(from fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(from, name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	f, err := from.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, Limit+1))
	if err == nil && len(data) > Limit {
		err = fmt.Errorf("it is larger than %d bytes", Limit)
	}
	return data, err
}

// In reports whether the folder dir holds a report of this kind.
func (k *Kind) In(dir string) bool {
	data, err := ReadIn(dir, k.Marker)
	return err == nil && k.isMarker(data)
}

// checkReplaceable returns why a folder may not be written to: it is neither empty nor an earlier report, or it
// contains a foreign file.
func (k *Kind) checkReplaceable(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	owned, err := k.findOwned(root)
	if err != nil {
		return err
	}
	isEmpty := !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != stagingDir && e.Name() != probeFile })
	if len(owned) == 0 && !isEmpty {
		return fmt.Errorf("is not empty and holds no earlier %s", k.Name)
	}
	for _, name := range k.Reserved {
		if err := checkReserved(root, name, owned); err != nil {
			return err
		}
	}
	return nil
}

// checkReserved checks that only files of the earlier report are at or below name.
func checkReserved(root *os.Root, name string, owned map[string]bool) error {
	return fs.WalkDir(root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.IsDir() && !owned[p]:
			return fmt.Errorf("holds %s, which is not of the earlier report", p)
		}
		return nil
	})
}

// findOwned returns the files of a report in the folder, by its marker, or by a staged one if an earlier replacement
// was cut short.
func (k *Kind) findOwned(root *os.Root) (map[string]bool, error) {
	owned := map[string]bool{}
	for _, name := range []string{k.Marker, path.Join(stagingDir, k.Marker), path.Join(stagingDir, previousFile)} {
		data, err := root.ReadFile(name)
		if err != nil || !k.isMarker(data) {
			continue
		}
		owned[k.Marker] = true
		for _, f := range k.list(root.FS(), data) {
			owned[f] = true
		}
	}
	if len(owned) == 0 || k.lists() {
		return owned, nil
	}
	return owned, fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case d.IsDir() && p == stagingDir:
			return fs.SkipDir
		case d.IsDir() && !k.leadsTo(p):
			return fs.SkipDir // a foreign file may be large or unreadable
		case !d.IsDir() && matches(k.Files, p):
			owned[p] = true
		}
		return nil
	})
}

// lists reports whether the marker says which files are of the report.
func (k *Kind) lists() bool { return k.ListedIn != nil }

func (k *Kind) list(folder fs.FS, marker []byte) []string {
	if k.ListedIn == nil {
		return nil
	}
	return k.ListedIn(folder, marker)
}

// isMarker reports whether data is the marker of a report of this kind.
func (k *Kind) isMarker(data []byte) bool {
	decode := func(data []byte, v any) error { return yaml.Unmarshal(data, v) }
	if path.Ext(k.Marker) == ".json" {
		decode = json.Unmarshal
	}
	var head map[string]json.RawMessage
	if decode(data, &head) != nil {
		return false
	}
	for field, pattern := range k.Head {
		raw, ok := head[field]
		if !ok {
			return false
		}
		var text string
		if pattern == "" {
			continue
		}
		if json.Unmarshal(raw, &text) != nil || !matches([]string{pattern}, text) {
			return false
		}
	}
	return true
}

// mayHold reports whether a report may have a file of this name, besides its marker.
func (k *Kind) mayHold(name string) bool {
	if !fs.ValidPath(name) {
		return false
	}
	return k.lists() || matches(k.Files, name)
}

// leadsTo reports whether a file of the report may be below a folder.
func (k *Kind) leadsTo(folder string) bool {
	return slices.ContainsFunc(k.Files, func(pattern string) bool {
		for d := path.Dir(pattern); d != "."; d = path.Dir(d) {
			if matches([]string{d}, folder) {
				return true
			}
		}
		return false
	})
}

// Owns reports whether a file of such a report, except its marker, can have a name.
func (k *Kind) Owns(name string) bool { return matches(k.Files, name) }

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}

func exists(root *os.Root, name string) bool {
	_, err := root.Lstat(filepath.FromSlash(name))
	return err == nil
}

// install writes files beside the earlier report, if there is one, and then moves them to its place. If it is
// interrupted at any point, no marker remains that does not fit the other files, and a later Write repairs the folder.
func (k *Kind) install(root *os.Root, files map[string][]byte) error {
	previousFiles, err := k.findOwned(root)
	if err != nil {
		return err
	}
	if err := clearStaging(root, previousFiles); err != nil {
		return err
	}
	if err := stage(root, files); err != nil {
		return errors.Join(err, root.RemoveAll(stagingDir)) // a full disk should not stay full
	}
	if err := k.removeEarlier(root, previousFiles); err != nil {
		return err
	}
	if err := k.publish(root, slices.Sorted(maps.Keys(files))); err != nil {
		return err
	}
	return root.RemoveAll(stagingDir)
}

// clearStaging removes what an interrupted replacement has left. If the earlier report had already lost its marker, it
// also removes the files that both reports list, because neither report is wanted any more.
func clearStaging(root *os.Root, previousFiles map[string]bool) error {
	if exists(root, path.Join(stagingDir, previousFile)) {
		if err := remove(root, previousFiles); err != nil {
			return err
		}
	}
	return root.RemoveAll(stagingDir)
}

// stage writes files into the staging folder.
func stage(root *os.Root, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := path.Join(stagingDir, name)
		if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(to, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeEarlier removes the earlier report. It removes the marker first, and keeps it in the staging folder: if the
// removal is interrupted, the marker's list says what remains to be removed.
func (k *Kind) removeEarlier(root *os.Root, previousFiles map[string]bool) error {
	if exists(root, k.Marker) {
		if err := root.Rename(k.Marker, path.Join(stagingDir, previousFile)); err != nil {
			return err
		}
	}
	return remove(root, previousFiles)
}

// publish moves staged files to their places, the marker last.
func (k *Kind) publish(root *os.Root, names []string) error {
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
	return root.Rename(path.Join(stagingDir, k.Marker), k.Marker)
}

// remove removes the files of an earlier report, and the folders that this empties.
func remove(root *os.Root, owned map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			if root.Remove(d) != nil {
				break // not empty yet, or gone already
			}
		}
	}
	return nil
}
