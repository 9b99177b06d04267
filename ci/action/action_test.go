// Package action has the scripts of the GitHub action (action.yml), and tests them with programs in place of authzconf.
package action

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// metadata are the fields of action.yml that GitHub knows and that are used here
// (https://docs.github.com/actions/creating-actions/metadata-syntax-for-github-actions): any other is an error.
type metadata struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Author      string            `json:"author"`
	Branding    map[string]string `json:"branding"`
	Inputs      map[string]struct {
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Default     string `json:"default"`
	} `json:"inputs"`
	Outputs map[string]struct {
		Description string `json:"description"`
		Value       string `json:"value"`
	} `json:"outputs"`
	Runs struct {
		Using string `json:"using"`
		Steps []step `json:"steps"`
	} `json:"runs"`
}

type step struct {
	Name  string            `json:"name"`
	ID    string            `json:"id"`
	If    string            `json:"if"`
	Uses  string            `json:"uses"`
	Shell string            `json:"shell"`
	Run   string            `json:"run"`
	With  map[string]string `json:"with"`
	Env   map[string]string `json:"env"`
}

const (
	actionFile = "../../action.yml"
	pageFile   = "../../docs/github-action.md"
)

func readAction(t *testing.T) (m metadata) {
	t.Helper()
	data, err := os.ReadFile(actionFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		t.Fatalf("%s: %v", actionFile, err)
	}
	return m
}

var (
	script = regexp.MustCompile(`^"\$GITHUB_ACTION_PATH/ci/action/([a-z]+)"$`)
	input  = regexp.MustCompile(`\binputs\.([a-z-]+)`)
)

// usedInputs returns the inputs that the expressions of the steps name.
func usedInputs(m metadata) map[string]bool {
	used := map[string]bool{}
	for _, s := range m.Runs.Steps {
		values := slices.Concat([]string{s.If}, slices.Collect(maps.Values(s.With)), slices.Collect(maps.Values(s.Env)))
		for _, found := range input.FindAllStringSubmatch(strings.Join(values, "\n"), -1) {
			used[found[1]] = true
		}
	}
	return used
}

// scripts returns the scripts of the steps that are no actions, each of which has to be there.
func scripts(t *testing.T, m metadata) (names []string) {
	t.Helper()
	for _, s := range m.Runs.Steps {
		if s.Uses != "" {
			continue
		}
		found := script.FindStringSubmatch(s.Run)
		if found == nil || s.Shell != "bash" {
			t.Errorf("%s: %q is not a script of ci/action for bash", s.Name, s.Run)
			continue
		}
		names = append(names, found[1])
		if info, err := os.Stat(found[1]); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: %s cannot be executed: %v", s.Name, found[1], err)
		}
	}
	return names
}

// TestAction: each step is an action or one of the scripts, each input is used and documented, and no expression stands in a
// script, where what it holds would be executed.
func TestAction(t *testing.T) {
	m := readAction(t)
	if m.Runs.Using != "composite" {
		t.Errorf("it runs using %q", m.Runs.Using)
	}
	if names, want := scripts(t, m), []string{"install", "run", "summarize"}; !slices.Equal(names, want) {
		t.Errorf("scripts %v (expected %v)", names, want)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	used := usedInputs(m)
	for name, in := range m.Inputs {
		isDocumented := in.Description != "" && strings.Contains(string(page), "`"+name+"`")
		if !used[name] || !isDocumented {
			t.Errorf("input %s: used %v, described %q, and it has to be in the table of %s", name, used[name], in.Description, pageFile)
		}
		delete(used, name)
	}
	if len(used) > 0 {
		t.Errorf("expressions name inputs that there are not: %v", used)
	}
}

// exampleInputs returns the inputs that each workflow of the page gives the action, whose step comes last.
func exampleInputs(t *testing.T) (all []map[string]string) {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		var workflow struct {
			Jobs map[string]struct {
				Steps []step `json:"steps"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal([]byte(block[1]), &workflow); err != nil {
			t.Fatal(err)
		}
		for _, j := range workflow.Jobs {
			all = append(all, j.Steps[len(j.Steps)-1].With)
		}
	}
	return all
}

// TestPage: the page has a workflow for each kind, with inputs that there are; each has its command run.
func TestPage(t *testing.T) {
	m := readAction(t)
	commands := map[string]string{"authorizer": "certify", "proxy": "deputy", "cluster": "run"}
	for _, with := range exampleInputs(t) {
		for name := range with {
			if _, isKnown := m.Inputs[name]; !isKnown {
				t.Errorf("there is no input %s", name)
			}
		}
		kind := with["kind"]
		delete(with, "command") // nothing of the page's is there to be started
		if kind == "authorizer" {
			with["certificate-authority"] = actionFile
		}
		out := perform(t, with, 0)
		if want := "authzconf " + commands[kind]; !strings.HasPrefix(out.called, want) || out.code != 0 {
			t.Errorf("%s: exit code %d, called %q (expected %s); %s", kind, out.code, out.called, want, out.stderr)
		}
		delete(commands, kind)
	}
	if len(commands) > 0 {
		t.Errorf("there is no workflow for %v", slices.Sorted(maps.Keys(commands)))
	}
}

// performed is what came of a step.
type performed struct {
	code                   int
	called, stderr, output string
}

// standIn is a program in place of authzconf: it writes how it was called, and a report unless it is told of bad usage.
const standIn = `#!/usr/bin/env bash
printf '%s\n' "authzconf $*" >>"$CALLED"
[ "$1" != verify ] || { echo "outcome: passed"; exit "$STAND_IN_CODE"; }
for argument; do
  case $argument in --report-dir=*) folder=${argument#*=} ;; esac
done
[ "$STAND_IN_CODE" = 2 ] || { mkdir -p "$folder"; echo summary >"$folder/summary.md"; echo "kind: Report" >"$folder/report.yaml"; }
exit "$STAND_IN_CODE"
`

// perform runs the script of the step that runs authzconf, with the environment that action.yml gives it for these inputs.
func perform(t *testing.T, with map[string]string, code int) performed {
	t.Helper()
	m, work := readAction(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "authzconf"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	environment := []string{
		"PATH=" + work + ":" + os.Getenv("PATH"),
		"RUNNER_TEMP=" + work,
		"GITHUB_OUTPUT=" + filepath.Join(work, "output"),
		"CALLED=" + filepath.Join(work, "called"),
		fmt.Sprintf("STAND_IN_CODE=%d", code),
	}
	i := slices.IndexFunc(m.Runs.Steps, func(s step) bool { return s.ID == "run" })
	for variable, expression := range m.Runs.Steps[i].Env {
		name := input.FindStringSubmatch(expression)[1]
		value, isGiven := with[name]
		if !isGiven {
			value = m.Inputs[name].Default
		}
		if name == "report-dir" {
			value = filepath.Join(work, "report")
		}
		environment = append(environment, variable+"="+value)
	}
	c := exec.CommandContext(t.Context(), "./run")
	c.Env = environment
	var stderr bytes.Buffer
	c.Stderr = &stderr
	_ = c.Run()
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(work, name))
		return strings.ReplaceAll(string(text), work, "WORK")
	}
	return performed{code: c.ProcessState.ExitCode(), called: read("called"), stderr: stderr.String(), output: read("output")}
}

// TestRun: what authzconf is called with, and what ends with one line and exit code 2.
func TestRun(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	// The authorizer writes its kubeconfig only when it has started.
	start := fmt.Sprintf(
		"echo 'clusters: [{name: webhook, cluster: {server: \"https://%s/authorize\"}}]' >%s; sleep 60 & wait",
		listener.Addr(),
		kubeconfig,
	)
	people := "alice=header:X-User: alice\r\n\n bob=header:X-User: bob\n"
	for name, c := range map[string]struct {
		with   map[string]string
		ends   int
		code   int
		called string
		stderr string
	}{
		"authorizer": {map[string]string{"kind": "authorizer", "kubeconfig": "w.kubeconfig", "policy-hook": "./load it", "seed": "7", "level": "core", "vendor": "Acme", "product": "Gate house", "product-version": "2"}, 0, 0,
			"authzconf certify --authorizer-kubeconfig=w.kubeconfig --policy-hook=./load it --vendor=Acme --product=Gate house --product-version=2 --level=core --seed=7 --report-dir=WORK/report\n", ""},
		"authorizer that is started": {map[string]string{"kind": "authorizer", "kubeconfig": kubeconfig, "command": start}, 0, 0,
			"authzconf certify --authorizer-kubeconfig=" + kubeconfig + " --report-dir=WORK/report\n", ""},
		"authorizer that ends at once": {map[string]string{"kind": "authorizer", "kubeconfig": "none", "command": "exit 3"}, 0, 2, "", "error: command: it has ended before its address answered\n"},
		"proxy": {map[string]string{"kind": "proxy", "url": "http://127.0.0.1:1", "identities": people, "command": "exec ./proxy $(pwd)", "arguments": "--pairs=10\n--parts=attacks"}, 0, 0,
			"authzconf deputy --proxy=http://127.0.0.1:1 --proxy-command=exec ./proxy $(pwd) --identity=alice=header:X-User: alice --identity= bob=header:X-User: bob --report-dir=WORK/report --pairs=10 --parts=attacks\n", ""},
		"cluster": {map[string]string{"kind": "cluster", "kubeconfig": "admin.kubeconfig", "level": "core"}, 0, 0,
			"authzconf run --provider=existing --kubeconfig=admin.kubeconfig --level=core --report-dir=WORK/report\n", ""},
		"a failure":              {map[string]string{"kind": "cluster", "kubeconfig": "admin.kubeconfig"}, 1, 1, "authzconf run --provider=existing --kubeconfig=admin.kubeconfig --report-dir=WORK/report\n", ""},
		"nothing known":          {map[string]string{"kind": "cluster", "kubeconfig": "admin.kubeconfig"}, 3, 3, "authzconf run --provider=existing --kubeconfig=admin.kubeconfig --report-dir=WORK/report\n", ""},
		"bad usage":              {map[string]string{"kind": "cluster", "kubeconfig": "admin.kubeconfig"}, 2, 2, "authzconf run --provider=existing --kubeconfig=admin.kubeconfig --report-dir=WORK/report\n", ""},
		"no kind":                {map[string]string{}, 0, 2, "", "error: kind: '' is not known (expected authorizer, proxy or cluster)\n"},
		"no kubeconfig":          {map[string]string{"kind": "cluster"}, 0, 2, "", "error: kind cluster needs kubeconfig: that of an administrator of the cluster\n"},
		"no authorizer":          {map[string]string{"kind": "authorizer"}, 0, 2, "", "error: kind authorizer needs kubeconfig, or url with certificate-authority\n"},
		"two authorizers":        {map[string]string{"kind": "authorizer", "kubeconfig": "a", "url": "https://b"}, 0, 2, "", "error: url and kubeconfig: expected one of them\n"},
		"no authority":           {map[string]string{"kind": "authorizer", "url": "https://b"}, 0, 2, "", "error: certificate-authority: '' is no file (expected the authority of the webhook's certificate, in PEM)\n"},
		"no people":              {map[string]string{"kind": "proxy", "url": "http://b"}, 0, 2, "", "error: kind proxy needs identities: at least two people, one a line, such as alice=header:X-Forwarded-User: alice\n"},
		"no address":             {map[string]string{"kind": "proxy", "identities": people}, 0, 2, "", "error: kind proxy needs url\n"},
		"an input of other kind": {map[string]string{"kind": "cluster", "kubeconfig": "a", "policy-hook": "x"}, 0, 2, "", "error: policy-hook has no effect on kind cluster\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := perform(t, c.with, c.ends)
			if out.code != c.code || out.called != c.called || out.stderr != c.stderr {
				t.Errorf(
					"exit code %d (expected %d)\ncalled %qexpected %q\nstderr %qexpected %q",
					out.code,
					c.code,
					out.called,
					c.called,
					out.stderr,
					c.stderr,
				)
			}
			hasReport := strings.Contains(out.output, "report-dir=WORK/report\n")
			if wantsReport := c.called != "" && c.code != 2; hasReport != wantsReport {
				t.Errorf("outputs: %q", out.output)
			}
			if c.called != "" && !strings.Contains(out.output, fmt.Sprintf("exit-code=%d\n", c.code)) {
				t.Errorf("outputs: %q", out.output)
			}
		})
	}
}

// TestSummarize: the summary is shown with what verify says, and a report that does not verify fails the step.
func TestSummarize(t *testing.T) {
	for _, code := range []int{0, 1} {
		work := t.TempDir()
		for name, text := range map[string]string{"authzconf": standIn, "summary.md": "# Results\n"} {
			if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.CommandContext(t.Context(), "./summarize")
		c.Env = []string{
			"PATH=" + work + ":" + os.Getenv("PATH"),
			"AUTHZCONF_REPORT_DIR=" + work,
			"GITHUB_STEP_SUMMARY=" + filepath.Join(work, "page"),
			"CALLED=" + filepath.Join(work, "called"),
			fmt.Sprintf("STAND_IN_CODE=%d", code),
		}
		_ = c.Run()
		page, _ := os.ReadFile(filepath.Join(work, "page"))
		if want := "# Results\n\n```\noutcome: passed\n```\n"; string(page) != want || c.ProcessState.ExitCode() != code {
			t.Errorf("exit code %d (expected %d), page %q (expected %q)", c.ProcessState.ExitCode(), code, page, want)
		}
	}
}

// release writes the files of a release whose program says its version, and returns where it is.
func release(t *testing.T, version string, spoil func(sums string) string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), version)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	out := tar.NewWriter(compressed)
	program := "#!/bin/sh\necho authzconf " + version + "\n"
	if err := out.WriteHeader(&tar.Header{Name: "./authzconf", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Close(), compressed.Close()
	name := fmt.Sprintf("authzconf_%s_%s_%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	sums := fmt.Sprintf("%x  %s\n%x  authzconf_other\n", sha256.Sum256(packed.Bytes()), name, sha256.Sum256(nil))
	for file, data := range map[string][]byte{name: packed.Bytes(), "SHA256SUMS": []byte(spoil(sums))} {
		if err := os.WriteFile(filepath.Join(folder, file), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + filepath.Dir(folder)
}

// TestInstall: a release is installed if its checksum is right, and nothing else is.
func TestInstall(t *testing.T) {
	untouched := func(sums string) string { return sums }
	for name, c := range map[string]struct {
		version, released string
		spoil             func(string) string
		code              int
		want              string
	}{
		"a release":        {"v1.2.3", "v1.2.3", untouched, 0, "authzconf v1.2.3\n"},
		"a pre-release":    {"v1.2.3-rc.1", "v1.2.3-rc.1", untouched, 0, "authzconf v1.2.3-rc.1\n"},
		"another digest":   {"v1.2.3", "v1.2.3", func(sums string) string { return strings.Repeat("0", 64) + sums[64:] }, 2, "is not what SHA256SUMS of v1.2.3 says"},
		"not in the list":  {"v1.2.3", "v1.2.3", func(string) string { return "" }, 2, "is not what SHA256SUMS of v1.2.3 says"},
		"no such release":  {"v9.9.9", "v1.2.3", untouched, 2, "of v9.9.9 cannot be downloaded (is there such a release?)"},
		"not a release":    {"latest", "v1.2.3", untouched, 2, "version: latest is not a release (expected one such as v0.1.0, or source)"},
		"a path in a name": {"v1.2.3/../x", "v1.2.3", untouched, 2, "is not a release"},
	} {
		t.Run(name, func(t *testing.T) {
			code, said, isInstalled := install(t, c.version, release(t, c.released, c.spoil))
			if code != c.code || !strings.Contains(said, c.want) {
				t.Errorf("exit code %d (expected %d), %q is not in %s", code, c.code, c.want, said)
			}
			if isInstalled != (c.code == 0) {
				t.Errorf("installed: %v", isInstalled)
			}
		})
	}
}

// install runs the script that installs a version from where releases are.
func install(t *testing.T, version, releases string) (code int, said string, isInstalled bool) {
	t.Helper()
	work := t.TempDir()
	c := exec.CommandContext(t.Context(), "./install")
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"AUTHZCONF_VERSION=" + version,
		"RUNNER_TEMP=" + work,
		"GITHUB_PATH=" + filepath.Join(work, "path"),
		"AUTHZCONF_RELEASES=" + releases,
	}
	out, _ := c.CombinedOutput()
	_, err := os.Stat(filepath.Join(work, "authzconf-bin", "authzconf"))
	return c.ProcessState.ExitCode(), string(out), err == nil
}
