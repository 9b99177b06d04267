package local

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
)

// Release is a version of Kubernetes that can be run: one of [Releases], or any other that is available. Nothing is
// pinned for the latter, and [Release.Standing] says by which expectations it is judged.
type Release struct {
	Minor   string // "1.37"
	Version string // "1.37.1", "1.38.0-alpha.2", of CI "1.38.0-alpha.2.31+0123456789abcd"; without a leading v
}

// String returns the whole version.
func (r Release) String() string { return r.Version }

// IsPinned reports whether the release is one of Releases, for which the modules and the digests of what is published
// are known.
func (r Release) IsPinned() bool { return slices.Contains(releases, r) }

// Name returns the part of a cell's name: the minor of a pinned release, or the whole version of any other. It can be
// used as the name of a file.
func (r Release) Name() string {
	if r.IsPinned() {
		return r.Minor
	}
	return strings.ReplaceAll(r.Version, "+", "-")
}

// Standing says in a sentence by which expectations a release is judged that is not pinned. It is empty for a pinned
// one.
func (r Release) Standing() string {
	if r.IsPinned() {
		return ""
	}
	if pinned, isKnown := pinnedRelease(r.Minor); isKnown {
		return fmt.Sprintf(
			"Kubernetes %s is not the pinned version of its minor, %s: what is expected of %s holds for it",
			r.Version,
			pinned.Version,
			pinned.Minor,
		)
	}
	return fmt.Sprintf(
		"Kubernetes %s is newer than all versions that are known here: what is expected of %s and newer holds for it",
		r.Version,
		Newest().Minor,
	)
}

// Releases returns the pinned releases, newest last.
func Releases() []Release { return slices.Clone(releases) }

// Newest is the last of the pinned releases.
func Newest() Release { return releases[len(releases)-1] }

// releases is read once, because the embedded files cannot change. A test reads them all.
var releases = func() (out []Release) {
	for _, entry := range must(pins.ReadDir("versions")) {
		if minor, ok := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".mod"), kubernetesPin); ok && path.Ext(entry.Name()) == ".mod" {
			out = append(out, Release{Minor: minor, Version: readPin(kubernetesPin + minor).version(kubernetesModule)})
		}
	}
	slices.SortFunc(out, func(a, b Release) int { return must(version.MustParseGeneric(a.Version).Compare(b.Version)) })
	return out
}()

// must is for embedded data, which can only be wrong at compile time.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// ParseRelease returns the pinned release of a minor ("1.37", "v1.37"), or the release of an exact version ("1.37.2",
// "v1.38.0-alpha.2"), whether it is pinned or not. The empty string means the newest pinned one. Anything else is a
// [*usage.Error] that names the possible ones, as is a version that is older than all pinned ones. Whether a version
// that is not pinned is available shows when its program is looked for.
func ParseRelease(s string) (Release, error) {
	text := strings.TrimPrefix(strings.TrimSpace(s), "v")
	if text == "" && s == "" {
		return Newest(), nil
	}
	for _, r := range releases {
		if text == r.Minor || text == r.Version {
			return r, nil
		}
	}
	exact, err := semver.StrictNewVersion(text)
	if err != nil {
		return Release{}, &usage.Error{
			Problem: fmt.Sprintf("Kubernetes version %q is not one of those that can be run here", s),
			Hint:    "use one of " + knownReleases() + ", or an exact version such as " + Newest().Version,
		}
	}
	r := Release{Minor: fmt.Sprintf("%d.%d", exact.Major(), exact.Minor()), Version: text}
	if version.MustParseGeneric(r.Minor).LessThan(version.MustParseGeneric(releases[0].Minor)) {
		return Release{}, &usage.Error{
			Problem: fmt.Sprintf(
				"Kubernetes %s is older than %s, the oldest version whose behaviour is known here",
				text,
				releases[0].Minor,
			),
			Hint: "use one of " + knownReleases() + ", or a newer version",
		}
	}
	return r, nil
}

// pinnedRelease returns the pinned release of a minor.
func pinnedRelease(minor string) (r Release, isKnown bool) {
	i := slices.IndexFunc(releases, func(r Release) bool { return r.Minor == minor })
	if i < 0 {
		return Release{}, false
	}
	return releases[i], true
}

// VersionsHelp returns, for the help of a flag, what a version can be.
func VersionsHelp() string {
	minors := seq.Map(releases, func(r Release) string { return r.Minor })
	return "a minor of " + strings.Join(minors, ", ") + "; an exact version such as 1.38.0-alpha.2; a marker such as release/latest-1.38 or ci/latest; or " + SourceWord + ", which --source names"
}

func knownReleases() string {
	names := seq.Map(releases, func(r Release) string { return fmt.Sprintf("%s (%s)", r.Minor, r.Version) })
	return strings.Join(names, ", ")
}

// parseEmulated checks an emulated version against the release that has to emulate it. kube-apiserver itself refuses
// versions that are too old for it to emulate.
func (r Release) parseEmulated(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	minor := strings.TrimPrefix(s, "v")
	parsed, err := version.ParseGeneric(minor)
	if err != nil || strings.Count(minor, ".") != 1 {
		return "", &usage.Error{
			Problem: fmt.Sprintf("emulated version %q is not a minor version", s),
			Hint:    `write it like "1.36"`,
			Err:     err,
		}
	}
	if version.MustParseGeneric(r.Minor).LessThan(parsed) {
		return "", &usage.Error{
			Problem: fmt.Sprintf("Kubernetes %s cannot emulate the newer version %s", r.Version, minor),
			Hint:    "emulate an older minor, or run a newer release: " + knownReleases(),
		}
	}
	return minor, nil
}
