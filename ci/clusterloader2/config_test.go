// Package clusterloader2_test holds the configuration to what clusterloader2 reads.
package clusterloader2_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

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

// ExecParams are those of the measurement Exec (exec.go).
type ExecParams struct {
	Timeout Duration `json:"timeout"`
	Command []string `json:"command"`
}

// rendered is the configuration as clusterloader2's template provider makes it: with its functions (those that are used
// here), and with empty lines left out.
func rendered(t *testing.T, params map[string]any) []byte {
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
	parsed, err := template.New("config.yaml").Option("missingkey=default").Funcs(functions).ParseFiles("config.yaml")
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

func read(t *testing.T, params map[string]any) (c Config, command []string, queries []GenericQuery) {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict(rendered(t, params))
	if err != nil {
		t.Fatal(err)
	}
	strictly(t, data, &c)
	var order []string
	for _, step := range c.Steps {
		if len(step.Phases) > 0 || len(step.Measurements) == 0 {
			t.Errorf("%s has no measurements", step.Name)
		}
		for _, m := range step.Measurements {
			if m.Identifier == "" {
				t.Errorf("%s has a measurement without identifier", step.Name)
			}
			switch m.Method {
			case "Exec":
				var p ExecParams
				paramsOf(t, m, &p)
				command = p.Command
				order = append(order, "storm")
			case "GenericPrometheusQuery":
				var p StartParams
				paramsOf(t, m, &p)
				if p.MetricName == "" || p.MetricVersion == "" || p.Unit == "" { // its Validate
					t.Errorf("%s lacks something: %+v", m.Identifier, p)
				}
				order = append(order, p.Action+" "+m.Identifier)
				if p.Action == "gather" {
					queries = append(queries, p.Queries...)
				}
			case "APIResponsivenessPrometheus":
				order = append(order, m.Params["action"].(string)+" "+m.Identifier)
			default:
				t.Errorf("%s is a method that nobody looked up", m.Method)
			}
		}
	}
	want := []string{"start Latency", "start Impersonation", "start Authorization", "storm", "gather Latency", "gather Impersonation", "gather Authorization"}
	if !slices.Equal(order, want) {
		t.Errorf("in the order %q", order)
	}
	return c, command, queries
}

func TestConfig(t *testing.T) {
	c, command, queries := read(t, nil)
	if c.Name == "" || c.Namespace.Number < 1 {
		t.Errorf("%+v", c)
	}
	if want := "authzconf load --provider=existing --authorizer=rbac --counts --i-understand --kubeconfig=${KUBECONFIG} --profile=one-cluster --nodes=1000 --shards=4 --report-dir=authzconf-load"; strings.Join(command, " ") != want {
		t.Errorf("runs %q", command)
	}
	_, command, _ = read(t, map[string]any{"CL2_AUTHZCONF": "/bin/authzconf", "CL2_AUTHZCONF_NODES": 5000, "CL2_AUTHZCONF_IMAGE": "registry/authzconf:v1"})
	if line := strings.Join(command, " "); !strings.HasPrefix(line, "/bin/authzconf load ") || !strings.Contains(line, "--nodes=5000") || !strings.Contains(line, "--image=registry/authzconf:v1") {
		t.Errorf("runs %q", command)
	}
	known := []string{verdicts.AttemptsMetric, verdicts.AuthorizationsMetric, "apiserver_authorization_webhook_duration_seconds_bucket", "apiserver_flowcontrol_rejected_requests_total"}
	for _, q := range queries {
		for _, name := range regexp.MustCompile(`apiserver_[a-z_]+`).FindAllString(q.Query, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s asks for %s", q.Name, name)
			}
		}
	}
}

// TestQueries has Prometheus' own tool read the queries.
func TestQueries(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: put it into the PATH, PATH=$(ci/prometheus):$PATH")
	}
	_, _, queries := read(t, nil)
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
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const nobody = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: x}}]}`
	if err := os.WriteFile(kubeconfig, []byte(nobody), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, says string }{
		"as it is":           {"", "", "Dry run mode enabled, exiting after dumping"},
		"an unknown measure": {"method: Exec", "method: Execute", "measurement method is not registered"},
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
