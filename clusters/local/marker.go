package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/authzconf/authzconf/internal/usage"
)

// SourceWord is the version of the tree that --source names.
const SourceWord = "source"

// markerPattern matches the names of the files in which Kubernetes publishes its newest versions, as kubeadm accepts
// them: ci/latest, release/latest-1.38, release/stable.
var markerPattern = regexp.MustCompile(`^(ci|release)/[a-z]+(-\d+(\.\d+)?)?$`)

// Remember returns a fact that does not follow from a command line. find finds it out if nobody has yet. The result
// becomes part of the record under the name, so that whoever verifies the record gets the same.
type Remember func(name string, find func() (string, error)) (string, error)

// Resolve replaces markers, and the word source, by the versions that they stand for. It must be called before anything
// is looked for, because it reads the tree of --source. An error is a [*usage.Error].
func (b *Binaries) Resolve(ctx context.Context, remember Remember, versions ...string) (resolved []string, err error) {
	if b.sourceDir != "" {
		if b.tree, err = b.readTree(remember); err != nil {
			return nil, err
		}
	}
	for _, v := range versions {
		one, err := b.resolveVersion(ctx, remember, v)
		if err != nil {
			return nil, err
		}
		resolved = append(resolved, one)
	}
	return resolved, nil
}

// ResolveFlag does the same as Resolve for the versions of the flag --kubernetes. If only --source is given, the
// version is that of the tree.
func (b *Binaries) ResolveFlag(ctx context.Context, remember Remember, versions ...string) (resolved []string, err error) {
	if b.sourceDir != "" && !b.flags.Changed("kubernetes") {
		versions = []string{SourceWord}
	}
	return b.Resolve(ctx, remember, versions...)
}

// ResolveOne does the same as Resolve for one version.
func (b *Binaries) ResolveOne(ctx context.Context, remember Remember, version string) (string, error) {
	resolved, err := b.Resolve(ctx, remember, version)
	if err != nil {
		return "", err
	}
	return resolved[0], nil
}

func (b *Binaries) resolveVersion(ctx context.Context, remember Remember, version string) (string, error) {
	switch {
	case version == SourceWord && b.sourceDir == "":
		return "", &usage.Error{
			Problem: "the version " + SourceWord + " is that of a source tree, and no tree is named",
			Hint:    "name it with --source DIR",
		}
	case version == SourceWord:
		return b.tree.Version, nil
	case !markerPattern.MatchString(version):
		return version, nil
	}
	return remember("the version of "+version, func() (string, error) { return b.readMarker(ctx, version) })
}

// readMarker reads the version in a marker file of dl.k8s.io.
func (b *Binaries) readMarker(ctx context.Context, marker string) (string, error) {
	url, err := b.mirrored(strings.ReplaceAll(b.publication("kube-apiserver").Markers, "{marker}", marker))
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "authzconf-marker-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d := &download{hostAnswers: cmp.Or(b.hostAnswers, thisRun), url: url, path: filepath.Join(dir, "marker")}
	fail := func(err error) (string, error) {
		return "", &usage.Error{
			Problem: fmt.Sprintf("which version %s is cannot be read: %v", marker, err),
			Hint:    "name the version itself, or a mirror with --binaries-mirror", Err: err,
		}
	}
	if err := d.fetchAll(ctx); err != nil {
		return fail(err)
	}
	text, err := os.ReadFile(d.path)
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(text))
	if _, err := ParseRelease(version); err != nil {
		return fail(fmt.Errorf("%s says %.40q, which is not a version", d.url, version))
	}
	return version, nil
}

// isCI reports whether a version is one of a build of CI, whose name ends with the commit.
func isCI(version string) bool { return strings.Contains(version, "+") }
