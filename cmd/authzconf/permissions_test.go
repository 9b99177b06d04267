package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
)

// TestMarkersExample checks that the page about KEP-3617 shows marked types, and what the command prints about them. The
// same types give the same list from their schema.
func TestMarkersExample(t *testing.T) {
	t.Chdir("../..")
	const (
		folder = "drafts/granular/markers/testdata/"
		line   = "authzconf granular permissions --types " + folder + "widgets"
	)
	source, err := os.ReadFile(folder + "widgets/v1/types.go")
	if err != nil {
		t.Fatal(err)
	}
	_, types, hasSpec := strings.Cut(string(source), "type WidgetSpec struct {\n")
	types, _, hasEnd := strings.Cut(types, "\n// WidgetStatus")
	if !hasSpec || !hasEnd {
		t.Fatal("the types of the Widget have another order than this test expects")
	}
	table := permissionsOutput(t, strings.Fields(line)[3:]...)
	docs.ComparePart(t, "docs/granular-kep.md", "permissions of marked types",
		"```go\ntype WidgetSpec struct {\n"+types+"```\n\n```console\n$ "+line+"\n"+table+"```\n", *update)
	if schema := permissionsOutput(t, "--crd", folder+"widgets.yaml"); schema != table {
		t.Errorf("from the schema: got\n%s\nwant\n%s", schema, table)
	}
}

// permissionsOutput returns what the command prints.
func permissionsOutput(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(append([]string{"granular", "permissions"}, args...), &stdout, &stderr); code != exitPassed {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}
