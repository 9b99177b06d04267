package pipelines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fake stands for authzconf, and for make. CODES has the exit codes of its commands, such as "run=3"; HANG names a
// command that only a signal ends; without REPORTS it leaves none.
const fake = `#!/usr/bin/env bash
code=0 dir=
for pair in $CODES; do
  [[ ${pair%=*} == "$1" ]] && code=${pair#*=}
done
for ((i = 1; i <= $#; i++)); do
  case ${!i} in
    --report-dir) j=$((i + 1)) && dir=${!j} ;;
    KIND_REPORT=*) dir=${!i#KIND_REPORT=} ;;
  esac
done
echo "called: $*"
if [[ $HANG == "$1" ]]; then
  trap 'code=3' TERM
  sleep 60 &
  echo hangs
  wait
  kill $!
fi
if [[ -n $dir && -n $REPORTS ]]; then
  mkdir -p "$dir"
  echo '<testsuites/>' >"$dir/junit.xml"
  echo 'kind: Report' >"$dir/report.yaml"
fi
exit "$code"
`

// started and finished are the two files as Prow's own programs write and TestGrid reads them
// (metadata/job.go of github.com/GoogleCloudPlatform/testgrid); what is deprecated is left out, but
// for the result, which Prow still writes.
type (
	started struct {
		Timestamp  int64             `json:"timestamp"`
		Pull       string            `json:"pull,omitempty"`
		Repos      map[string]string `json:"repos,omitempty"`
		RepoCommit string            `json:"repo-commit,omitempty"`
	}
	finished struct {
		Timestamp *int64   `json:"timestamp"`
		Passed    *bool    `json:"passed"`
		Result    string   `json:"result"`
		Metadata  metadata `json:"metadata"`
	}
	// metadata is the pipelines' own: in Prow's format values are texts, or maps of texts.
	metadata struct {
		Outcome  string            `json:"outcome"`
		ExitCode string            `json:"exit-code"`
		Steps    map[string]string `json:"steps"`
	}
)

// decorated is a pipeline that runs the fake, in Prow's layout.
func decorated(t *testing.T, pipeline string, env ...string) (c *exec.Cmd, build string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "authzconf")
	if err := os.WriteFile(program, []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	build = filepath.Join(t.TempDir(), "build")
	c = exec.CommandContext(t.Context(), "prow/decorate", "./"+pipeline, build)
	c.Env = append(os.Environ(), "AUTHZCONF="+program, "MAKE="+program, "KIND_READY="+program, "CODES=", "HANG=", "REPORTS=yes")
	c.Env = append(c.Env, env...)
	return c, build
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

func strict(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, data)
	}
}

// files are all files of a folder, which Prow would upload.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all = append(all, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOnlyZeroPasses runs the gate with each exit code of authzconf.
func TestOnlyZeroPasses(t *testing.T) {
	for _, test := range []struct {
		env     string
		code    int
		outcome string
	}{
		{"CODES=", 0, "passed"},
		{"CODES=run=1", 1, "failed"},
		{"CODES=upgrade=1", 1, "failed"},
		{"CODES=verify=1", 1, "failed"},
		{"CODES=run=2", 2, "usage"},
		{"CODES=upgrade=3", 3, "invalid"},
		{"CODES=run=137", 3, "invalid"},
		{"CODES=run=3 upgrade=1", 1, "failed"},
		{"CODES=run=1 upgrade=3", 1, "failed"},
		{"CODES=run=3 upgrade=2", 3, "invalid"},
		{"CODES=run=2 upgrade=3", 3, "invalid"},
		{"REPORTS=", 3, "invalid"},
		{"AUTHZCONF=/nowhere/authzconf", 3, "invalid"},
	} {
		t.Run(test.env, func(t *testing.T) {
			t.Parallel()
			c, build := decorated(t, "pull-request", test.env)
			out, err := c.CombinedOutput()
			if code := exitCode(t, err); code != test.code {
				t.Errorf("exit code %d, want %d\n%s", code, test.code, out)
			}
			var end finished
			strict(t, filepath.Join(build, "finished.json"), &end)
			if end.Passed == nil || *end.Passed != (test.code == 0) {
				t.Errorf("passed: %v", end.Passed)
			}
			if want := map[bool]string{true: "SUCCESS", false: "FAILURE"}[test.code == 0]; end.Result != want {
				t.Errorf("result %s, want %s", end.Result, want)
			}
			if m := end.Metadata; m.Outcome != test.outcome || m.ExitCode != fmt.Sprint(test.code) {
				t.Errorf("metadata %+v, want %s", m, test.outcome)
			}
			if warned := strings.Contains(string(out), "this is not a pass"); warned != (test.code >= 2) {
				t.Errorf("says that it is not a pass: %v\n%s", warned, out)
			}
		})
	}
}

// TestLayout is about what is left for Prow, and that nothing ends early after a failure.
func TestLayout(t *testing.T) {
	report := func(name string) []string {
		return []string{"artifacts/junit_" + name + ".xml", "artifacts/" + name + "/junit.xml", "artifacts/" + name + "/report.yaml"}
	}
	always := []string{"artifacts/metadata.json", "artifacts/steps.md", "build-log.txt", "finished.json", "started.json"}
	paths, _ := filepath.Glob("../paths/*.yaml")
	release := slices.Concat(
		always,
		report("matrix"),
		report("granular-status"),
		report("granular-status-off"),
		[]string{"artifacts/ga.md"},
	)
	steps := []string{
		"matrix",
		"matrix-verify",
		"granular-status",
		"granular-status-verify",
		"granular-status-off",
		"granular-status-off-verify",
		"kind-ready",
		"any-cluster",
		"ga",
	}
	for _, name := range []string{"kind", "kind-nodes-1.34", "kind-nodes-1.35", "kind-nodes-1.36", "kind-control-planes", "kind-upgrade", "kind-high-availability", "kind-kill", "kind-storm-1.35", "kind-storm-1.36", "kind-storm-1.37", "load-million"} {
		release = slices.Concat(release, report(name))
		steps = append(steps, name, name+"-verify")
	}
	for _, p := range paths {
		if strings.HasSuffix(p, "-as-printed.yaml") {
			continue
		}
		name := "upgrade-" + strings.TrimSuffix(filepath.Base(p), ".yaml")
		release = slices.Concat(release, report(name))
		steps = append(steps, name, name+"-verify")
	}
	for _, test := range []struct {
		pipeline     string
		files, steps []string
	}{
		{"pull-request", slices.Concat(always, report("run"), report("upgrade")), []string{"run", "run-verify", "upgrade", "upgrade-verify"}},
		{"release", release, steps},
		{"nightly", slices.Concat(always, []string{"artifacts/explore/junit.xml", "artifacts/explore/report.yaml"}, report("load-thin")), []string{"test", "explore", "load-thin", "load-thin-verify", "next-release", "arguments", "server-coverage", "upstream-e2e", "upstream-patches", "mutants"}},
	} {
		t.Run(test.pipeline, func(t *testing.T) {
			begin := time.Now().Unix()
			c, build := decorated(t, test.pipeline, "CODES=run=1 mutants=1")
			out, err := c.CombinedOutput()
			if code := exitCode(t, err); code != 1 {
				t.Errorf("exit code %d\n%s", code, out)
			}
			got := files(t, build)
			slices.Sort(got)
			slices.Sort(test.files)
			if !slices.Equal(got, test.files) {
				t.Errorf("files\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.files, "\n"))
			}
			var first started
			var last finished
			strict(t, filepath.Join(build, "started.json"), &first)
			strict(t, filepath.Join(build, "finished.json"), &last)
			if first.Timestamp < begin || *last.Timestamp < first.Timestamp || *last.Timestamp > time.Now().Unix() {
				t.Errorf("begun %d, started %d, finished %d", begin, first.Timestamp, *last.Timestamp)
			}
			times, _ := os.ReadFile(filepath.Join(build, "artifacts", "steps.md"))
			for _, s := range test.steps {
				if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(s) + ` \| \d+ \| \d+ \| [0-9.]* \|$`).Match(times) {
					t.Errorf("nothing says how long %s took:\n%s", s, times)
				}
				if _, ok := last.Metadata.Steps[s]; !ok {
					t.Errorf("no step %s in %v", s, last.Metadata.Steps)
				}
			}
			if len(last.Metadata.Steps) != len(test.steps) {
				t.Errorf("steps %v, want %v", last.Metadata.Steps, test.steps)
			}
			if log, _ := os.ReadFile(filepath.Join(build, "build-log.txt")); string(log) != string(out) {
				t.Errorf("the log is not what was printed: %s\n%s", log, out)
			}
		})
	}
}

// TestNoNodes: where there can be no nodes, one step says so, and the others are run.
func TestNoNodes(t *testing.T) {
	c, build := decorated(t, "release", "CODES=1.34=2")
	out, err := c.CombinedOutput()
	if code := exitCode(t, err); code != 2 {
		t.Errorf("exit code %d, want 2\n%s", code, out)
	}
	var end finished
	strict(t, filepath.Join(build, "finished.json"), &end)
	if steps := end.Metadata.Steps; steps["kind-ready"] != "2" || steps["matrix"] != "0" || steps["load-million"] != "0" {
		t.Errorf("steps %v", steps)
	}
	for step := range end.Metadata.Steps {
		if strings.HasPrefix(step, "kind-") && step != "kind-ready" {
			t.Errorf("the step %s was run without nodes", step)
		}
	}
}

// TestChosenSteps: of a pipeline some steps can be run alone, each with its verification.
func TestChosenSteps(t *testing.T) {
	c, build := decorated(t, "release", "STEPS=^(kind-kill|upgrade-ha)")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "only the steps were run") {
		t.Fatalf("%v\n%s", err, out)
	}
	var end finished
	strict(t, filepath.Join(build, "finished.json"), &end)
	want := []string{
		"kind-kill",
		"kind-kill-verify",
		"upgrade-ha-1.35-1.36",
		"upgrade-ha-1.35-1.36-verify",
		"upgrade-ha-gate",
		"upgrade-ha-gate-verify",
	}
	if got := slices.Sorted(maps.Keys(end.Metadata.Steps)); !slices.Equal(got, want) {
		t.Errorf("steps %v, want %v", got, want)
	}
}

// TestNoGo: without Go, git or make a pipeline says so in one line.
func TestNoGo(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"mkdir", "dirname", "ls"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), bash, "./pull-request", filepath.Join(t.TempDir(), "artifacts"))
	c.Env = []string{"PATH=" + bin}
	out, err := c.CombinedOutput()
	code := exitCode(t, err)
	if code != 2 || strings.Count(string(out), "\n") != 1 ||
		!strings.Contains(string(out), "there is no program go") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestInterrupted: a pipeline that Prow ends at a timeout ends its step, begins no other, and has not
// passed.
func TestInterrupted(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c, build := decorated(t, "pull-request", "HANG=run")
			var out bytes.Buffer
			c.Stderr = &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			awaitLog(t, build, "hangs")
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code := exitCode(t, c.Wait()); code != 3 {
				t.Errorf("exit code %d, want 3\n%s", code, &out)
			}
			var end finished
			strict(t, filepath.Join(build, "finished.json"), &end)
			if *end.Passed || end.Result != "ABORTED" || end.Metadata.Outcome != "invalid" {
				t.Errorf("finished %+v", end)
			}
			if log, _ := os.ReadFile(filepath.Join(build, "build-log.txt")); strings.Contains(string(log), "upgrade") {
				t.Errorf("another step was begun:\n%s", log)
			}
		})
	}
}

// TestInterruptedTarget: when a pipeline is ended, so is all that make has started, and the pipeline waits for it.
func TestInterruptedTarget(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "make")
	const below = `#!/usr/bin/env bash
bash -c 'trap "sleep 0.5; echo cleaned >$CLEANED; exit 3" TERM; echo hangs; while :; do sleep 0.1; done; true'
`
	if err := os.WriteFile(program, []byte(below), 0o755); err != nil {
		t.Fatal(err)
	}
	cleaned := filepath.Join(dir, "cleaned")
	c, build := decorated(t, "release", "STEPS=^kind$", "MAKE="+program, "CLEANED="+cleaned)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, build, "hangs")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, c.Wait()); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("what make had started was not waited for: %v", err)
	}
}

// awaitLog waits until a text is in the log of a pipeline.
func awaitLog(t *testing.T, build, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		log, _ := os.ReadFile(filepath.Join(build, "build-log.txt"))
		if strings.Contains(string(log), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has no %q:\n%s", text, log)
		}
	}
}

// TestOldResults: what lies in a folder is not taken for the results of this run.
func TestOldResults(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "junit_run.xml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"./pull-request", dir}, {"./release", dir}, {"./nightly", dir}, {"prow/decorate", "./pull-request", dir}, {"./pull-request"}} {
		c := exec.CommandContext(t.Context(), args[0], args[1:]...)
		c.Env = append(os.Environ(), "AUTHZCONF=/nowhere/authzconf", "ARTIFACTS=")
		if code := exitCode(t, c.Run()); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
	}
}
