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

// LoadPinned loads the sources that a release is built from.
func LoadPinned(ctx context.Context, b *local.Binaries, r local.Release) (*Sources, error) {
	dir, err := b.PinnedModule(ctx, r)
	if err != nil {
		return nil, err
	}
	return Load(ctx, func(ctx context.Context, args ...string) (string, error) {
		return b.GoOutput(ctx, dir, args...)
	})
}

// Digest stands for the mutated sources: mutants have the same numbers where it is the same.
func (s *Sources) Digest() string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.Texts)) {
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(s.Texts[name]), s.Texts[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// BuildMutants builds the kube-apiserver with all mutants in it, or finds it in the cache.
func (s *Sources) BuildMutants(ctx context.Context, b *local.Binaries, r local.Release) (string, error) {
	return b.KubeAPIServerVariant(ctx, r, local.Variant{
		Name: "mutants", Module: Module, Key: s.Digest(),
		Change: func(dir string) error { return write(dir, s.Texts) },
	})
}

// BuildCoverage builds the kube-apiserver that counts what it reaches of the package under test, or finds it in
// the cache. The main package is counted too, for without it the program writes no counts when it ends.
func BuildCoverage(ctx context.Context, b *local.Binaries, r local.Release) (string, error) {
	return b.KubeAPIServerVariant(ctx, r, local.Variant{
		Name: "coverage",
		Args: []string{"-cover", "-coverpkg=" + Package + "/...,k8s.io/kubernetes/cmd/kube-apiserver"},
	})
}

func write(dir string, texts map[string][]byte) error {
	for name, text := range texts {
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
