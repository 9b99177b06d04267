package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// standIn is the file in upstream/test that Kubernetes has already, so that no patch has it.
const standIn = "test/e2e/auth/framework.go"

// TestUpstreamModule compares the version for which the tests in upstream/ are written with the newest one here.
func TestUpstreamModule(t *testing.T) {
	text, err := os.ReadFile("../upstream/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^(?:require)?\s*k8s\.io/kubernetes v(\d+\.\d+)\.`).FindSubmatch(text)
	if required == nil {
		t.Fatal("upstream/go.mod requires no k8s.io/kubernetes")
	}
	if newest := local.Newest().Minor; string(required[1]) != newest {
		t.Errorf(
			"upstream/go.mod requires Kubernetes %s, and the newest here is %s: upstream/README.md says what to do",
			required[1],
			newest,
		)
	}
}

// TestUpstreamCommits wants each file in upstream/test to be in one patch, and commit messages as Kubernetes wants them.
func TestUpstreamCommits(t *testing.T) {
	folders, err := filepath.Glob("../upstream/commits/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("upstream/commits has no patches: %v", err)
	}
	var paths []string
	for _, folder := range folders {
		checkMessage(t, filepath.Join(folder, "message"))
		text, err := os.ReadFile(filepath.Join(folder, "files"))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, strings.Fields(string(text))...)
	}
	err = filepath.WalkDir("../upstream/test", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, filepath.FromSlash("../upstream/")))
		if patches := countPatches(paths, name); patches != 1 && name != standIn {
			t.Errorf("upstream/%s is in %d patches of upstream/commits, expected 1", name, patches)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// countPatches returns how many of the paths are a file or a folder with it.
func countPatches(paths []string, name string) int {
	count := 0
	for _, path := range paths {
		if name == path || strings.HasPrefix(name, path+"/") {
			count++
		}
	}
	return count
}

// checkMessage checks what Kubernetes' guide for contributors says of commit messages: a short subject, an empty line, lines of at
// most 72 characters, and neither mentions nor words that close issues, which belong into the pull request.
func checkMessage(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 3 || lines[0] == "" || lines[1] != "" {
		t.Errorf("%s: expected a subject, an empty line and a text", file)
	}
	unwanted := regexp.MustCompile(`(?i)\B@\w|\b(fix|fixes|fixed|close|closes|closed|resolve|resolves|resolved)\s+\S*#\d`)
	for i, line := range lines {
		if len(line) > 72 {
			t.Errorf("%s:%d: %d characters, expected at most 72", file, i+1, len(line))
		}
		if found := unwanted.FindString(line); found != "" {
			t.Errorf("%s:%d: %q belongs into the text of the pull request", file, i+1, found)
		}
	}
}
