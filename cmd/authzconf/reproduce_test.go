package main

import (
	"bytes"
	"flag"
	"os"
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

// TestReproduced tries each finding on each version, and wants to see what was seen before. What depends on time is seen
// in some runs only.
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
				var out bytes.Buffer
				code := run([]string{"reproduce", f.ID, "--kubernetes", release.Minor}, &out, &out)
				got := map[int]findings.Seen{exitPassed: findings.Happens, exitFailed: findings.Gone, exitInvalid: findings.Unclear}[code]
				if strings.Contains(out.String(), "could not be tried on Kubernetes") {
					got = "not there"
				}
				t.Logf("%s, code %d\n%s", got, code, &out)
				if want := file.Seen[f.ID][release.Minor]; !*update && string(got) != want && (f.Path == "" || got == findings.Gone) {
					t.Errorf("%q, and %q before", got, want)
				}
				if file.Seen[f.ID] == nil {
					file.Seen[f.ID] = seen{}
				}
				file.Seen[f.ID][release.Minor], file.Servers[release.Minor] = string(got), release.Version
			})
			if raw, err := yaml.Marshal(file); err != nil || *update && os.WriteFile(triedFile, append([]byte(triedHead), raw...), 0o644) != nil {
				t.Fatalf("%s cannot be written (%v)", triedFile, err)
			}
		}
	}
}
