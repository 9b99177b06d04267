package certify

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed" // what Sonobuoy reads
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// signatureFile is the only one of a bundle that its own signature does not cover.
	signatureFile = "certification.dsse.json"
	badgePrefix   = "badge-"
	// maxBundle bounds all files of a bundle together.
	maxBundle      = 256 << 20
	maxBundleFiles = 1000
)

// Bundle are the files of a certification, by their slash-separated names.
type Bundle map[string][]byte

func (b Bundle) add(name string, r io.Reader, left *int64) error {
	limit := min(int64(maxBundleFile), *left)
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case int64(len(raw)) > limit || len(b) == maxBundleFiles:
		return fmt.Errorf("%s: a bundle has at most %d files of %d MiB, %d MiB in all", name, maxBundleFiles, maxBundleFile>>20, maxBundle>>20)
	}
	*left -= int64(len(raw))
	b[name] = raw
	return nil
}

// OpenBundle reads a folder that Write has written, or a tar of one, compressed or not.
func OpenBundle(path string) (Bundle, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var b Bundle
	if info.IsDir() {
		b, err = readFolder(path)
	} else {
		b, err = readTar(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b[certificationFile] == nil {
		return nil, fmt.Errorf("%s: it has no %s", path, certificationFile)
	}
	return b, nil
}

func readFolder(folder string) (Bundle, error) {
	b, left := Bundle{}, int64(maxBundle)
	return b, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", name)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return b.add(filepath.ToSlash(name), f, &left)
	})
}

// readTar reads a tar. The bundle is the folder that the certification is in; what is beside it does not belong to it.
func readTar(file string) (Bundle, error) {
	f, err := filing.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var in io.Reader = f
	if z, err := gzip.NewReader(f); err == nil {
		in = z
	} else if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	all, left := Bundle{}, int64(maxBundle)
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			if rest, err := io.ReadAll(io.LimitReader(in, record.MaxEnvelope)); err != nil || len(rest) == record.MaxEnvelope || len(bytes.Trim(rest, "\x00")) > 0 {
				return nil, errors.New("there is something behind its end")
			}
			return all.root()
		case err != nil:
			return nil, errors.New("it is neither a folder nor a tar")
		case h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%.80q is not a regular file", h.Name)
		}
		name := path.Clean(h.Name)
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("%.80q is not a path within it", h.Name)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%.80q is in it twice", name)
		}
		if err := all.add(name, r, &left); err != nil {
			return nil, err
		}
	}
}

// root is the part of a tar that is in the folder of the certification.
func (b Bundle) root() (Bundle, error) {
	var folders []string
	for name := range b {
		if path.Base(name) == certificationFile {
			folders = append(folders, strings.TrimSuffix(name, certificationFile))
		}
	}
	if len(folders) != 1 {
		return nil, fmt.Errorf("it holds %s %d times: expected one, as in the folder that authzconf certify writes", certificationFile, len(folders))
	}
	out := Bundle{}
	for name, content := range b {
		if rest, ok := strings.CutPrefix(name, folders[0]); ok {
			out[rest] = content
		}
	}
	if beside, is := b[sonobuoyFile]; is && folders[0] != "" { // by HandOver: Sonobuoy shows it as the results
		var want bytes.Buffer
		c, err := out.Certification()
		if err == nil {
			err = sonobuoyResults.Execute(&want, sonobuoy{c, nil})
		}
		if err != nil || !bytes.Equal(beside, want.Bytes()) {
			return nil, fmt.Errorf("%s: it does not show what %s says", sonobuoyFile, certificationFile)
		}
	}
	return out, nil
}

// Tar writes the bundle as a compressed tar, below a folder, with other files beside it. Equal bundles make equal bytes.
func (b Bundle) Tar(w io.Writer, folder string, beside map[string][]byte) error {
	all := map[string][]byte{}
	maps.Copy(all, beside)
	for name, content := range b {
		all[path.Join(folder, name)] = content
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(all[name])), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(all[name]); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// shown are the files for a person: summary, page, and pictures of the levels that are granted, of no other.
func (c *Certification) shown() (Bundle, error) {
	page, err := c.HTML()
	if err != nil {
		return nil, err
	}
	brief, err := reports.BriefPages("certification", struct { // a certification has levels, and no outcome
		*Certification
		Outcome verdicts.Verdict
	}{c, ""})
	if err != nil {
		return nil, err
	}
	summary, err := c.Summary()
	out := Bundle{summaryFile: summary, pageFile: page, junitFile: brief[junitFile]}
	for _, r := range c.Results {
		if slices.Contains(c.Levels, r.Level) {
			level := string(r.Level) + r.Terms()
			out[badgePrefix+string(r.Level)+".svg"] = badge(level,
				fmt.Sprintf("%s: level %s, seed %d, suite %.12s, %s", c.Title(), level, c.Seed, c.SuiteDigest, c.Started.Format(time.DateOnly)))
		}
	}
	return out, err
}

// Title is what is certified, on one line.
func (c *Certification) Title() string {
	if t := strings.TrimSpace(c.Vendor + " " + c.Name + " " + c.Version); t != "" {
		return t
	}
	return "an authorizer without a name"
}

// unlike says which files are not those that the claims and the answers make. Only the picture of a level may be missing.
func (b Bundle) unlike(made Bundle) (differences []string) {
	all := maps.Clone(b)
	maps.Copy(all, made)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		content, is := b[name]
		want, known := made[name]
		switch {
		case name == signatureFile, is && known && bytes.Equal(content, want), !is && strings.HasPrefix(name, badgePrefix):
		case !is:
			differences = append(differences, name+": it is missing")
		case name == certificationFile || name == evidenceFile:
			differences = append(differences, name+": it is not as authzconf writes what it says")
		case known || strings.HasPrefix(name, badgePrefix):
			differences = append(differences, fmt.Sprintf("%.80s: it does not show what %s says", name, certificationFile))
		default:
			differences = append(differences, fmt.Sprintf("%.80q: it is not a file of a bundle", name))
		}
	}
	return differences
}

// label is the left half of every badge.
const label = "authzconf certified"

// badge is a picture of a granted level, SVG without anything to fetch, with a title for who cannot see it.
func badge(level, title string) []byte {
	// Widths are those of 11 px Verdana, roughly; textLength makes them exact.
	width := func(s string) int { return 7*utf8.RuneCountInString(s) + 10 }
	left, right := width(label), width(level)
	text := func(x, w int, s string) string {
		return fmt.Sprintf(`<text x="%d" y="14" textLength="%d">%s</text>`, x+5, w-10, html.EscapeString(s))
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="20" role="img" aria-label="%[2]s">
<title>%[3]s</title>
<clipPath id="r"><rect width="%[1]d" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><path fill="#444" d="M0 0h%[4]dv20H0z"/><path fill="#1a7f37" d="M%[4]d 0h%[5]dv20H%[4]dz"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">%[6]s%[7]s</g>
</svg>
`, left+right, html.EscapeString(label+": "+level), html.EscapeString(title), left, right, text(0, left, label), text(left, right, level))
}

// The files of a plugin of Sonobuoy. Its worker waits for the done file, which names the results:
// https://sonobuoy.io/docs/main/plugins/#writing-your-own-plugin. In a tar, result-format manual reads
// sonobuoy_results.yaml.
const (
	resultsTar   = "authzconf.tar.gz"
	doneFile     = "done"
	sonobuoyFile = "sonobuoy_results.yaml"
)

// sonobuoyText are the results of a certification as Sonobuoy reads them
// (github.com/vmware-tanzu/sonobuoy/pkg/client/results, Item), or the problem for which there are none.
//
//go:embed sonobuoy.yaml.tmpl
var sonobuoyText string

var sonobuoyResults = template.Must(template.New("sonobuoy").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	raw, err := json.Marshal(v)
	return string(raw), err
}}).Parse(sonobuoyText))

type sonobuoy struct {
	*Certification
	Problem error
}

// HandOver leaves in a folder what Sonobuoy's worker, or whoever has mounted it, takes from there: a tar with the
// bundle of a folder, and the done file, which comes last. Without a bundle the tar says why there is none.
func HandOver(folder, bundle string, problem error) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	b, c := Bundle{}, &Certification{}
	if problem == nil {
		var err error
		if b, err = OpenBundle(bundle); err == nil {
			c, err = b.Certification()
		}
		if err != nil {
			return err
		}
	}
	var results, out bytes.Buffer
	if err := sonobuoyResults.Execute(&results, sonobuoy{c, problem}); err != nil {
		return err
	}
	if err := b.Tar(&out, "bundle", map[string][]byte{sonobuoyFile: results.Bytes()}); err != nil {
		return err
	}
	tarball, err := filepath.Abs(filepath.Join(folder, resultsTar))
	if err != nil {
		return err
	}
	if err := os.WriteFile(tarball, out.Bytes(), 0o644); err != nil {
		return err
	}
	// The worker may read the done file as soon as it is there.
	next := filepath.Join(folder, ".done")
	if err := os.WriteFile(next, []byte(tarball), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(folder, doneFile))
}
