package pipelines

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// jobs are Prow's job types (pkg/config/jobs.go and pkg/apis/prowjobs/v1/types.go of
// sigs.k8s.io/prow), as far as jobs.yaml uses them: a field that is not here is an error, as it is
// in Prow. Prow's own packages need some thousand others, and an old Kubernetes.
type (
	jobs struct {
		Presubmits  map[string][]job `json:"presubmits"`
		Postsubmits map[string][]job `json:"postsubmits"`
		Periodics   []job            `json:"periodics"`
	}
	job struct {
		Name             string            `json:"name"`
		Cluster          string            `json:"cluster"`
		Annotations      map[string]string `json:"annotations"`
		Decorate         bool              `json:"decorate"`
		DecorationConfig decoration        `json:"decoration_config"`
		Spec             corev1.PodSpec    `json:"spec"`
		AlwaysRun        bool              `json:"always_run"` // presubmits
		Branches         []string          `json:"branches"`   // postsubmits
		Cron             string            `json:"cron"`       // periodics
		ExtraRefs        []ref             `json:"extra_refs"`
	}
	decoration struct {
		Timeout     string `json:"timeout"`
		GracePeriod string `json:"grace_period"`
	}
	ref struct {
		Org     string `json:"org"`
		Repo    string `json:"repo"`
		BaseRef string `json:"base_ref"`
	}
)

// executable says why a command of a pipeline cannot be run in the root of the repository.
func executable(command string) error {
	info, err := os.Stat(filepath.Join("..", "..", command))
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", command)
	}
	return nil
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestProwJobs(t *testing.T) {
	var all jobs
	read(t, "prow/jobs.yaml", &all)
	var names, tabs []string
	check := func(kind string, j job) {
		t.Helper()
		checkJob(t, j)
		tab := j.Annotations["testgrid-tab-name"]
		if slices.Contains(names, j.Name) || slices.Contains(tabs, tab) {
			t.Errorf("%s: the name is taken, or that of its tab %s", j.Name, tab)
		}
		if kind == "presubmit" && !strings.HasPrefix(j.Name, "pull-") {
			t.Errorf("%s: the name of a presubmit begins with pull-", j.Name)
		}
		names, tabs = append(names, j.Name), append(tabs, tab)
		if (kind == "periodic") != (j.Cron != "" && len(j.ExtraRefs) == 1) ||
			j.AlwaysRun != (kind == "presubmit") ||
			(kind == "postsubmit") != (len(j.Branches) > 0) {
			t.Errorf("%s: fields that a %s does not have, or lacks", j.Name, kind)
		}
	}
	for _, j := range all.Presubmits["authzconf/authzconf"] {
		check("presubmit", j)
	}
	for _, j := range all.Postsubmits["authzconf/authzconf"] {
		check("postsubmit", j)
		for ref, want := range map[string]bool{"v0.1.0": true, "v1.20.3-rc.1": true, "main": false, "v2": false} {
			if got := regexp.MustCompile(strings.Join(j.Branches, "|")).MatchString(ref); got != want {
				t.Errorf("%s: runs for %s: %v", j.Name, ref, got)
			}
		}
	}
	for _, j := range all.Periodics {
		check("periodic", j)
		workflow := map[string]string{"ci/pipelines/release": "github/release.yaml", "ci/pipelines/nightly": "github/nightly.yaml"}[j.Spec.Containers[0].Command[0]]
		text, err := os.ReadFile(workflow)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), fmt.Sprintf("cron: %q", j.Cron)) { // which actionlint understands
			t.Errorf("%s: cron %q is not that of %s", j.Name, j.Cron, workflow)
		}
	}
	if len(names) != 4 || len(all.Presubmits)+len(all.Postsubmits) != 2 {
		t.Errorf("jobs %v", names)
	}
}

// TestStrictDecodingSees proves that it can fail; Prow refuses all of these too.
func TestStrictDecodingSees(t *testing.T) {
	good, err := os.ReadFile("prow/jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{"always_run:", "always_runs:"},
		{"grace_period:", "graceperiod:"},
		{"base_ref:", "ref:"},
		{"testgrid-tab-name: nightly", "testgrid-tab-name: [nightly]"},
		{"cluster:", "clusters:"},
		{"periodics:", "presubmits:"},
	} {
		bad := strings.Replace(string(good), edit[0], edit[1], 1)
		if bad == string(good) {
			t.Fatalf("the jobs have no %s", edit[0])
		}
		if err := yaml.UnmarshalStrict([]byte(bad), new(jobs)); err == nil {
			t.Errorf("%s instead of %s is not reported", edit[1], edit[0])
		}
	}
}

// checkJob holds a job to what Prow checks (validateJobBase and validateDecoration in
// pkg/config/config.go), and to files that exist.
func checkJob(t *testing.T, j job) {
	t.Helper()
	if !regexp.MustCompile(`^[A-Za-z0-9-._]{1,63}$`).MatchString(j.Name) {
		t.Errorf("%q is not a name of a job", j.Name)
	}
	if !j.Decorate {
		t.Errorf("%s: without decorate Prow writes no finished.json", j.Name)
	}
	for _, d := range []string{j.DecorationConfig.Timeout, j.DecorationConfig.GracePeriod} {
		if v, err := time.ParseDuration(d); err != nil || v <= 0 {
			t.Errorf("%s: duration %q: %v", j.Name, d, err)
		}
	}
	if len(j.Spec.Containers) != 1 {
		t.Fatalf("%s: %d containers", j.Name, len(j.Spec.Containers))
	}
	c := j.Spec.Containers[0]
	if len(c.Command) != 1 || len(c.Args) != 0 {
		t.Errorf("%s: command %v %v, want a pipeline alone: it finds ARTIFACTS in its environment", j.Name, c.Command, c.Args)
	} else if err := executable(c.Command[0]); err != nil {
		t.Errorf("%s: %v", j.Name, err)
	}
	gomod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "public.ecr.aws/docker/library/golang:" + regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(gomod))[1]; c.Image != want {
		t.Errorf("%s: image %s, want %s", j.Name, c.Image, want)
	}
	checkShared(t, j)
	checkEngine(t, j)
}

// checkEngine wants of a job whose pipeline runs clusters of kind what their nodes need: a privileged container, and a volume
// for the engine's storage, because overlays cannot be laid over a container's own root.
func checkEngine(t *testing.T, j job) {
	t.Helper()
	c := j.Spec.Containers[0]
	pipeline, err := os.ReadFile(filepath.Join("..", "..", c.Command[0]))
	if err != nil {
		t.Fatal(err)
	}
	needsNodes := strings.Contains(string(pipeline), " kind-")
	isPrivileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	if needsNodes != isPrivileged {
		t.Errorf("%s: runs clusters of kind: %v, is privileged: %v", j.Name, needsNodes, isPrivileged)
	}
	if !needsNodes {
		return
	}
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "AUTHZCONF_CACHE" })
	if i < 0 || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == c.Env[i].Value }) {
		t.Errorf("%s: AUTHZCONF_CACHE, with the engine's storage, is not on a volume: %v, %v", j.Name, c.Env, c.VolumeMounts)
	}
}

// checkShared holds a job to what kubernetes/test-infra wants of those that share its clusters and its TestGrid (its
// config/tests/jobs).
func checkShared(t *testing.T, j job) {
	t.Helper()
	if !slices.Contains([]string{"eks-prow-build-cluster", "k8s-infra-prow-build"}, j.Cluster) {
		t.Errorf("%s: cluster %q is not one of the community's build clusters", j.Name, j.Cluster)
	}
	if !strings.HasPrefix(j.Annotations["testgrid-dashboards"], "sig-auth-") { // which puts it into the group sig-auth
		t.Errorf("%s: dashboard %q is not one of SIG Auth", j.Name, j.Annotations["testgrid-dashboards"])
	}
	for _, resources := range []corev1.ResourceList{j.Spec.Containers[0].Resources.Requests, j.Spec.Containers[0].Resources.Limits} {
		if resources.Cpu().IsZero() || resources.Memory().IsZero() ||
			!equality.Semantic.DeepEqual(resources, j.Spec.Containers[0].Resources.Requests) {
			t.Errorf("%s: resources %+v: expected processors and memory, requests equal to limits", j.Name, j.Spec.Containers[0].Resources)
		}
	}
	for _, v := range j.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			t.Errorf("%s: the volume %s claims one of the cluster's", j.Name, v.Name)
		}
	}
	for _, name := range []string{"testgrid-dashboards", "testgrid-tab-name", "description"} {
		if j.Annotations[name] == "" {
			t.Errorf("%s: no annotation %s", j.Name, name)
		}
	}
}

// actionlint checks a workflow against GitHub's schema, the types of its expressions, and the inputs
// of well-known actions. What else may be installed on a machine makes no difference.
func actionlint(t *testing.T, file string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../tools/actionlint/go.mod", "actionlint",
		"-no-color", "-shellcheck=", "-pyflakes=", file)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestWorkflows(t *testing.T) {
	all, _ := filepath.Glob("github/*.yaml")
	if len(all) != 3 {
		t.Errorf("workflows: %v", all)
	}
	for _, file := range all {
		if out, err := actionlint(t, file); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		var w struct {
			Jobs map[string]struct {
				Steps []struct {
					Run string `json:"run"`
				} `json:"steps"`
			} `json:"jobs"`
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, &w); err != nil {
			t.Fatal(err)
		}
		pipelines := 0
		for _, j := range w.Jobs {
			for _, s := range j.Steps {
				command, _, _ := strings.Cut(s.Run, " ")
				if command == "" || command == "cat" {
					continue
				}
				if err := executable(command); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				if strings.HasPrefix(command, "ci/pipelines/") {
					pipelines++
				}
			}
		}
		if pipelines != 1 {
			t.Errorf("%s runs %d pipelines", file, pipelines)
		}
	}
}

// TestActionlintSees proves that the check of the workflows can fail.
func TestActionlintSees(t *testing.T) {
	good, err := os.ReadFile("github/pull-request.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{"timeout-minutes:", "timeout-minute:"},
		{"cache-dependency-path:", "cache-dependencies:"},
		{"runner.arch", "runner.architecture"},
		{"cancelled()", "canceled()"},
		{"ubuntu-24.04", "ubuntu-24.40"},
	} {
		bad := strings.Replace(string(good), edit[0], edit[1], 1)
		if bad == string(good) {
			t.Fatalf("the workflow has no %s", edit[0])
		}
		file := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := actionlint(t, file); err == nil || !strings.Contains(out, edit[1][:len(edit[1])-1]) {
			t.Errorf("%s instead of %s is not reported: %v\n%s", edit[1], edit[0], err, out)
		}
	}
}

// TestActionExamples checks the workflows of docs/github-action.md, and with them action.yml: that GitHub would take both, and
// that inputs fit.
func TestActionExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/github-action.md")
	if err != nil {
		t.Fatal(err)
	}
	action, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d workflows (expected one for each kind)", len(blocks))
	}
	local := strings.ReplaceAll(blocks[0][1], "authzconf/authzconf@main", "./")
	check := func(name, workflow, action, want string) {
		root := t.TempDir() // actionlint knows a repository by its .git, and compares a local action's inputs
		file := filepath.Join(root, ".github/workflows/example.yaml")
		for path, text := range map[string]string{file: workflow, filepath.Join(root, "action.yml"): action, filepath.Join(root, ".git/HEAD"): ""} {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := actionlint(t, file)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v (expected %q)\n%s", name, err, want, out)
		}
	}
	for i, block := range blocks {
		check(fmt.Sprint("workflow ", i), strings.ReplaceAll(block[1], "authzconf/authzconf@main", "./"), string(action), "")
	}
	check("an input that is not there", strings.Replace(local, "seed:", "seeds:", 1), string(action), `input "seeds" is not defined`)
	check("no kind", strings.Replace(local, "kind: authorizer", "", 1), string(action), `missing input "kind"`)
	check("an action that runs nothing", local, strings.Replace(string(action), "using: composite", "using: compost", 1), "compost")
}

// TestNightlyNames wants every name that `make test` leaves to the night to be that of a test or a package: after
// a renaming the gate would run it again, and nobody would know why it takes longer.
func TestNightlyNames(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` *:= (.*)$`).FindSubmatch(makefile)
		if found == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return string(found[1])
	}
	skipped, err := exec.Command("../nightly-tests").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`[a-zA-Z-]+`).FindAllString(string(skipped), -1)
	for _, name := range names {
		_, noScript := os.Stat(filepath.Join("../../cmd/authzconf/testdata", name+".txt"))
		if !strings.Contains(tests.String(), "func "+name+"(") && noScript != nil {
			t.Errorf("ci/nightly-tests.txt: there is neither a test nor a script %s", name)
		}
	}
	for _, list := range []string{"OF_KUBERNETES", "REPEATED"} {
		for _, folder := range regexp.MustCompile(`[a-z/]+[a-z]`).FindAllString(variable(list), -1) {
			if _, err := os.Stat(filepath.Join("../..", folder)); err != nil {
				t.Errorf("%s: %v", list, err)
			}
		}
	}
	nightly, err := os.ReadFile("nightly")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^step \S+ target (\S+)`).FindAllSubmatch(nightly, -1)
	for _, target := range targets {
		if !regexp.MustCompile(`(?m)^` + string(target[1]) + `:`).Match(makefile) {
			t.Errorf("the Makefile has no target %s", target[1])
		}
	}
	if len(targets) == 0 {
		t.Error("the nightly pipeline makes nothing")
	}
	if len(names) < 2 {
		t.Errorf("ci/nightly-tests.txt names only %v", names)
	}
}
