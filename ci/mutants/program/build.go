package program

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

// Digest stands for the mutated sources: mutants have the same numbers where it is the same.
func (s *Sources) Digest() string {
	hash := sha256.New()
	for _, module := range slices.Sorted(maps.Keys(s.Texts)) {
		for _, name := range slices.Sorted(maps.Keys(s.Texts[module])) {
			text := s.Texts[module][name]
			_, _ = fmt.Fprintf(hash, "%s %s %d\n%s", module, name, len(text), text)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Build builds the kube-apiserver with all mutants in it, or finds it in the cache.
func (s *Sources) Build(ctx context.Context, b *local.Binaries, r local.Release) (string, error) {
	return b.KubeAPIServerVariant(ctx, r, local.Variant{
		Name: "mutants", Modules: slices.Sorted(maps.Keys(s.Texts)), Key: s.Digest(),
		Change: func(module, dir string) error {
			for name, text := range s.Texts[module] {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(path, text, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
