package scenarios

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/authzconf/authzconf/internal/seq"
)

// maxFileSize limits the size of a scenario or fixture. Real ones have a few KB, and a wrong path must not fill the
// memory.
const maxFileSize = 1 << 20

// VectorSuffix is the end of the name of a file with a test vector of package vectors. Such a file is in the folders of
// the scenarios, but is not a scenario.
const VectorSuffix = ".vector.yaml"

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$`)

// Load reads every *.yaml below files as a scenario, but for those that end in VectorSuffix, and checks every rule
// of the format. Fixtures are looked up in the second file system. Folders named testdata, and those that begin
// with a dot or an underscore, are left out.
//
// The error, if any, is of type Errors and holds all violations of all files.
func Load(files, fixtures fs.FS) (*Set, error) {
	set, _, err := newLoader(files, fixtures).loadAll()
	return set, err
}

// Notes returns the expectations in files that only say what follows from others (they can be left out, and are judged
// nevertheless), and the denials that say neither what was answered nor what was asked. It loads the files as Load
// does. That only authors want to know, so other commands do not wait for it.
func Notes(files, fixtures fs.FS) (Errors, error) {
	l := newLoader(files, fixtures)
	l.takesNotes = true
	_, notes, err := l.loadAll()
	return notes, err
}

func newLoader(files, fixtures fs.FS) *loader {
	return &loader{files: files, fixtures: &fixtureStore{fs: fixtures}}
}

// loadAll reads and checks all files. notes are empty unless the loader takes some.
func (l *loader) loadAll() (_ *Set, notes Errors, _ error) {
	loading.begin()
	defer loading.end()
	loaded := seq.MapInParallel(l.walk(), l.load) // this is most of the cost of every command
	set := &Set{byID: map[string]*Scenario{}}
	broken := map[string]bool{}
	for _, f := range loaded {
		set.add(f.scenario)
		broken[f.scenario.ID] = !f.readable || len(f.source.broken) > 0
	}
	errs := l.errs
	for _, f := range loaded {
		notes = append(notes, f.source.noted...)
		checkTwin(f, set, broken)
		checkSetup(f, set, broken)
		errs = append(errs, f.source.errs...)
	}
	if err := errs.orNil(); err != nil {
		return nil, nil, err
	}
	return set, notes, nil
}

type loader struct {
	files      fs.FS
	fixtures   *fixtureStore
	takesNotes bool
	errs       Errors // the errors that belong to no parsed file
}

type loadedFile struct {
	scenario *Scenario
	source   *source
	// readable is false if the file did not contain a mapping. Then the rules about its content are not applied.
	readable bool
}

// isIgnored reports whether no file is read from a folder.
func isIgnored(folder string) bool {
	if folder == "." {
		return false
	}
	name := path.Base(folder)
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// LoadAll reads the files of another format: all that end in suffix, in the order of their paths, with the same
// exceptions as Load. The error has a line for each file that is wrong.
func LoadAll[T any](files fs.FS, suffix string, parse func(name string, raw []byte) ([]T, error)) (out []T, _ error) {
	var wrong []error
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: cannot be read (expected a readable folder): %s", p, plainFSError(err))
		case d.IsDir() && isIgnored(p):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, suffix):
			return nil
		}
		var all []T
		raw, err := fs.ReadFile(files, p)
		if err == nil {
			all, err = parse(p, raw)
		}
		out, wrong = append(out, all...), append(wrong, err)
		return nil
	})
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, err // what was read from broken files is incomplete
	}
	return out, nil
}

// walk returns the scenario files in lexical order. It records folders without any as errors.
func (l *loader) walk() []string {
	var paths, vectors, dirs []string
	err := fs.WalkDir(l.files, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			l.errs = append(l.errs, &Error{File: p, Msg: "cannot be read: " + plainFSError(err)})
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			if isIgnored(p) {
				return fs.SkipDir
			}
			dirs = append(dirs, p)
		case strings.HasSuffix(p, VectorSuffix):
			vectors = append(vectors, p)
		case path.Ext(p) == ".yaml":
			paths = append(paths, p)
		case path.Ext(p) == ".yml":
			l.errs = append(l.errs,
				&Error{File: p, Line: 1, Col: 1, Msg: "would not be read as a scenario (expected a name ending in .yaml)"},
			)
		}
		return nil
	})
	if err != nil {
		l.errs = append(l.errs, &Error{File: ".", Msg: "cannot be read: " + plainFSError(err)})
	}
	files := slices.Concat(paths, vectors)
	for _, dir := range dirs {
		if !slices.ContainsFunc(files, func(p string) bool { return dir == "." || strings.HasPrefix(p, dir+"/") }) {
			l.errs = append(l.errs, &Error{File: dir, Msg: "a folder with no scenario (expected at least one .yaml file in it or below)"})
		}
	}
	return paths
}

// usualRequestor is the alias and the name of the requestor of a scenario that states none.
const usualRequestor = "impersonator"

// isByUsual reports whether a step's request is sent by usualRequestor.
func (st Step) isByUsual() bool {
	r := st.Sent()
	return r != nil && r.By == usualRequestor
}

// load reads and checks one scenario file. Twins are checked later, because they need the other scenarios.
func (l *loader) load(file string) *loadedFile {
	s := &Scenario{ID: strings.TrimSuffix(file, ".yaml"), File: file}
	f := &loadedFile{scenario: s, source: &source{file: file, ranges: true}}
	if !validID.MatchString(s.ID) {
		f.source.fail(position{1, 1}, "the path gives the ID %q (expected lower-case letters, digits, '-', '_' and '.' in each part)", s.ID)
	}
	raw, err := readFile(l.files, file)
	if err != nil {
		f.source.fail(position{1, 1}, "the file %s", err)
		return f
	}
	if !f.source.parseOne(raw, "a scenario") {
		return f
	}
	f.readable = true
	f.source.decode(f.source.root, reflect.ValueOf(s).Elem(), "the scenario")
	if s.Requestors == nil && !f.source.failedAt(at("requestors")) && slices.ContainsFunc(s.Steps, Step.isByUsual) {
		s.Requestors = map[string]Requestor{usualRequestor: {User: usualRequestor}}
	}
	digest := sha256.New()
	addDigest(digest, raw)
	l.loadFixtures(f, digest)
	s.Digest = hex.EncodeToString(digest.Sum(nil))
	check(f)
	if len(f.source.broken) == 0 {
		if l.takesNotes {
			f.findNoted()
		}
		*s = *s.Full()
	}
	return f
}

// parseOne sets the root to the tree of the only document in raw. what says what the file should be.
func (s *source) parseOne(raw []byte, what string) bool {
	docs, perr := parseYAML(s.file, raw)
	if perr != nil {
		s.errs = append(s.errs, perr)
		return false
	}
	switch {
	case len(docs) > 1:
		second := position{1, 1}
		if docs[1] != nil {
			second = posOf(docs[1])
		}
		s.fail(second, "the file holds %d YAML documents (expected one %s a file)", len(docs), cutArticle(what))
		return false
	case len(docs) == 0 || docs[0] == nil:
		s.fail(position{1, 1}, "the file is empty (expected %s)", what)
		return false
	}
	s.root = docs[0]
	if _, ok := pairs(s.root); !ok {
		s.fail(posOf(s.root), "the file holds %s (expected a mapping with the fields of %s)", describe(s.root), what)
		return false
	}
	return true
}

// cutArticle returns a text without its article, such as "scenario" for "a scenario".
func cutArticle(what string) string {
	_, noun, _ := strings.Cut(what, " ")
	return noun
}

// loadFixtures adds the objects of a scenario's fixtures to it, and the content of all files that it depends on to its
// digest.
func (l *loader) loadFixtures(f *loadedFile, digest hash.Hash) {
	for _, chain := range f.scenario.chains() {
		raw, err := readFile(l.fixtures.fs, chainFile(chain))
		if err != nil {
			f.source.failAt([]any{"requires", "chain"}, "chain %q %s", chain, err)
		}
		addDigest(digest, raw)
	}
	seen := map[string]bool{}
	for i, name := range f.scenario.Fixtures {
		at := []any{"fixtures", i}
		if seen[name] {
			f.source.failAt(at, "fixture %q is listed twice (expected each once)", name)
			continue
		}
		seen[name] = true
		fx := l.fixtures.get(name)
		if fx.err != nil {
			f.source.failAt(at, "fixture %q %s", name, fx.err)
			continue
		}
		addDigest(digest, fx.raw)
		for _, m := range fx.manifests {
			// The object is copied, because scenarios that share a fixture must not share objects.
			f.scenario.Manifests = append(f.scenario.Manifests, k8sruntime.DeepCopyJSON(m))
		}
	}
}

// addDigest adds the content of a file with its length, so that no bytes can move from one file to the next without
// changing the digest.
func addDigest(h hash.Hash, raw []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(raw)))
	h.Write(length[:])
	h.Write(raw)
}

// readFile reads a file of at most maxFileSize. It checks the size first, and also limits the reader in case the file
// system stated a wrong size. An error is worded as the end of a sentence that begins with the file.
func readFile(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = f.Close() }()
	tooLarge := errors.New("is larger than 1 MiB (expected a few KB)")
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, unreadable(err)
	case info.IsDir():
		return nil, errors.New("is a folder (expected a file)")
	case info.Size() > maxFileSize:
		return nil, tooLarge
	}
	var buf bytes.Buffer
	buf.Grow(int(info.Size()) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(f, maxFileSize+1)); err != nil {
		return nil, unreadable(err)
	}
	if buf.Len() > maxFileSize {
		return nil, tooLarge
	}
	return buf.Bytes(), nil
}

// unreadable returns an error worded as the end of a sentence that begins with the file.
func unreadable(err error) error {
	return fmt.Errorf("cannot be read: %s (expected a readable file)", plainFSError(err))
}

// plainFSError returns the text of an error without the operation and path that fs.PathError repeats.
func plainFSError(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// FS is all scenarios that come with authzconf.
//
// Load it together with the fixtures of package fixtures.
//
//go:embed docs-user-impersonation kep-5284 kep-5681 kubernetes periscope
var FS embed.FS

// fixtureStore decodes each fixture once, however many scenarios use it.
type fixtureStore struct {
	fs    fs.FS
	cache sync.Map // by name, of functions that return a fixture
}

type fixture struct {
	raw       []byte
	manifests []map[string]any
	err       error
}

// get reads and decodes a fixture. An error is worded as the end of a sentence that begins with the fixture's name.
func (s *fixtureStore) get(name string) fixture {
	get, _ := s.cache.LoadOrStore(name, sync.OnceValue(func() (fx fixture) {
		if s.fs == nil || !fs.ValidPath(name) {
			fx.err = errors.New("is not a path below the fixtures folder (expected one such as docs-user-impersonation/user-identity.yaml)")
		} else if fx.raw, fx.err = readFile(s.fs, name); fx.err == nil {
			if fx.manifests, fx.err = Manifests(name, fx.raw); fx.err != nil {
				fx.err = fmt.Errorf("is wrong: %w", fx.err)
			}
		}
		return fx
	}))
	return get.(func() fixture)()
}

// Manifests decodes a file of Kubernetes objects, separated by "---".
func Manifests(file string, raw []byte) (out []map[string]any, _ error) {
	docs, perr := parseYAML(file, raw)
	if perr != nil {
		return nil, perr
	}
	src := &source{file: file}
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		if _, ok := pairs(doc); !ok {
			src.fail(posOf(doc), "a document holds %s (expected a Kubernetes object)", describe(doc))
			continue
		}
		obj, _ := src.decodeAny(doc, "the object").(map[string]any)
		for _, problem := range manifestProblems(obj) {
			src.fail(posOf(doc), "%s", problem)
		}
		out = append(out, obj)
	}
	if len(out) == 0 && len(src.errs) == 0 {
		src.fail(position{1, 1}, "the file is empty (expected at least one Kubernetes object)")
	}
	return out, src.errs.orNil()
}

// manifestProblems returns why an API server would refuse an object, as far as scenarios depend on that.
func manifestProblems(obj map[string]any) (out []string) {
	for _, field := range []string{"apiVersion", "kind"} {
		if Text(obj, field) == "" {
			out = append(out, fmt.Sprintf("the object has no %s (expected a Kubernetes object)", field))
		}
	}
	if Text(obj, "metadata", "name") == "" {
		out = append(out, "the object has no metadata.name (expected a name)")
	}
	kind := Text(obj, "kind")
	isNamespaced := isRBAC(obj) && slices.Contains([]string{"Role", "RoleBinding"}, kind)
	if isNamespaced && Text(obj, "metadata", "namespace") == "" {
		out = append(out, fmt.Sprintf("the %s has no metadata.namespace (expected a namespace)", kind))
	}
	return out
}

// Text returns the string at a path of fields, or "" if there is none.
func Text(obj map[string]any, path ...string) string {
	for _, field := range path[:len(path)-1] {
		obj, _ = obj[field].(map[string]any)
	}
	s, _ := obj[path[len(path)-1]].(string)
	return s
}
