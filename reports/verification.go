package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
)

// Verification is what became of verifying a report of a product that has a type of its own.
type Verification struct {
	// Marker is the report as it was read, Signature what is stored as its signature, nil if nothing is.
	Marker    []byte
	Signature []byte
	// Differences are where the folder is not whole, or does not say what its evidence says.
	Differences []string
	// Notes are worth knowing but no difference. Unjudged are what only another authzconf could judge.
	Notes    []string
	Unjudged []string
}

// OK reports whether there is no difference.
func (v *Verification) OK() bool { return len(v.Differences) == 0 }

func open(dir, marker string) (v *verifier, done func(), err error) {
	root, err := filing.OpenFolder(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the report folder: %w", err)
	}
	v = &verifier{Verification: &Verification{}, marker: marker, root: root.FS(), files: map[string][]byte{}}
	if v.Marker, err = filing.ReadFile(v.root, marker); err != nil {
		_ = root.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%s has no %s: no report was finished there", dir, marker)
		}
		return nil, nil, fmt.Errorf("%s: %w", marker, err)
	}
	if v.Signature, err = filing.ReadFile(v.root, SignatureFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.differ("%s: %v", SignatureFile, err)
	}
	return v, func() { _ = root.Close() }, nil
}

type verifier struct {
	*Verification
	marker string
	root   fs.FS
	files  map[string][]byte // all but the marker
	listed map[string]string // their digests
}

func (v *verifier) differ(format string, args ...any) {
	v.Differences = append(v.Differences, fmt.Sprintf(format, args...))
}

func (v *verifier) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// folderLimit is how much of a folder is held in memory at once: a matrix of fourteen cells has 100 MiB.
const folderLimit = 2 << 30

// readFiles holds the folder to the report's list of files. owns says which others would be files of the report.
func (v *verifier) readFiles(owns func(name string) bool) {
	size := 0
	err := fs.WalkDir(v.root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == v.marker || name == SignatureFile {
			return err
		}
		want, listed := v.listed[name]
		switch {
		case !listed && owns(name):
			v.differ("%s: is not a file of the report", name)
			return nil
		case !listed:
			v.note("%s: is not a file of the report", name)
			return nil
		}
		data, err := filing.ReadFile(v.root, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if size += len(data); size > folderLimit {
			return fmt.Errorf("%s: the files of the report are larger than %d bytes together", name, folderLimit)
		}
		if got := record.Digest(data); got != want {
			v.differ("%s: was changed: its SHA-256 is %s, the report has %s", name, ShortDigest(got), ShortDigest(want))
		}
		v.files[name] = data
		return nil
	})
	if err != nil {
		v.differ("reading the folder: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(v.listed)) {
		if _, ok := v.files[name]; !ok {
			v.differ("%s: is missing", name)
		}
	}
}

// DecodeStrictly is record.DecodeStrictly.
func DecodeStrictly(data []byte, into any) error { return record.DecodeStrictly(data, into) }

// DecodeYAML is record.DecodeYAML.
func DecodeYAML(data []byte, into any) error { return record.DecodeYAML(data, into) }

// SignatureFile is the signature of report.yaml, if there is one.
const SignatureFile = "report.dsse.json"

// Sign puts a signature of the marker into a folder that a report was written to, or takes the one away that was there before.
func Sign(dir, marker string, sign func(name string, report []byte) ([]byte, error)) error {
	root, err := filing.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(SignatureFile); sign == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	report, err := root.ReadFile(marker)
	if err != nil {
		return err
	}
	signature, err := sign(marker, report)
	if err != nil {
		return err
	}
	return root.WriteFile(SignatureFile, signature, 0o644)
}
