package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/filing"
)

// builtin holds the profiles that come with authzconf, NAME.yaml each.
//
//go:embed builtin/*.yaml
var builtin embed.FS

// Names are the names of the built-in profiles, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	names = append(names, seq.Map(files, func(f string) string { return strings.TrimSuffix(path.Base(f), ".yaml") })...)
	slices.Sort(names)
	return names
}

// Describe returns a line for each built-in profile: its name, and the beginning of its description.
func Describe() (lines []string, err error) {
	for _, name := range Names() {
		p, err := Load(name, nil)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(p.Description, ":")
		lines = append(lines, fmt.Sprintf("%-26s %s", name, strings.TrimSuffix(first, ".")))
	}
	return lines, nil
}

// Load reads a file if the name looks like one, or a built-in profile. read reads a file, filing.Input if it is nil.
func Load(name string, read func(path string) ([]byte, error)) (*Profile, error) {
	if strings.ContainsAny(name, `./\`) {
		if read == nil {
			read = filing.Input
		}
		text, err := read(name)
		if err != nil {
			return nil, err
		}
		return Parse(name, text)
	}
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	}
	file := name + ".yaml"
	text, err := builtin.ReadFile("builtin/" + file)
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}
