package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../.."

// reference returns the folder of the submission that is ours, and its version.
func reference(t *testing.T) (folder, version string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, submissionsFolder, "*", "authzconf-reference"))
	if err != nil || len(found) != 1 {
		t.Fatalf("submissions that are ours: %v, %v (expected one)", found, err)
	}
	return found[0], filepath.Base(filepath.Dir(found[0]))
}

// needsHistory skips a test where there is no history from which the program of a version could be built.
func needsHistory(t *testing.T, version string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "-C", repository, "cat-file", "-e", version+"^{commit}").Run(); err != nil {
		t.Skipf("the history of %s is not there: %v", version, err)
	}
}

// accept stands for a program that verifies everything.
func accept(context.Context, string, string) error { return nil }

// TestSubmissions: all submissions of the repository are in order, and the table is up to date.
func TestSubmissions(t *testing.T) {
	_, version := reference(t)
	needsHistory(t, version)
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-root", repository}, &stdout, &stderr); code != exitInOrder {
		t.Errorf("exit code %d: %s%s", code, stdout.String(), stderr.String())
	}
}

// edit is a change of a submission, in the folder of the submission.
type edit func(t *testing.T, folder string)

// replace replaces a text, which has to be there, in a file of a submission.
func replace(name, old, by string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		path := filepath.Join(folder, name)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q: %v", name, old, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// write writes a file of a submission.
func write(name, text string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// appendTo appends to a file of a submission.
func appendTo(name, text string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		before, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(before)+text)(t, folder)
	}
}

// remove removes a file or folder of a submission.
func remove(name string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// rename moves a submission to another path below VERSION's folder.
func rename(to string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		target := filepath.Join(filepath.Dir(folder), to)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(folder, target); err != nil {
			t.Fatal(err)
		}
	}
}

// both makes two changes, one after the other.
func both(first, second edit) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		first(t, folder)
		second(t, folder)
	}
}

func link(name string) edit {
	return func(t *testing.T, folder string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/hostname", path); err != nil {
			t.Fatal(err)
		}
	}
}

// copied returns a copy of the reference submission and the folder that it is in.
func copied(t *testing.T) (submissions, folder string) {
	t.Helper()
	from, version := reference(t)
	submissions = t.TempDir()
	folder = filepath.Join(submissions, version, filepath.Base(from))
	if err := os.CopyFS(folder, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return submissions, folder
}

// check checks the submissions of a folder, and returns the exit code and what was printed.
func check(t *testing.T, submissions string, verify verifier) (code int, said string) {
	t.Helper()
	var stderr bytes.Buffer
	_, code = checkAll(t.Context(), submissions, verify, io.Discard, &stderr)
	return code, stderr.String()
}

// TestBadSubmissions: each ends with one line that says what is wrong, and with its exit code.
func TestBadSubmissions(t *testing.T) {
	for name, c := range map[string]struct {
		edit edit
		code int
		want string
	}{
		"untouched":               {func(*testing.T, string) {}, exitInOrder, ""},
		"no README":               {remove("README.md"), exitForm, "it has bundle (expected README.md and bundle, and nothing else)"},
		"no bundle":               {remove("bundle"), exitForm, "it has README.md (expected"},
		"another file":            {write("notes.txt", "x"), exitForm, "it has README.md, bundle, notes.txt (expected README.md and bundle, and nothing else)"},
		"a file as bundle":        {both(remove("bundle"), write("bundle", "x")), exitForm, "expected README.md, a file, and bundle, a folder"},
		"no claims":               {replace("README.md", "## Claims", "## Facts"), exitForm, `there is no section "## Claims"`},
		"no reproduction":         {replace("README.md", "## Reproduce", "## History"), exitForm, `there is no section "## Reproduce"`},
		"no commands":             {replace("README.md", "```sh", "sh"), exitForm, "with a block of commands"},
		"a claim missing":         {replace("README.md", "| levels | core |\n", ""), exitForm, `the table of claims has no row "levels"`},
		"a claim twice":           {replace("README.md", "| levels | core |\n", "| levels | core |\n| levels | core, robust |\n"), exitForm, `README.md:15: "levels" is claimed twice`},
		"an unknown claim":        {replace("README.md", "| levels |", "| security |"), exitForm, `"security" is not a claim`},
		"an empty claim":          {replace("README.md", "| outcome | passed |", "| outcome | |"), exitForm, `the claim "outcome" is empty`},
		"a higher level":          {replace("README.md", "| levels | core |", "| levels | core, no-overgrant |"), exitUntrue, `README.md:14: levels: it claims "core, no-overgrant", and the report says "core"`},
		"another product":         {replace("README.md", "| product | reference |", "| product | gatehouse |"), exitUntrue, `product: it claims "gatehouse", and the report says "reference"`},
		"another version":         {replace("README.md", "| product version | ", "| product version | 2"), exitUntrue, "product version: it claims"},
		"another kind":            {replace("README.md", "| kind | authorizer |", "| kind | proxy |\n| servers | 1.37.1 gate on |"), exitUntrue, `kind: it claims "proxy"`},
		"another outcome":         {replace("README.md", "| outcome | passed |", "| outcome | failed |"), exitUntrue, `outcome: it claims "failed", and the report says "passed"`},
		"a name of its own":       {rename("acme-gatehouse"), exitForm, "the folder is called acme-gatehouse (expected authzconf-reference"},
		"capitals":                {rename("Authzconf-Reference"), exitForm, "expected a folder ORGANISATION-PRODUCT"},
		"another authzconf":       {rename("../v0.1.0/authzconf-reference"), exitUntrue, "and the folder says v0.1.0"},
		"no version":              {rename("../newest/authzconf-reference"), exitForm, "expected a folder that is called like the version of authzconf"},
		"a foreign file":          {write("bundle/evidence/more.json", "{}"), exitForm, "bundle/evidence/more.json is not a file of the report"},
		"a link":                  {link("bundle/summary.md"), exitForm, "bundle/summary.md is not an ordinary file"},
		"a large file":            {appendTo("README.md", strings.Repeat("x", maxFileSize)), exitForm, "bytes (at most 5242880"},
		"a key in the README":     {appendTo("README.md", "\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBd\n-----END EC PRIVATE KEY-----\n"), exitForm, "README.md:26: this looks like a secret"},
		"a token in evidence":     {appendTo("bundle/evidence/end.json", " Authorization: Bearer 3ZzdGFydGVkMjAyNjExMjZ0aGlzaXNhc2VjcmV0"), exitForm, "bundle/evidence/end.json:4: this looks like a secret"},
		"a token in a kubeconfig": {appendTo("README.md", "\nusers:\n- name: x\n  user:\n    token: 3ZzdGFydGVkMjAyNjExMjZ0aGlz\n"), exitForm, "README.md:29: this looks like a secret"},
		"a placeholder":           {appendTo("README.md", "\n    token: $TOKEN\n"), exitInOrder, ""},
		"a field of evidence": {replace("bundle/evidence/circumstances.json", "{", `{"password": "hunter2", `), exitForm,
			"bundle/evidence/circumstances.json: a field of it looks like a secret"},
		"no report.yaml": {remove("bundle/report.yaml"), exitForm, "report.yaml"},
		"a field more":   {appendTo("bundle/report.yaml", "level: core\n"), exitForm, "bundle/report.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			submissions, folder := copied(t)
			c.edit(t, folder)
			code, said := check(t, submissions, accept)
			if code != c.code || !strings.Contains(said, c.want) {
				t.Errorf("exit code %d (expected %d), %q is not in: %s", code, c.code, c.want, said)
			}
			if lines := strings.Count(said, "\n"); code != exitInOrder && lines != 1 {
				t.Errorf("%d lines (expected one): %s", lines, said)
			}
		})
	}
}

// TestTampered: the program that made the report notices what was changed in it, where the claims are those of the report.
func TestTampered(t *testing.T) {
	_, version := reference(t)
	needsHistory(t, version)
	verify := (&programs{root: repository, base: "HEAD"}).verify
	for name, c := range map[string]struct {
		edit edit
		want string
	}{
		"evidence":     {replace("bundle/evidence/answers/003-core.json", `allowed`, `Allowed`), "evidence/answers/003-core.json"},
		"a page":       {replace("bundle/summary.md", "core", "more"), "summary.md"},
		"verdicts":     {replace("bundle/report.yaml", "judged: 3588", "judged: 4588"), "report.yaml"},
		"missing file": {remove("bundle/evidence/circumstances.json"), "evidence/circumstances.json"},
	} {
		t.Run(name, func(t *testing.T) {
			submissions, folder := copied(t)
			c.edit(t, folder)
			code, said := check(t, submissions, verify)
			if code != exitUntrue || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d (expected %d), %q in one line of: %s", code, exitUntrue, c.want, said)
			}
		})
	}
}

// TestVersions: a bundle is verified by a version that is in the history of the base, and by nothing else.
func TestVersions(t *testing.T) {
	_, version := reference(t)
	needsHistory(t, version)
	first, err := exec.CommandContext(t.Context(), "git", "-C", repository, "rev-list", "--max-parents=0", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ base, version, want string }{
		"unknown release":  {"HEAD", "v99.0.0", "there is no version v99.0.0 in the history"},
		"unknown commit":   {"HEAD", "v0.0.0-20261126173200-0123456789ab", "there is no version"},
		"not of this base": {strings.Fields(string(first))[0], version, "is not part of"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&programs{root: repository, base: c.base}).findCommit(t.Context(), c.version)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (expected %q)", err, c.want)
			}
		})
	}
}

// TestPage: a table that is not up to date is an error, and -update writes it.
func TestPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# Page\n\n"+tableBegin+tableEnd+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	submissions, _ := copied(t)
	all, code := checkAll(t.Context(), submissions, accept, io.Discard, io.Discard)
	if code != exitInOrder || len(all) != 1 {
		t.Fatalf("%d submissions, exit code %d", len(all), code)
	}
	if err := checkPage(page, all, false); err == nil || !strings.Contains(err.Error(), "not up to date") {
		t.Errorf("an empty table: %v", err)
	}
	if err := checkPage(page, all, true); err != nil {
		t.Fatal(err)
	}
	if err := checkPage(page, all, false); err != nil {
		t.Errorf("a table that was just written: %v", err)
	}
	text, err := os.ReadFile(page)
	for _, want := range []string{"No third party has submitted", "**us**", "| core | passed | 17 of 17 |", "\nafter\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the page (%v):\n%s", want, err, text)
		}
	}
	other := *all[0]
	other.readme = &readme{claims: map[string]claim{claimOrganisation: {value: "Acme"}}}
	if table := renderTable([]*submission{all[0], &other}); !strings.Contains(table, "One report is by a third party.") {
		t.Errorf("with one by somebody else: %s", table)
	}
}
