package mutants

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

const (
	// patchedModule is the module that all patches change. In kubernetes/kubernetes it is in stagingFolder.
	patchedModule = "k8s.io/apiserver"
	stagingFolder = "staging/src/" + patchedModule
)

// patch is the fix of a finding, as git format-patch writes it for kubernetes/kubernetes.
type patch struct {
	Finding string
	File    string
	Text    []byte
}

// loadPatches reads the patches of docs/findings, in the order of their names.
func loadPatches(t testing.TB) (all []patch) {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(ownFolder, "../../docs/findings/patches/kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no patches in %s: %v", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, patch{strings.TrimSuffix(filepath.Base(file), ".patch"), file, text})
	}
	return all
}

var (
	changedFile = regexp.MustCompile(`(?m)^diff --git a/(\S+) b/(\S+)$`)
	addedTest   = regexp.MustCompile(`(?m)^\+func (Test\w+)\(t \*testing\.T\)`)
)

// Files are the files that the patch changes, by their paths in kubernetes/kubernetes.
func (p patch) Files() (all []string) {
	for _, m := range changedFile.FindAllSubmatch(p.Text, -1) {
		all = append(all, string(m[2]))
	}
	return all
}

// Packages are the packages that the patch changes, as go commands name them in the patched module.
func (p patch) Packages() (all []string) {
	for _, file := range p.Files() {
		all = append(all, "./"+strings.TrimPrefix(filepath.Dir(file), stagingFolder+"/"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Tests are the names of the tests that the patch adds.
func (p patch) Tests() (all []string) {
	for _, m := range addedTest.FindAllSubmatch(p.Text, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// build compiles a kube-apiserver with the patch, or finds it in the cache.
func (p patch) build(ctx context.Context, b *local.Binaries, r local.Release) (string, error) {
	hash := sha256.Sum256(p.Text)
	return variant{"fixed", []string{patchedModule}, hex.EncodeToString(hash[:]), func(_, dir string) error {
		return p.apply(ctx, dir, len(strings.Split(stagingFolder, "/")))
	}}.build(ctx, b, r)
}

// apply changes the files in a folder, which are those below folders of kubernetes/kubernetes, but for tests.
func (p patch) apply(ctx context.Context, dir string, folders int) error {
	apply := exec.CommandContext(ctx, "git", "apply", "--exclude=*_test.go", fmt.Sprintf("-p%d", 1+folders), p.File)
	apply.Dir = dir
	// Within another repository, git would take the paths for those of that repository, and change nothing.
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.File, err, output)
	}
	return nil
}

// clone is a repository with one module of kubernetes/kubernetes, at its place.
type clone string

// newClone makes a repository with the module of a release, or with some of its files, by their paths in the repository.
func newClone(t *testing.T, module string, files []string) clone {
	t.Helper()
	c := clone(t.TempDir())
	for _, file := range files {
		path, isBelow := strings.CutPrefix(file, stagingFolder+"/")
		if !isBelow {
			t.Fatalf("%s is not in %s", file, stagingFolder)
		}
		text, err := os.ReadFile(filepath.Join(module, path))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(string(c), file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.git(t, "init", "--quiet", "--initial-branch", "master")
	c.git(t, "add", "--all")
	c.git(t, "commit", "--quiet", "--message", "the module as it is released")
	return c
}

// git runs a git command in the repository, without the settings of the machine, and returns what it prints.
func (c clone) git(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = string(c)
	command.Env = append(
		os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=nobody",
		"GIT_AUTHOR_EMAIL=nobody@example.com",
		"GIT_COMMITTER_NAME=nobody",
		"GIT_COMMITTER_EMAIL=nobody@example.com",
	)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// am applies a patch as one who received it does, on a branch of its own.
func (c clone) am(t *testing.T, p patch) {
	t.Helper()
	c.git(t, "checkout", "--quiet", "-B", p.Finding, "master")
	c.git(t, "am", "--quiet", p.File)
}

// checkFormat wants the files that a patch changes to be as gofmt leaves them.
func (c clone) checkFormat(t *testing.T, p patch) {
	t.Helper()
	for _, file := range p.Files() {
		text, err := os.ReadFile(filepath.Join(string(c), file))
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s is not as gofmt leaves it: %v", file, err)
		}
	}
}

// moduleFolder is the folder of the patched module in the release that kube-apiserver is built from.
func moduleFolder(t *testing.T) string {
	t.Helper()
	b := &local.Binaries{}
	dir, err := b.PinnedModule(t.Context(), local.Newest())
	if err != nil {
		t.Fatal(err)
	}
	module, err := b.GoOutput(t.Context(), dir, "list", "-m", "-f", "{{.Dir}}", patchedModule)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(module)
}

// TestPatches applies each patch to the newest release as git am does, and wants commits that kubernetes/kubernetes takes:
// files as gofmt leaves them, a test, and a message without the words and names by which GitHub would do something.
func TestPatches(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the modules of Kubernetes")
	}
	module := moduleFolder(t)
	for _, p := range loadPatches(t) {
		t.Run(p.Finding, func(t *testing.T) {
			c := newClone(t, module, p.Files())
			c.am(t, p)
			c.checkFormat(t, p)
			if len(p.Tests()) == 0 {
				t.Error("it adds no test")
			}
			checkMessage(t, c.git(t, "log", "-1", "--format=%B"))
			checkPullRequest(t, p)
		})
	}
}

// refusedWords are those that kubernetes/kubernetes refuses in commit messages: they close issues or call people.
var refusedWords = regexp.MustCompile(`(?i)\b(fix(es|ed)?|close[sd]?|resolve[sd]?)\b:? +(\S+/\S+)?#[0-9]|(^|\s)@[a-z0-9]`)

func checkMessage(t *testing.T, message string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(message), "\n")
	if !strings.HasPrefix(lines[0], "apiserver: ") || len(lines[0]) > 72 {
		t.Errorf("the subject %q does not begin with the component, or is longer than 72 characters", lines[0])
	}
	if len(lines) < 3 || lines[1] != "" {
		t.Error("the message has no text after an empty line")
	}
	for _, line := range lines {
		if len(line) > 76 {
			t.Errorf("a line of the message has more than 76 characters: %q", line)
		}
	}
	if found := refusedWords.FindString(message); found != "" {
		t.Errorf("the message has %q", found)
	}
}

// pullRequestParts are what the template of kubernetes/kubernetes asks for.
var pullRequestParts = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^/kind bug$`),
	regexp.MustCompile(`(?m)^#### What this PR does / why we need it:\n\n\S`),
	regexp.MustCompile(`(?m)^Fixes #(NUMBER|[0-9]+)$`),
	regexp.MustCompile("(?m)^```release-note\n\\S.*\n```$"),
	regexp.MustCompile("(?m)^```docs\n- \\[KEP\\]: https://kep.k8s.io/5284\n```$"),
}

// checkPullRequest wants the text of the pull request beside the patch to be complete, and to name the tests.
func checkPullRequest(t *testing.T, p patch) {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(p.File, ".patch") + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range pullRequestParts {
		if !part.Match(text) {
			t.Errorf("the text of the pull request has nothing like %s", part)
		}
	}
	for _, name := range p.Tests() {
		if !bytes.Contains(text, []byte("`"+name+"`")) {
			t.Errorf("the text of the pull request does not name the test %s", name)
		}
	}
}

// TestPatchTests runs the tests of the packages that a patch changes: all pass with it, and those that it adds fail without
// its change of the code.
func TestPatchTests(t *testing.T) {
	if testing.Short() {
		t.Skip("runs tests of Kubernetes")
	}
	module := moduleFolder(t)
	c := newClone(t, module, filesBelow(t, module))
	for _, p := range loadPatches(t) {
		t.Run(p.Finding, func(t *testing.T) {
			c.am(t, p)
			b, dir := &local.Binaries{}, filepath.Join(string(c), stagingFolder)
			if _, err := b.GoOutput(t.Context(), dir, append([]string{"vet", "-trimpath"}, p.Packages()...)...); err != nil {
				t.Error(err)
			}
			passed, err := b.GoOutput(t.Context(), dir, append([]string{"test", "-trimpath"}, p.Packages()...)...)
			if err != nil {
				t.Errorf("with the patch: %v", err)
			}
			t.Logf("with the patch: %s", passed)
			c.git(t, append([]string{"checkout", "--quiet", "master", "--"}, p.code()...)...)
			defer c.git(t, "reset", "--quiet", "--hard")
			p.expectFailures(t, dir)
		})
	}
}

// code is the files that the patch changes, but for tests.
func (p patch) code() []string {
	return slices.DeleteFunc(p.Files(), func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// expectFailures runs the tests that the patch adds where its change of the code is missing.
func (p patch) expectFailures(t *testing.T, dir string) {
	t.Helper()
	for _, name := range p.Tests() {
		test := exec.CommandContext(t.Context(), "go", append([]string{"test", "-trimpath", "-run", "^" + name + "$"}, p.Packages()...)...)
		test.Dir, test.Env = dir, append(os.Environ(), local.BuildEnv()...)
		output, err := test.CombinedOutput()
		if failed := bytes.Contains(output, []byte("--- FAIL: "+name+" ")); err == nil || !failed {
			t.Errorf("without the change of the code, %s does not fail: %v: %s", name, err, output)
			continue
		}
		t.Logf("without the change of the code:\n%s", output)
	}
}

// filesBelow are the files of a module, by their paths in kubernetes/kubernetes.
func filesBelow(t *testing.T, module string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(module, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(module, path)
		all = append(all, filepath.Join(stagingFolder, relative))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
