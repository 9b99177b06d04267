package local

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/scenarios"
)

// pins holds one module file and its checksums for each program that can be built. They are not
// called go.mod and go.sum because go:embed takes nothing from a folder that is another module.
//
//go:embed versions/*.mod versions/*.sum
var pins embed.FS

const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// Release is one Kubernetes minor this package can build, pinned to one patch version.
type Release struct {
	// Minor is "1.37".
	Minor string
	// Version is the pinned patch version, "1.37.1", without a leading v.
	Version string
}

// String returns the patch version.
func (r Release) String() string { return r.Version }

// Releases returns the pinned releases, newest last.
func Releases() []Release { return slices.Clone(releases) }

// Newest is the last of the pinned releases.
func Newest() Release { return releases[len(releases)-1] }

// releases is read once; the embedded files cannot change, and a test reads them all.
var releases = func() (out []Release) {
	for _, entry := range must(pins.ReadDir("versions")) {
		minor, ok := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".mod"), "kubernetes-")
		if ok && path.Ext(entry.Name()) == ".mod" {
			out = append(out, Release{Minor: minor, Version: readPin("kubernetes-" + minor).version(kubernetesModule)})
		}
	}
	slices.SortFunc(out, func(a, b Release) int { return must(version.MustParseGeneric(a.Version).Compare(b.Version)) })
	return out
}()

// must is for what is embedded, which can only be wrong at compile time.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// ParseRelease finds the pinned release of a minor ("1.37", "v1.37") or of exactly the pinned patch version
// ("1.37.1"). The empty string is the newest. Anything else is a [*UsageError] that names the known releases.
func ParseRelease(s string) (Release, error) {
	wanted := strings.TrimPrefix(strings.TrimSpace(s), "v")
	if wanted == "" && s == "" {
		return Newest(), nil
	}
	for _, r := range releases {
		if wanted == r.Minor || wanted == r.Version {
			return r, nil
		}
	}
	return Release{}, &UsageError{
		Problem: fmt.Sprintf("Kubernetes version %q is not one of those that can be run here", s),
		Hint:    "use one of " + knownReleases(),
	}
}

func knownReleases() string {
	names := scenarios.Each(releases, func(r Release) string { return fmt.Sprintf("%s (%s)", r.Minor, r.Version) })
	return strings.Join(names, ", ")
}

// emulated checks an emulated version against the release that is to emulate it. How far back a
// release reaches is left to it: kube-apiserver refuses what it cannot emulate.
func (r Release) emulated(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	minor := strings.TrimPrefix(s, "v")
	parsed, err := version.ParseGeneric(minor)
	if err != nil || strings.Count(minor, ".") != 1 {
		return "", &UsageError{
			Problem: fmt.Sprintf("emulated version %q is not a minor version", s),
			Hint:    `write it like "1.36"`,
			Err:     err,
		}
	}
	if version.MustParseGeneric(r.Minor).LessThan(parsed) {
		return "", &UsageError{
			Problem: fmt.Sprintf("Kubernetes %s cannot emulate the newer version %s", r.Version, minor),
			Hint:    "emulate an older minor, or run a newer release: " + knownReleases(),
		}
	}
	return minor, nil
}

// pin is one embedded module: what a program is built from.
type pin struct {
	name     string
	mod, sum []byte
}

// write puts the module into a folder. Files that are as they should be are left alone: others may be building from them.
func (p pin) write(dir string) error {
	return cmp.Or(writeIfChanged(filepath.Join(dir, "go.mod"), p.mod), writeIfChanged(filepath.Join(dir, "go.sum"), p.sum))
}

func readPin(name string) pin {
	read := func(ext string) []byte { return must(pins.ReadFile("versions/" + name + ext)) }
	return pin{name: name, mod: read(".mod"), sum: read(".sum")}
}

// version returns the version, without v, at which the pin requires a module.
func (p pin) version(module string) string {
	file := must(modfile.ParseLax(p.name+".mod", p.mod, nil))
	i := slices.IndexFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == module })
	return strings.TrimPrefix(file.Require[i].Mod.Version, "v")
}
