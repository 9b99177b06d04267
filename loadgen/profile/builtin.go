package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// builtin holds the profiles that come with authzconf, NAME.yaml each.
//
//go:embed builtin/*.yaml
var builtin embed.FS

// Names are the names of the built-in profiles, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Describe is a line for each built-in profile: its name, and the beginning of its description.
func Describe() (lines []string, err error) {
	for _, name := range Names() {
		p, _, err := Load(name)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(p.Description, ":")
		lines = append(lines, fmt.Sprintf("%-26s %s", name, strings.TrimSuffix(first, ".")))
	}
	return lines, nil
}

// Load reads a file if the name looks like one, or a built-in profile. It returns the text as well.
func Load(name string) (p *Profile, text []byte, err error) {
	file := name
	if strings.ContainsAny(name, `./\`) {
		text, err = os.ReadFile(name)
	} else if file += ".yaml"; !slices.Contains(Names(), name) {
		err = fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	} else {
		text, err = builtin.ReadFile("builtin/" + file)
	}
	if err == nil {
		p, err = Parse(file, text)
	}
	return p, text, err
}
