package kind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

// TestFindProgram checks that the environment decides first, and then the order in which kind looks, and that a program
// is recognized by what it prints.
func TestFindProgram(t *testing.T) {
	for name, tc := range map[string]struct {
		there map[string]string // what the programs print
		named string
		want  string // empty is an error
	}{
		"docker":              {map[string]string{"docker": "Docker version 28.0", "podman": "podman version 5.0"}, "", "docker"},
		"podman alone":        {map[string]string{"podman": "podman version 5.0"}, "", "podman"},
		"docker is a link":    {map[string]string{"docker": "podman version 5.0", "podman": "podman version 5.0"}, "", "podman"},
		"nerdctl before":      {map[string]string{"nerdctl": "nerdctl version 2", "podman": "podman version 5.0"}, "", "nerdctl"},
		"named":               {map[string]string{"docker": "Docker version 28.0"}, "podman", "podman"},
		"named without sense": {map[string]string{"docker": "Docker version 28.0"}, "lxc", ""},
		"none":                {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for program, text := range tc.there {
				if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho "+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			t.Setenv(providerVariable, tc.named)
			p, err := findProgram(t.Context())
			if p.name != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", p.name, err, tc.want)
			}
		})
	}
}

// TestPodmanNetwork checks that subnets are also found where podman prints them.
func TestPodmanNetwork(t *testing.T) {
	found, err := parseNetworks(
		[]byte(`[{"name":"kind","id":"a","subnets":[{"subnet":"fc00::/64"},{"subnet":"10.89.0.0/24","gateway":"10.89.0.1"}]}]`),
	)
	if err != nil {
		t.Fatal(err)
	}
	n, err := found[0].parse()
	if err != nil || n.Gateway.String() != "10.89.0.1" {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestBalancerImage checks that the image that is checked before a cluster is created is the one that kind will ask
// for.
func TestBalancerImage(t *testing.T) {
	dir := kindModule(t)
	source, err := os.ReadFile(filepath.Join(dir, "pkg/cluster/internal/loadbalancer/const.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), `const Image = "`+balancerImage+`"`) {
		t.Errorf("kind's load balancer is not %s", balancerImage)
	}
}

// kindModule returns the folder with kind's source.
func kindModule(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestLineMerger checks that a line arrives in one piece, however it was read.
func TestLineMerger(t *testing.T) {
	var got sink
	m := &lineMerger{to: &got}
	a, b := &lines{merger: m}, &lines{merger: m}
	for _, write := range []struct {
		to   *lines
		text string
	}{{a, "a1\na"}, {b, "b1"}, {a, "2\n"}, {b, "\nb2\n"}} {
		if n, err := write.to.Write([]byte(write.text)); n != len(write.text) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if want := "a1\na2\nb1\nb2\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

// TestBaseImage checks that everything on the nodes of the control plane, except API servers, is as old as the oldest
// API server.
func TestBaseImage(t *testing.T) {
	for name, tc := range map[string]struct {
		version string
		others  []Worker
		want    string
	}{
		"one":         {"1.37.1", nil, "kindest/node:v1.37.1"},
		"same":        {"1.37.1", make([]Worker, 2), "kindest/node:v1.37.1"},
		"older":       {"1.37.1", []Worker{{Version: "1.36.3"}, {Version: "1.37.1"}}, "kindest/node:v1.36.3"},
		"first older": {"1.36.3", []Worker{{Version: "1.37.1"}, {Version: "1.37.1"}}, "kindest/node:v1.36.3"},
	} {
		o, err := Options{Version: tc.version, ControlPlanes: tc.others, Workers: make([]Worker, 1)}.complete()
		if err != nil {
			t.Fatal(err)
		}
		if got := o.baseImage(); got != tc.want || o.Workers[0].Image != tc.want {
			t.Errorf("%s: the control plane has %s, the worker %s, want %s", name, got, o.Workers[0].Image, tc.want)
		}
	}
}

// TestMemory checks that too little memory is an error for the user before anything starts.
func TestMemory(t *testing.T) {
	available, known := clusters.AvailableMemory()
	if !known {
		t.Skip("this machine does not say how much memory it has")
	}
	enough := Options{}
	if err := enough.checkMemory(); (err == nil) != (available >= controlPlaneBytes) {
		t.Errorf("%d MiB available: %v", available>>20, err)
	}
	tooMany := Options{ControlPlanes: make([]Worker, available/controlPlaneBytes)}
	err := tooMany.checkMemory()
	if _, isUsage := errors.AsType[*usage.Error](err); !isUsage {
		t.Errorf("got %v, want that it needs more memory", err)
	}
}
