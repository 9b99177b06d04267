// Package clusterloader2_test holds the configuration to what clusterloader2 reads.
package clusterloader2_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/verdicts"
)

// StartParams and GenericQuery are those of the measurement GenericPrometheusQuery
// (pkg/measurement/common/generic_query_measurement.go), and the action, which every measurement of Prometheus has.
type (
	StartParams struct {
		Action        string         `json:"action"`
		MetricName    string         `json:"metricName"`
		MetricVersion string         `json:"metricVersion"`
		Queries       []GenericQuery `json:"queries"`
		Unit          string         `json:"unit"`
		Dimensions    []string       `json:"dimensions"`
	}
	GenericQuery struct {
		Name           string   `json:"name"`
		Query          string   `json:"query"`
		Threshold      *float64 `json:"threshold"`
		LowerBound     bool     `json:"lowerBound"`
		RequireSamples bool     `json:"requireSamples"`
	}
)

// PodsParams are those of the measurement WaitForControlledPodsRunning (wait_for_controlled_pods.go), and SleepParams those of
// Sleep (sleep.go).
type (
	PodsParams struct {
		Action           string   `json:"action"`
		APIVersion       string   `json:"apiVersion"`
		Kind             string   `json:"kind"`
		LabelSelector    string   `json:"labelSelector"`
		OperationTimeout Duration `json:"operationTimeout"`
	}
	SleepParams struct {
		Duration Duration `json:"duration"`
	}
)

// render returns a template as clusterloader2's template provider makes it: with its functions (those that are used here).
func render(t *testing.T, file string, params map[string]any) []byte {
	t.Helper()
	functions := template.FuncMap{
		"DefaultParam": func(param, otherwise any) any {
			if param == nil {
				return otherwise
			}
			return param
		},
		"StringSplit": func(s string) []string { return strings.Split(s, ",") },
	}
	parsed, err := template.New(file).Option("missingkey=default").Funcs(functions).ParseFiles(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, params); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func strictly(t *testing.T, data []byte, v any) {
	t.Helper()
	wrong, err := sigsjson.UnmarshalStrict(data, v)
	if err != nil || len(wrong) > 0 {
		t.Fatalf("%s: %v, %v", data, err, wrong)
	}
}

// paramsOf decodes what a measurement is given.
func paramsOf(t *testing.T, m *Measurement, v any) {
	t.Helper()
	data, err := json.Marshal(m.Params)
	if err != nil {
		t.Fatal(err)
	}
	strictly(t, data, v)
}

// suite is what the configuration has, in its order.
type suite struct {
	Config
	order   []string // measurements by action and identifier, and the base names of objects with how many there are
	queries []GenericQuery
	objects []*Object
}

func read(t *testing.T, params map[string]any) (s suite) {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict(render(t, "config.yaml", params))
	if err != nil {
		t.Fatal(err)
	}
	strictly(t, data, &s.Config)
	for _, step := range s.Steps {
		hasPhases, hasMeasurements := len(step.Phases) > 0, len(step.Measurements) > 0
		if hasPhases == hasMeasurements {
			t.Errorf("the step %q has both phases and measurements, or neither", step.Name)
		}
		for _, phase := range step.Phases {
			for _, object := range phase.ObjectBundle {
				s.order = append(s.order, fmt.Sprintf("%d %s", phase.ReplicasPerNamespace, object.ObjectTemplatePath))
				if phase.ReplicasPerNamespace > 0 {
					s.objects = append(s.objects, object)
				}
			}
		}
		for _, m := range step.Measurements {
			s.readMeasurement(t, m)
		}
	}
	return s
}

func (s *suite) readMeasurement(t *testing.T, m *Measurement) {
	t.Helper()
	var action string
	switch m.Method {
	case "Sleep":
		var p SleepParams
		paramsOf(t, m, &p)
		action = "sleep"
	case "WaitForControlledPodsRunning":
		var p PodsParams
		paramsOf(t, m, &p)
		action = p.Action
	case "GenericPrometheusQuery":
		var p StartParams
		paramsOf(t, m, &p)
		if p.MetricName == "" || p.MetricVersion == "" || p.Unit == "" { // its Validate
			t.Errorf("%s lacks something: %+v", m.Identifier, p)
		}
		if action = p.Action; action == "gather" {
			s.queries = append(s.queries, p.Queries...)
		}
	case "APIResponsivenessPrometheus":
		action = m.Params["action"].(string)
	default:
		t.Errorf("%s is a method that nobody looked up", m.Method)
	}
	s.order = append(s.order, action+" "+m.Identifier)
}

func TestConfig(t *testing.T) {
	s := read(t, map[string]any{"CL2_AGENT_DAEMONSETS": 5})
	want := []string{
		"1 clusterrole.yaml", "1 clusterrolebinding.yaml", "5 serviceaccount.yaml",
		"start Latency", "start Impersonation", "start Authorization",
		"start Agents", "5 daemonset.yaml", "gather Agents", "sleep Wait",
		"gather Latency", "gather Impersonation", "gather Authorization",
		"0 clusterrolebinding.yaml", "0 clusterrole.yaml",
	}
	if !slices.Equal(s.order, want) {
		t.Errorf("in the order %q", s.order)
	}
	if s.Name == "" || s.Namespace.Number != 1 || s.Namespace.Prefix+"-1" != s.objects[1].TemplateFillMap["AgentNamespace"] {
		t.Errorf("%+v is not where the agents' permissions are bound", s.Namespace)
	}
	known := []string{
		verdicts.AttemptsMetric,
		verdicts.AuthorizationsMetric,
		"apiserver_authorization_webhook_duration_seconds_bucket",
		"apiserver_flowcontrol_rejected_requests_total",
	}
	for _, q := range s.queries {
		for _, name := range regexp.MustCompile(`apiserver_[a-z_]+`).FindAllString(q.Query, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s asks for %s", q.Name, name)
			}
		}
	}
}

// Every object is one of Kubernetes, field by field, in each mode; and what has to fit together does.
func TestObjects(t *testing.T) {
	for _, mode := range []string{"associated-node", "legacy", "none"} {
		s := read(t, map[string]any{"CL2_AGENT_MODE": mode})
		var account corev1.ServiceAccount
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		var agents appsv1.DaemonSet
		decoded := map[string]any{
			"serviceaccount.yaml":     &account,
			"clusterrole.yaml":        &role,
			"clusterrolebinding.yaml": &binding,
			"daemonset.yaml":          &agents,
		}
		for _, object := range s.objects {
			params := map[string]any{"Name": object.Basename + "-0", "Index": 0, "Namespace": "authzconf-agents-1"}
			maps.Copy(params, object.TemplateFillMap)
			data, err := yaml.YAMLToJSONStrict(render(t, object.ObjectTemplatePath, params))
			if err != nil {
				t.Fatalf("%s: %v", object.ObjectTemplatePath, err)
			}
			strictly(t, data, decoded[object.ObjectTemplatePath])
		}
		if binding.RoleRef.Name != role.Name {
			t.Errorf("the binding is of %s, the role is %s", binding.RoleRef.Name, role.Name)
		}
		pod := agents.Spec.Template
		if pod.Spec.ServiceAccountName != account.Name || pod.Labels["name"] != agents.Spec.Selector.MatchLabels["name"] {
			t.Errorf("the pods are of the account %s and labelled %v", pod.Spec.ServiceAccountName, pod.Labels)
		}
		if args := pod.Spec.Containers[0].Args; !slices.Contains(args, "--mode="+mode) {
			t.Errorf("the agents run with %q", args)
		}
		if verb := role.Rules[0].Verbs[0]; verb != map[string]string{"associated-node": "impersonate:associated-node", "legacy": "impersonate", "none": "list"}[mode] {
			t.Errorf("in the mode %s agents may %s", mode, verb)
		}
	}
}

// placeholder is what clusterloader2 takes out of a template before it looks what kind of object that is (RawToObjects in
// pkg/config/template_provider.go).
var placeholder = regexp.MustCompile(`\{\{.*\}\}`)

// TestTemplatesAreYAML: without its placeholders, which clusterloader2 does not fill in to remove an object, a template is an object
// all the same.
func TestTemplatesAreYAML(t *testing.T) {
	for _, object := range read(t, nil).objects {
		text, err := os.ReadFile(object.ObjectTemplatePath)
		if err != nil {
			t.Fatal(err)
		}
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(placeholder.ReplaceAll(text, nil), &kind); err != nil || kind.Kind == "" {
			t.Errorf("%s: kind %q, %v", object.ObjectTemplatePath, kind.Kind, err)
		}
	}
}

// TestQueries has Prometheus' own tool read the queries.
func TestQueries(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: put it into the PATH, PATH=$(ci/prometheus):$PATH")
	}
	queries := read(t, nil).queries
	var rules []map[string]string
	for _, q := range queries {
		rules = append(rules, map[string]string{"record": "query", "expr": strings.ReplaceAll(q.Query, "%v", "3600s")})
	}
	for _, wrong := range []bool{false, true} {
		if wrong {
			rules[0]["expr"] = "sum by (mode"
		}
		data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput(); (err != nil) != wrong {
			t.Errorf("%s: %v", out, err)
		}
	}
}

// TestClusterLoader has clusterloader2 itself compile the configuration.
func TestClusterLoader(t *testing.T) {
	program := os.Getenv("AUTHZCONF_CLUSTERLOADER")
	if program == "" {
		t.Skip("AUTHZCONF_CLUSTERLOADER names no clusterloader2: README.md says how to build it")
	}
	text, err := os.ReadFile("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil { // the templates are beside the configuration
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const nobody = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: x}}]}`
	if err := os.WriteFile(kubeconfig, []byte(nobody), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, says string }{
		"as it is":           {"", "", "Dry run mode enabled, exiting after dumping"},
		"an unknown measure": {"method: Sleep", "method: Slumber", "measurement method is not registered"},
	} {
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.from, c.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		// It always ends with an error.
		out, _ := exec.CommandContext(t.Context(), program, "--dry-run", "--skip-cluster-verification", "--provider=local", "--nodes=1",
			"--kubeconfig="+kubeconfig, "--testconfig="+file, "--report-dir="+dir).CombinedOutput()
		if !bytes.Contains(out, []byte(c.says)) {
			t.Errorf("%s: %s", name, out)
		}
	}
}
