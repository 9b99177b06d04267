package pipelines

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeDocker stands for a Docker engine that has the images whose names are in the folder IMAGES, and pulls those in PULLED.
const fakeDocker = `#!/usr/bin/env bash
name() { echo "${1//[\/:]/_}"; }
case "$1 $2" in
  "version "*) echo 28.0 ;;
  "image inspect") [ -f "$IMAGES/$(name "$3")" ] ;;
  "pull "*) [[ " $PULLED " == *" $3 "* ]] && : >"$IMAGES/$(name "$3")" ;;
esac
`

// TestNodeImage: where kindest/node is there or can be pulled, nothing is built, and nobody has to be root.
func TestNodeImage(t *testing.T) {
	const official = "kindest/node:v1.37.1"
	for name, tc := range map[string]struct {
		minor, had, pulled string
		want, problem      string
	}{
		"is there":        {minor: "1.37", had: official, want: official},
		"can be pulled":   {minor: "1.37", pulled: official, want: official},
		"no such minor":   {minor: "1.2", problem: "there is no image of Kubernetes 1.2"},
		"no minor at all": {problem: "usage: image MINOR"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, images := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(fakeDocker), 0o755); err != nil {
				t.Fatal(err)
			}
			if tc.had != "" {
				file := strings.NewReplacer("/", "_", ":", "_").Replace(tc.had)
				if err := os.WriteFile(filepath.Join(images, file), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.CommandContext(t.Context(), "../kind-node/image", tc.minor)
			c.Env = append(
				os.Environ(),
				"PATH="+bin+":"+os.Getenv("PATH"),
				"DOCKER_HOST=tcp://engine",
				"IMAGES="+images,
				"PULLED="+tc.pulled,
			)
			var problems strings.Builder
			c.Stderr = &problems
			out, err := c.Output()
			if got := strings.TrimSpace(string(out)); got != tc.want || !strings.Contains(problems.String(), tc.problem) {
				t.Errorf("got %q, want %q; %s", got, tc.want, problems.String())
			}
			ended, _ := errors.AsType[*exec.ExitError](err)
			if refused := ended != nil && ended.ExitCode() == 2; refused != (tc.problem != "") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
