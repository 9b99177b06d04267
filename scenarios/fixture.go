package scenarios

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

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

// get reads and decodes a fixture. Its error reads as the end of a sentence that begins with the fixture's name.
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
func Manifests(file string, raw []byte) ([]map[string]any, error) {
	docs, perr := parseYAML(file, raw)
	if perr != nil {
		return nil, perr
	}
	src := &source{file: file}
	var out []map[string]any
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

func manifestProblems(obj map[string]any) []string {
	var out []string
	for _, field := range []string{"apiVersion", "kind"} {
		if Text(obj, field) == "" {
			out = append(out, fmt.Sprintf("the object has no %s (expected a Kubernetes object)", field))
		}
	}
	if Text(obj, "metadata", "name") == "" {
		out = append(out, "the object has no metadata.name (expected a name)")
	}
	if k := Text(obj, "kind"); isRBAC(obj) && (k == "Role" || k == "RoleBinding") && Text(obj, "metadata", "namespace") == "" {
		out = append(out, fmt.Sprintf("the %s has no metadata.namespace (expected a namespace)", k))
	}
	return out
}

// Text is the string at a path of fields, "" if there is none.
func Text(obj map[string]any, path ...string) string {
	for _, field := range path[:len(path)-1] {
		obj, _ = obj[field].(map[string]any)
	}
	s, _ := obj[path[len(path)-1]].(string)
	return s
}
