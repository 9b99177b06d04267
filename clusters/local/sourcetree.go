package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/authzconf/authzconf/internal/usage"
)

// SourceTree is the content of a folder from which kube-apiserver is built: a checkout of kubernetes/kubernetes, or a
// module that requires k8s.io/kubernetes.
type SourceTree struct {
	// Version is the version that the program will report, without a leading v.
	Version string `json:"version"`
	// Commit is the commit that is checked out. It is empty if git knows nothing about the folder. Files is the SHA-256
	// of all files, if there is no commit or files were changed since.
	Commit string `json:"commit,omitempty"`
	Files  string `json:"files,omitempty"`
}

// String names the tree as the text that the program is built from.
func (t SourceTree) String() string {
	switch {
	case t.Commit == "":
		return "files with the SHA-256 " + t.Files
	case t.Files != "":
		return "commit " + t.Commit + ", changed: files with the SHA-256 " + t.Files
	}
	return "commit " + t.Commit
}

// readTree returns the content of the folder of --source, or what it was when the record was made.
func (b *Binaries) readTree(remember Remember) (tree SourceTree, err error) {
	text, err := remember("the source tree "+b.sourceDir, func() (string, error) {
		tree, err := ReadSourceTree(b.sourceDir)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(tree)
		return string(text), err
	})
	if err != nil {
		return tree, err
	}
	return tree, json.Unmarshal([]byte(text), &tree)
}

// ReadSourceTree reads what a folder contains. A folder from which no kube-apiserver can be built is a [*usage.Error].
func ReadSourceTree(dir string) (tree SourceTree, err error) {
	text, err := os.ReadFile(filepath.Join(dir, modFile))
	if err != nil {
		return tree, sourceError(dir, fmt.Errorf("it has no go.mod: %w", rootCause(err)))
	}
	file, err := modfile.ParseLax(filepath.Join(dir, modFile), text, nil)
	if err != nil {
		return tree, sourceError(dir, err)
	}
	release, err := readTreeRelease(dir, file)
	if err != nil {
		return tree, sourceError(dir, err)
	}
	var isChanged bool
	tree.Commit, isChanged = readCommit(dir)
	isNamed := tree.Commit != "" && !isChanged
	if !isNamed {
		if tree.Files, err = digestFiles(dir); err != nil {
			return tree, sourceError(dir, err)
		}
	}
	described := ""
	if tree.Commit != "" {
		described = describeCommit(dir)
	}
	tree.Version, err = tree.nameVersion(release, described)
	return tree, err
}

func sourceError(dir string, err error) error {
	return &usage.Error{
		Problem: fmt.Sprintf("--source %s: %v", dir, err),
		Hint:    "name a checkout of kubernetes/kubernetes, or a module that requires " + kubernetesModule, Err: err,
	}
}

// binaryVersion finds the minor of a checkout in the file from which the API server has it.
var binaryVersion = regexp.MustCompile(`DefaultKubeBinaryVersion\s*=\s*"(\d+\.\d+)"`)

// readTreeRelease returns the version of the files in a tree: that of k8s.io/kubernetes if it is required, or the minor
// of a checkout with .0.
func readTreeRelease(dir string, file *modfile.File) (string, error) {
	i := slices.IndexFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == kubernetesModule })
	if i >= 0 {
		return strings.TrimPrefix(file.Require[i].Mod.Version, "v"), nil
	}
	if file.Module == nil || file.Module.Mod.Path != kubernetesModule {
		return "", fmt.Errorf("its go.mod is not that of %s, and does not require it", kubernetesModule)
	}
	name := filepath.Join("staging", "src", "k8s.io", "component-base", "version", "base.go")
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", rootCause(err)
	}
	match := binaryVersion.FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s does not say which version it is of", name)
	}
	return string(match[1]) + ".0", nil
}

// readCommit returns the commit of a folder, and whether files were changed since. It returns "" if git does not know a
// commit.
func readCommit(dir string) (commit string, isChanged bool) {
	commit, err := runGit(dir, "rev-parse", "HEAD")
	if err != nil {
		return "", false
	}
	top, err := runGit(dir, "rev-parse", "--show-prefix")
	if err != nil || top != "" {
		return "", false // a folder within somebody else's repository
	}
	status, err := runGit(dir, "status", "--porcelain")
	return commit, err != nil || status != ""
}

// describeCommit returns the nearest tag of the commit of a folder with the distance from it, or "" if there is none.
func describeCommit(dir string) string {
	described, err := runGit(dir, "describe", "--tags", "--match", "v[0-9]*", "--abbrev=14")
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(described, "v")
}

// gitTimeout limits commands of git, which only read.
const gitTimeout = time.Minute

func runGit(dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), gitTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// sinceTag matches what git describe adds to a tag: the number of commits since, and the last of these.
var sinceTag = regexp.MustCompile(`-(\d+)-g([0-9a-f]{14})$`)

// nameVersion returns the version of a tree as Kubernetes' own build names it: v1.38.0-alpha.2-31-gabc is
// 1.38.0-alpha.2.31+abc. Without a tag it is the version of the tree's files, followed by what identifies them. It is
// never the version of a release, because the tree may differ from the release.
func (t SourceTree) nameVersion(release, described string) (string, error) {
	name := t.Files
	if name == "" {
		name = t.Commit
	}
	if len(name) < shortName {
		return "", errors.New("nothing names the source tree")
	}
	version := release + "+source." + name[:shortName]
	match := sinceTag.FindStringSubmatch(described)
	switch {
	case match != nil:
		version = addCommits(strings.TrimSuffix(described, match[0]), match[1]) + "+" + match[2]
	case described != "":
		version = described + "+source." + name[:shortName]
	}
	if match != nil && t.Files != "" {
		version += ".changed." + name[:shortName]
	}
	_, err := ParseRelease(version)
	return version, err
}

// shortName is how many characters of a commit or a digest are enough to identify it.
const shortName = 12

// addCommits adds the number of commits since a tag to the version of the tag.
func addCommits(tag, commits string) string {
	if strings.Contains(tag, "-") {
		return tag + "." + commits // of a pre-release: 1.38.0-alpha.2.31
	}
	return tag + "-" + commits
}

// notSource are folders of a checkout from which nothing is built, and which change by themselves.
var notSource = []string{".git", "_output", "_tmp", ".make"}

// digestFiles returns the SHA-256 of the names and contents of all files of a folder, in the order of their names.
func digestFiles(dir string) (string, error) {
	treeHash := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(notSource, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		hash := sha256.New()
		if _, err := io.Copy(hash, file); err != nil {
			return err
		}
		_, err = fmt.Fprintf(treeHash, "%x  %s\n", hash.Sum(nil), filepath.ToSlash(name))
		return err
	})
	return hex.EncodeToString(treeHash.Sum(nil)), err
}

// buildTree builds the kube-apiserver of the tree of --source, unless it was built before.
func (b *Binaries) buildTree(ctx context.Context, p program) (Program, error) {
	dir, err := filepath.Abs(b.sourceDir)
	if err != nil {
		return Program{}, err
	}
	m := newModule(dir, b.tree.String())
	if isFile(filepath.Join(dir, "vendor", "modules.txt")) {
		// The tree's own go.work and vendor folder say how its modules are found.
		m.env, m.flags = withoutModuleSettings(m.env), nil
	}
	built, err := b.placeBuilt(ctx, p, m)
	if err != nil {
		return built, err
	}
	built.Origin, built.Source = originTree, b.tree.String()
	isPresent := func() bool { return isFile(built.Path) }
	return built, b.once(ctx, p, built.Path, isPresent, func() error {
		if err := b.checkTree(dir); err != nil {
			return err
		}
		return b.compile(ctx, p, m, built.Path)
	})
}

// checkTree returns an error if the source tree has changed since the plan was made.
func (b *Binaries) checkTree(dir string) error {
	now, err := ReadSourceTree(dir)
	if err != nil {
		return err
	}
	if now != b.tree {
		return fmt.Errorf("the source tree %s has changed while it was used: it was %s, and is %s", b.sourceDir, b.tree, now)
	}
	return nil
}

// withoutModuleSettings returns settings of the go command without those that say how modules are found.
func withoutModuleSettings(env []string) []string {
	settings := slices.DeleteFunc(slices.Clone(env), func(setting string) bool {
		return strings.HasPrefix(setting, "GOWORK=") || strings.HasPrefix(setting, "GOFLAGS=")
	})
	return append(settings, "GOWORK=", "GOFLAGS=")
}
