package pipelines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// krewTool runs krew or its validator of manifests, in an empty folder of its own.
func krewTool(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=../tools/krew/go.mod"}, args...)...)
	c.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS=linux", "KREW_ARCH=amd64")
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestKrew: the manifest of a release is one for krew's own validator, and krew installs the plugin from the release's archive.
func TestKrew(t *testing.T) {
	folder := t.TempDir()
	made(t, folder)
	manifest := filepath.Join(folder, "authzconf.yaml")
	good, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(good), `sha256: "`); n != 4 {
		t.Errorf("the manifest is for %d platforms (expected 4):\n%s", n, good)
	}
	archive := filepath.Join(folder, "authzconf_v1.2.3_linux_amd64.tar.gz")
	for name, c := range map[string]struct{ old, by, validates, installs string }{
		"as released":    {"", "", "", ""},
		"another digest": {`sha256: "`, `sha256: "00`, "is not valid", "is not valid"},
		"a digest of another archive": {strings.SplitAfterN(string(good), `sha256: "`, 2)[1][:64], strings.Repeat("0", 64), "",
			"checksum does not match"},
		"no version":       {"version: v1.2.3", "version: 1.2.3", "not starting with 'v'", "not starting with 'v'"},
		"another platform": {"arch: arm64", "arch: amd64", "overlapping", ""},
		"a missing file":   {"from: ./LICENSE", "from: ./NOTICE", "", "could not find"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			edited := filepath.Join(root, "authzconf.yaml")
			if err := os.WriteFile(edited, []byte(strings.Replace(string(good), c.old, c.by, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := krewTool(t, root, "validate-krew-manifest", "-skip-install", "-manifest", edited)
			checkOutput(t, "validating", out, err, c.validates)
			out, err = krewTool(t, root, "krew", "install", "--manifest="+edited, "--archive="+archive)
			checkOutput(t, "installing", out, err, c.installs)
			if c.installs == "" {
				checkInstalled(t, root)
			}
		})
	}
}

// checkOutput wants success if want is empty, and otherwise an error that says it.
func checkOutput(t *testing.T, what, out string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || !strings.Contains(out, want) {
		t.Errorf("%s: %v (expected %q)\n%s", what, err, want, out)
	}
}

// checkInstalled wants the program and its license in krew's folder, and a link to the program by the plugin's name.
func checkInstalled(t *testing.T, root string) {
	t.Helper()
	installed, _ := filepath.Glob(filepath.Join(root, "store/authzconf/v1.2.3/*"))
	program, err := os.ReadFile(filepath.Join(root, "bin/kubectl-authzconf"))
	if err != nil || string(program) != "linux/amd64\n" || len(installed) != 2 {
		t.Errorf("installed %v, the plugin %q: %v", installed, program, err)
	}
}
