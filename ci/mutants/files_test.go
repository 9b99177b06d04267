package mutants

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/authzconf/authzconf/clusters/local"
)

// moduleFiles is files of modules: by module, and by path in it.
type moduleFiles map[string]map[string][]byte

func (m moduleFiles) put(module, path string, text []byte) {
	if m[module] == nil {
		m[module] = map[string][]byte{}
	}
	m[module][path] = text
}

// putHelpers puts in what the others import.
func (m moduleFiles) putHelpers() {
	m.put(helperModule, filepath.Join("pkg", HelperName, HelperName+".go"), []byte(Helpers))
}

// digest stands for the files: mutants have the same numbers where it is the same.
func (m moduleFiles) digest() string {
	hash := sha256.New()
	for _, module := range slices.Sorted(maps.Keys(m)) {
		for _, name := range slices.Sorted(maps.Keys(m[module])) {
			_, _ = fmt.Fprintf(hash, "%s %s %d\n%s", module, name, len(m[module][name]), m[module][name])
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// build builds the kube-apiserver with these files in it, or finds it in the cache.
func (m moduleFiles) build(ctx context.Context, b *local.Binaries, r local.Release, name string) (string, error) {
	return variant{name, slices.Sorted(maps.Keys(m)), m.digest(), m.write}.build(ctx, b, r)
}

// write puts the files of a module into a folder.
func (m moduleFiles) write(module, dir string) error {
	for name, text := range m[module] {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
