package main

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/verdicts/findings"
)

var update = flag.Bool("update", false, "write what is seen of each finding on each version, and the examples of docs")

// triedFile has what was seen; the index of docs/findings is made from it.
const triedFile = "../../verdicts/findings/tried_test.yaml"

const triedHead = `# What authzconf reproduce says of each finding, by its exit code ("not there": the version does not have what it is
# about). go test ./cmd/authzconf -run TestReproduced -timeout 1h tries each again, and with -update writes this file.
`

// TestReproduced tries each finding on each version, and compares the result with the recorded one. A finding that
// depends on timing shows only in some runs.
func TestReproduced(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts two control planes for each finding and version")
	}
	all, err := findings.Load()
	if err != nil {
		t.Fatal(err)
	}
	type seen map[string]string // by minor
	file := struct {
		Servers seen            `json:"servers"`
		Seen    map[string]seen `json:"seen"`
	}{seen{}, map[string]seen{}}
	raw, err := os.ReadFile(triedFile)
	if err == nil {
		err = yaml.Unmarshal(raw, &file)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	for _, release := range local.Releases() {
		for _, f := range all {
			t.Run(release.Minor+"/"+f.ID, func(t *testing.T) {
				if !*update && file.Servers[release.Minor] == "" {
					t.Skipf("no finding was tried on %s: -update does", release)
				}
				got := tryFinding(t, f, release.Minor)
				if !*update {
					compareSeen(t, f, got, file.Seen[f.ID][release.Minor])
				}
				if file.Seen[f.ID] == nil {
					file.Seen[f.ID] = seen{}
				}
				file.Seen[f.ID][release.Minor], file.Servers[release.Minor] = string(got), release.Version
			})
			raw, err := yaml.Marshal(file)
			if err != nil ||
				*update && os.WriteFile(triedFile, append([]byte(triedHead), raw...), 0o644) != nil {
				t.Fatalf("%s cannot be written (%v)", triedFile, err)
			}
		}
	}
}

// tryFinding runs authzconf reproduce, and returns what its exit code means.
func tryFinding(t *testing.T, f findings.Finding, version string) findings.Occurrence {
	t.Helper()
	var out bytes.Buffer
	code := run([]string{"reproduce", f.ID, "--kubernetes", version}, &out, &out)
	got := map[int]findings.Occurrence{exitPassed: findings.Happens, exitFailed: findings.Gone, exitInvalid: findings.Unclear}[code]
	if strings.Contains(out.String(), "could not be tried on Kubernetes") {
		got = "not there"
	}
	t.Logf("%s, code %d\n%s", got, code, &out)
	return got
}

// compareSeen compares the result with the recorded one. A finding that depends on timing may not show in a run, but
// may never be gone.
func compareSeen(t *testing.T, f findings.Finding, got findings.Occurrence, want string) {
	t.Helper()
	dependsOnTime := f.Path != ""
	if dependsOnTime && got != findings.Gone {
		return
	}
	if string(got) != want {
		t.Errorf("%q, and %q before", got, want)
	}
}

// newerFile has what is known of findings on versions that are newer than the pinned ones.
const newerFile = "../../verdicts/findings/newer_test.yaml"

// TestReproducedNewer tries each finding on the version that NEWER names, which is newer than the pinned one of its
// minor, and compares the result with the recorded one. With -update it records the result.
func TestReproducedNewer(t *testing.T) {
	version := os.Getenv("NEWER")
	if version == "" {
		t.Skip("NEWER names no version of Kubernetes")
	}
	raw, err := os.ReadFile(newerFile)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	releases, _ := file["releases"].([]any)
	i := slices.IndexFunc(releases, func(r any) bool { return r.(map[string]any)["version"] == version })
	if i < 0 {
		t.Fatalf("%s does not have the version %s", newerFile, version)
	}
	release := releases[i].(map[string]any)
	seen, _ := release["seen"].(map[string]any)
	if seen == nil {
		seen = map[string]any{}
	}
	all, err := findings.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		t.Run(f.ID, func(t *testing.T) {
			got := tryFinding(t, f, version)
			if want, _ := seen[f.ID].(string); !*update {
				compareSeen(t, f, got, want)
			}
			seen[f.ID] = string(got)
		})
	}
	if !*update {
		return
	}
	release["seen"] = seen
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(raw, []byte("releases:"))
	if err := os.WriteFile(newerFile, append(head, text...), 0o644); err != nil {
		t.Fatal(err)
	}
}
