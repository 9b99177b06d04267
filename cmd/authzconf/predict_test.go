package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
)

// predictOutput returns what load predict prints.
func predictOutput(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(append([]string{"load", "predict"}, args...), &stdout, &stderr); code != exitPassed {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// TestPredictExample checks that the example at the top of docs/load.md is what the command prints.
func TestPredictExample(t *testing.T) {
	const line = "authzconf load predict --nodes 5000 --daemonsets 20 --every 30s --api-servers 3 --authorizer webhook"
	answers, _, _ := strings.Cut(predictOutput(t, strings.Fields(line)[3:]...), "\n\n")
	docs.ComparePart(t, "../../docs/load.md", "load predict", "```console\n$ "+line+"\n"+answers+"\n…\n```\n", *update)
}

// TestReadinessReview checks that the figures of docs/load-prr.md are what the command prints, and that its queries ask
// for metrics that API servers have.
func TestReadinessReview(t *testing.T) {
	const page = "../../docs/load-prr.md"
	const args = "--nodes 5000 --every 5s --authorizer webhook"
	answers, _, _ := strings.Cut(predictOutput(t, strings.Fields(args)...), "\n\n")
	docs.ComparePart(t, page, "predicted: "+args, "```console\n$ authzconf load predict "+args+"\n"+answers+"\n…\n```\n", *update)

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile("../../engine/server/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known = append(known, "- apiserver_flowcontrol_rejected_requests_total\n"...)
	names := regexp.MustCompile(`apiserver_[a-z_]+`).FindAllString(string(text), -1)
	for _, name := range names {
		if !strings.Contains(string(known), "- "+strings.TrimSuffix(name, "_bucket")+"\n") {
			t.Errorf("%s asks for %s, which nobody has seen", page, name)
		}
	}
	if len(names) < 8 {
		t.Errorf("%s asks for %d metrics only", page, len(names))
	}
}

// TestPredictFields checks that docs/load-predict.md explains every field of the JSON, and that the file that it shows
// is valid.
func TestPredictFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/load-predict.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- plan file -->\n```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	plan, log := filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "audit.log")
	script, err := os.ReadFile("testdata/predict.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, events, _ := strings.Cut(string(script), "-- audit.log --\n")
	for path, content := range map[string]string{plan: text, log: events} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names := map[string]bool{}
	for _, args := range [][]string{
		{"--file", plan}, {"--nodes", "10", "--name-alone", "--gate", "on", "--rbac", "legacy"}, {"--audit-log", log},
		{"--nodes", "100000", "--every", "10ms"},
	} {
		var v any
		if err := json.Unmarshal([]byte(predictOutput(t, append(args, "-o", "json")...)), &v); err != nil {
			t.Fatal(err)
		}
		collectFields(v, names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/load-predict.md does not say what %s is", name)
		}
	}
	if len(names) < 50 {
		t.Errorf("only %d fields: %v", len(names), names)
	}
}

// collectFields adds the names of all fields of a JSON value. Those of modes are names of workloads, and of modes.
func collectFields(v any, names map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			collectFields(item, names)
		}
	case map[string]any:
		for name, value := range v {
			names[name] = true
			if name != "modes" {
				collectFields(value, names)
			}
		}
	}
}
