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

// renamed are profiles by the names that they had before.
var renamed = map[string]string{
	"every-arm": "every-variant", "node-agent-steady": "steady", "daemonset-rollout": "rollout-burst", "deputy-dashboard": "deputy",
}

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
		p, _, _, err := Load(name)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(p.Description, ":")
		lines = append(lines, fmt.Sprintf("%-26s %s", name, strings.TrimSuffix(first, ".")))
	}
	return lines, nil
}

// Load reads a file if the name looks like one, or a built-in profile. It returns the text as well, and notes as
// Parse does.
func Load(name string) (p *Profile, text []byte, notes []string, err error) {
	if strings.ContainsAny(name, `./\`) {
		if text, err = os.ReadFile(name); err == nil {
			p, notes, err = Parse(name, text)
		}
		return p, text, notes, err
	}
	if now := renamed[name]; now != "" {
		name, notes = now, []string{fmt.Sprintf("the profile %s is now called %s; the next version will not know the old name", name, now)}
	}
	text, err = builtin.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	}
	p, _, err = Parse(name+".yaml", text)
	return p, text, notes, err
}
