package certify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxProblem is how much of a problem the page shows.
const maxProblem = 200

// Bundles finds the bundles of a path: itself, if it is one, or what is directly below it. Tars that are not bundles
// are named too, so that nothing is left out in silence.
func Bundles(path string) (out []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() || isBundle(path) {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		tarball := slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz"}, func(ext string) bool { return strings.HasSuffix(name, ext) })
		if e.IsDir() && isBundle(name) || !e.IsDir() && tarball {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no bundle in it", path)
	}
	return out, nil
}

func isBundle(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, certificationFile))
	return err == nil
}

// Verifier judges a bundle again: Kind.Verify, or one that chooses the kind.
type Verifier func(Bundle) (c *Certification, differences []string, err error)

// Register judges bundles again and makes the page of them. Links lead from the folder that the page is written
// to. Signatures are checked by the keys.
func Register(verify Verifier, version, folder string, paths []string, keys []*Key) (Page, error) {
	page := Page{Version: version}
	for _, level := range Levels() {
		page.Levels = append(page.Levels, string(level))
	}
	for _, path := range paths {
		row := rowOf(verify, path, keys)
		link, err := relative(folder, path)
		if err != nil {
			return page, err
		}
		row.Path = link
		for level := range row.Levels {
			if !slices.Contains(page.Levels, level) {
				page.Levels = append(page.Levels, level)
			}
		}
		page.Rows = append(page.Rows, row)
	}
	slices.Sort(page.Levels[len(Levels()):]) // what no mode of this version has
	return page, nil
}

// relative is the link from a folder to a path.
func relative(folder, path string) (string, error) {
	from, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	link, err := filepath.Rel(from, to)
	return filepath.ToSlash(link), err
}

// rowOf judges one bundle.
func rowOf(verify Verifier, path string, keys []*Key) Row {
	// Nothing of a file that cannot be read is repeated.
	unreadable := Row{
		Certification: &Certification{Product: Product{Name: filepath.Base(path)}},
		Problems:      []string{"it cannot be read as a bundle"}, Signature: "not checked",
	}
	b, err := OpenBundle(path)
	if err != nil {
		return unreadable
	}
	c, differences, err := verify(b)
	var other *OtherSuiteError
	switch {
	case errors.As(err, &other):
		differences = append(differences, other.Error())
	case err != nil:
		return unreadable
	}
	row := Row{Certification: c, Levels: map[string]State{}}
	signed, wrong := b.SignedBy(keys)
	made, unbound := b.Made(c, keys)
	row.Signature, row.Made, row.Problems = signed, made, slices.Concat(differences, wrong, unbound)
	for _, r := range c.Results {
		switch {
		case r.Granted:
			row.Levels[string(r.Level)] = Granted
		case r.Reviews == 0:
			row.Levels[string(r.Level)] = NotJudged
		default:
			row.Levels[string(r.Level)] = NotGranted
		}
	}
	if len(row.Problems) > 0 {
		row.Levels = nil
	}
	for i, p := range row.Problems {
		if r := []rune(p); len(r) > maxProblem {
			row.Problems[i] = string(r[:maxProblem]) + "…"
		}
	}
	return row
}
