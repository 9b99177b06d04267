package pipelines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toolsOfInstall are the programs that ci/kind-node/install calls, beside those that stand-ins take the place of.
var toolsOfInstall = []string{"bash", "dirname", "id", "sed", "sort", "tail", "timeout"}

// TestInstallEngine has the packages of an engine installed where no engine answers, also if there is a client of one.
func TestInstallEngine(t *testing.T) {
	if exec.CommandContext(t.Context(), "bash", "-c", ". ../kind-node/lib.sh && can_start").Run() != nil {
		t.Skip("no engine can be started here: that takes root and a container that is privileged")
	}
	const answering, silent = "#!/bin/bash\necho 28.0\n", "#!/bin/bash\nexit 1\n"
	for name, c := range map[string]struct {
		docker, host string
		want         bool
	}{
		"an engine answers":                {docker: answering},
		"a client, and no engine":          {docker: silent, want: true},
		"no client":                        {want: true},
		"a client of an engine elsewhere":  {docker: silent, host: "tcp://engine"},
		"an engine elsewhere that answers": {docker: answering, host: "tcp://engine"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, called := t.TempDir(), filepath.Join(t.TempDir(), "called")
			for _, tool := range toolsOfInstall {
				linkTool(t, bin, tool)
			}
			writeTool(t, bin, "apt-get", "#!/bin/bash\necho \"$*\" >>"+called+"\n")
			if c.docker != "" {
				writeTool(t, bin, "docker", c.docker)
			}
			install := exec.CommandContext(t.Context(), "bash", "../kind-node/install", "engine")
			install.Env = []string{"PATH=" + bin, "HOME=" + bin, "DOCKER_HOST=" + c.host}
			if out, err := install.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			calls, err := os.ReadFile(called)
			if (err == nil) != c.want {
				t.Errorf("installed: %v, want %v", err == nil, c.want)
			}
			if c.want && !strings.Contains(string(calls), "docker.io iptables runc") {
				t.Errorf("it installed %q", calls)
			}
		})
	}
}

func linkTool(t *testing.T, bin, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		err = os.Symlink(path, filepath.Join(bin, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func writeTool(t *testing.T, bin, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
