package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// builtin holds the profiles that come with authzconf, NAME.yaml each.
//
//go:embed builtin/*.yaml
var builtin embed.FS

// everyArm is what every-variant was called before.
const everyArm = "every-arm"

// Names are the names of the built-in profiles, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".yaml"))
	}
	return names
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
	if name == everyArm {
		name, notes = "every-variant", []string{"the profile every-arm is now called every-variant; the next version will not know the old name"}
	}
	text, err = builtin.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("there is no profile %q: expected a file, or one of %s", name, strings.Join(Names(), ", "))
	}
	p, _, err = Parse(name+".yaml", text)
	return p, text, notes, err
}
