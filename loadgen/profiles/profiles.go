// Package profiles holds the load profiles that come with authzconf.
package profiles

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/authzconf/authzconf/loadgen/profile"
)

// FS holds the profiles, NAME.yaml each.
//
//go:embed *.yaml
var FS embed.FS

// Names are the names of all profiles, sorted.
func Names() (names []string) {
	files, err := fs.Glob(FS, "*.yaml")
	if err != nil {
		return nil // the pattern is right
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".yaml"))
	}
	return names
}

// Load reads one of them by name, and returns its text as well.
func Load(name string) (*profile.Profile, []byte, error) {
	data, err := FS.ReadFile(name + ".yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	}
	p, err := profile.Parse(name+".yaml", data)
	return p, data, err
}
