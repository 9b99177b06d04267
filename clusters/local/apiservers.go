package local

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/internal/usage"
)

// apiServers are kube-apiservers that replace those of releases, by the names of cells. The one under the empty name is
// for all other cells. It is the value of the flag --api-server.
type apiServers map[string]string

// RegisterAPIServers adds the flag by which cells get a kube-apiserver of the user's to a flag set.
func (b *Binaries) RegisterAPIServers(flags *pflag.FlagSet) {
	b.apiServers = apiServers{}
	flags.Var(
		b.apiServers,
		"api-server",
		"a kube-apiserver of your own: PATH, or CELL=PATH for one cell, stage or server alone, as --dry-run names them (repeatable)",
	)
}

// String implements pflag.Value.
func (a apiServers) String() string {
	var texts []string
	for _, cell := range slices.Sorted(maps.Keys(a)) {
		texts = append(texts, strings.TrimPrefix(cell+"="+a[cell], "="))
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (apiServers) Type() string { return "[CELL=]PATH" }

// Set implements pflag.Value.
func (a apiServers) Set(text string) error {
	cell, path, isNamed := strings.Cut(text, "=")
	if !isNamed {
		cell, path = "", text
	}
	if path == "" {
		return fmt.Errorf("%q: expected PATH or CELL=PATH", text)
	}
	if a[cell] != "" {
		return fmt.Errorf("%q: there is a program for it already, %s", text, a[cell])
	}
	a[cell] = path
	return nil
}

// CheckCells returns an error if a program was given for a cell that does not exist.
func (b *Binaries) CheckCells(names ...string) error {
	for _, cell := range slices.Sorted(maps.Keys(b.apiServers)) {
		if cell != "" && !slices.Contains(names, cell) {
			return fmt.Errorf(
				"--api-server %s=%s: there is no such cell; there are %s",
				cell,
				b.apiServers[cell],
				strings.Join(names, ", "),
			)
		}
	}
	return nil
}

// GivenAPIServer returns the program that the user gave for a cell, or nothing.
func (b *Binaries) GivenAPIServer(cell string) string {
	if b == nil {
		return ""
	}
	return cmp.Or(b.apiServers[cell], b.apiServers[""])
}

// FindGivenAPIServer returns the program that the user gave for a cell, or "" if there is none. The path is absolute,
// because programs run in another folder than the user's.
func (b *Binaries) FindGivenAPIServer(cell string) (string, error) {
	path := b.GivenAPIServer(cell)
	if path == "" {
		return "", nil
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return "", &usage.Error{Problem: fmt.Sprintf("--api-server %s: expected the path of a kube-apiserver", path)}
	}
	return filepath.Abs(path)
}
