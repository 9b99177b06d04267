package findings

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// address matches the address of a document on GitHub: the repository, the commit that was read, and the path.
var address = regexp.MustCompile(`^https://github\.com/kubernetes/([a-z-]+)/blob/([0-9a-f]{40})/(\S+)$`)

var changedDocument = regexp.MustCompile(`(?m)^diff --git a/(\S+) b/(\S+)$`)

// readPatches returns the patches of a document, one after the other.
func readPatches(t *testing.T, e errata) (texts []string) {
	t.Helper()
	for _, name := range e.Patches {
		text, err := os.ReadFile(filepath.Join(pages, "patches", name))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// linesWith returns the lines of patches that begin with a sign, without the sign and as one text, so that a sentence
// is found wherever its lines end.
func linesWith(sign string, patches []string) string {
	var words []string
	for _, line := range strings.Split(strings.Join(patches, "\n"), "\n") {
		text, found := strings.CutPrefix(line, sign)
		if isHeader := strings.HasPrefix(line, sign+sign+sign+" "); found && !isHeader {
			words = append(words, strings.Fields(text)...)
		}
	}
	return strings.Join(words, " ")
}

// TestDocumentPatches checks that the patches of a document make each edit that the errata list.
func TestDocumentPatches(t *testing.T) {
	all, _ := table[errata](t, "errata_test.yaml")
	for _, e := range all {
		where := address.FindStringSubmatch(e.Text)
		if where == nil {
			t.Errorf("%s: %q is not the address of a text at a commit", e.Document, e.Text)
			continue
		}
		if len(e.Patches) == 0 {
			continue // nobody has made patches of the edits yet
		}
		texts := readPatches(t, e)
		added, dropped := linesWith("+", texts), linesWith("-", texts)
		if !strings.Contains(strings.Join(texts, ""), "diff --git a/"+where[3]+" b/"+where[3]+"\n") {
			t.Errorf("%s: no patch changes %s", e.Document, where[3])
		}
		for _, edit := range e.Edits {
			edit.checkPatched(t, added, dropped)
		}
	}
}

// checkPatched checks that the lines which patches add and drop contain an edit.
func (e erratum) checkPatched(t *testing.T, added, dropped string) {
	t.Helper()
	if e.Adds == "" && e.Drops == "" {
		t.Errorf("%q: neither adds nor drops says what the patch does", e.Says)
	}
	if !strings.Contains(added, e.Adds) {
		t.Errorf("%q: no patch adds %q", e.Says, e.Adds)
	}
	if !strings.Contains(dropped, e.Drops) {
		t.Errorf("%q: no patch drops %q", e.Says, e.Drops)
	}
}

// TestDocumentPatchesApply applies the patches of documents to the commits that were read, as git am does. The variable
// DOCUMENTS names a folder with clones of the repositories.
func TestDocumentPatchesApply(t *testing.T) {
	clones := os.Getenv("DOCUMENTS")
	if clones == "" {
		t.Skip("needs clones of kubernetes/enhancements and kubernetes/website in the folder that DOCUMENTS names")
	}
	all, _ := table[errata](t, "errata_test.yaml")
	for _, e := range all {
		repository := address.FindStringSubmatch(e.Text)[1]
		t.Run(repository, func(t *testing.T) {
			clone := filepath.Join(clones, repository)
			if _, err := os.Stat(clone); err != nil {
				t.Skip(err)
			}
			e.applyPatches(t, clone)
		})
	}
}

// applyPatches applies the patches of a document to the files that they change, as these are in a clone at the commit
// that was read.
func (e errata) applyPatches(t *testing.T, clone string) {
	t.Helper()
	dir, commit := t.TempDir(), address.FindStringSubmatch(e.Text)[2]
	for _, file := range changedFiles(readPatches(t, e)) {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, runGit(t, clone, "show", commit+":"+file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runGit(t, dir, "init", "--quiet")
	runGit(t, dir, "add", "--all")
	runGit(t, dir, "commit", "--quiet", "--message", "the documents as they were read")
	for _, name := range e.Patches {
		file, err := filepath.Abs(filepath.Join(pages, "patches", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", runGit(t, dir, "am", file))
	}
}

// changedFiles returns the files that patches change.
func changedFiles(patches []string) (all []string) {
	for _, m := range changedDocument.FindAllStringSubmatch(strings.Join(patches, "\n"), -1) {
		all = append(all, m[2])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// runGit runs a git command in a folder, without the settings of the machine, and returns what it prints.
func runGit(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = dir
	command.Env = append(
		os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=nobody",
		"GIT_AUTHOR_EMAIL=nobody@example.com",
		"GIT_COMMITTER_NAME=nobody",
		"GIT_COMMITTER_EMAIL=nobody@example.com",
	)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}
