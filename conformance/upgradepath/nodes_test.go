package upgradepath

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
)

// TestNodes follows the versions of the nodes along paths, and refuses what the version skew policy forbids.
func TestNodes(t *testing.T) {
	for _, c := range []struct {
		path, provider string
		nodes          []string
		want           []string // the versions of the workers on each stage, as the witness is asked for them
		fail           string
	}{
		{path: "1.36,1.37,nodes=1.37,nodes=1.36,1.36", provider: "kind", want: []string{"", "", "1.37", "1.36", "1.36"}},
		{path: "1.36,1.37,nodes=1.35", provider: "kind", nodes: []string{"1.34", "1.35"}, want: []string{"1.34,1.35", "1.34,1.35", "1.35,1.35"}},
		{path: "1.37,1.36", provider: "kind", fail: "stage 2, 1.36: a node of Kubernetes 1.37"},
		{path: "1.36,nodes=1.37", provider: "kind", fail: "stage 2, nodes=1.37: a node of Kubernetes 1.37"},
		{path: "1.33,1.36,1.37", provider: "kind", fail: "stage 3, 1.37: a node of Kubernetes 1.33"},
		{path: "1.36,nodes=1.35", fail: "stage 2: clusters of the provider local have no nodes to replace: expected --provider kind"},
	} {
		t.Run(c.path+" "+c.provider, func(t *testing.T) {
			p, err := Parse(c.path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			targets, err := p.Targets(matrix.Matrix{Provider: c.provider, Nodes: c.nodes, Binaries: &local.Binaries{}})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Fatalf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range targets {
				if got := minors(o.Cell.Nodes); got != c.want[i] {
					t.Errorf("stage %d: nodes %s, want %s", i+1, got, c.want[i])
				}
			}
		})
	}
}

// minors returns versions separated by commas without their patches.
func minors(versions string) string {
	if versions == "" {
		return ""
	}
	list := strings.Split(versions, ",")
	for i, v := range list {
		list[i] = v[:strings.LastIndex(v, ".")]
	}
	return strings.Join(list, ",")
}

// TestLoadNodes has a file whose stages replace nodes.
func TestLoadNodes(t *testing.T) {
	for text, fail := range map[string]string{
		`{kubernetes: "1.37"}, {nodes: "1.37"}`:                      "",
		`{kubernetes: "1.37"}, {kubernetes: "1.37", nodes: "1.37"}`:  "p.yaml:2:33: stage 2: nodes are replaced on a stage of their own",
		`{kubernetes: "1.37"}, {nodes: "1.37", fault: restart-etcd}`: "p.yaml:2:33: stage 2: nodes are replaced on a stage of their own",
	} {
		p, err := Load("p.yaml", []byte("description: nodes\nstages: ["+text+"]\n"), Options{})
		switch {
		case fail == "" && err != nil,
			fail != "" && (err == nil || !strings.Contains(err.Error(), fail)):
			t.Errorf("%s: %v, want %s", text, err, fail)
		case fail == "" && p.Stages[1].Kubernetes != "1.37":
			t.Errorf("%+v", p.Stages)
		}
	}
}

// TestSeveralServers: a path for high availability replaces all API servers of a cluster with several, and needs such a cluster.
func TestSeveralServers(t *testing.T) {
	three := []string{"", ""}
	for name, c := range map[string]struct {
		base  matrix.Matrix
		ha    bool
		fault Fault
		count int
		fail  string
	}{
		"local":              {ha: true, count: 2},
		"kind":               {base: matrix.Matrix{Provider: "kind", ControlPlanes: three}, ha: true, count: 3},
		"together":           {base: matrix.Matrix{Provider: "kind", ControlPlanes: three}, count: 1},
		"one of kind":        {base: matrix.Matrix{Provider: "kind"}, ha: true, fail: "needs several API servers: expected --control-planes 3"},
		"others' versions":   {base: matrix.Matrix{Provider: "kind", ControlPlanes: []string{"1.36", "1.36"}}, fail: "expected --control-planes alone"},
		"three of local":     {base: matrix.Matrix{ControlPlanes: three}, fail: "--control-planes 3: clusters of the provider local have one node at most"},
		"killed":             {base: matrix.Matrix{Provider: "kind"}, fault: KillAPIServer, count: 1},
		"etcd is restarted":  {base: matrix.Matrix{Provider: "kind"}, fault: RestartEtcd, fail: "stage 2: the fault restart-etcd is for --provider local"},
		"webhooks of a kind": {base: matrix.Matrix{Provider: "kind"}, fault: WebhookDown, fail: "stage 2: the fault webhook-down is for --provider local"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse("1.36,1.37", Options{HighAvailability: c.ha})
			if err != nil {
				t.Fatal(err)
			}
			p.Stages[1].Fault = c.fault
			targets, err := p.Targets(c.base)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := p.CountServers(c.base); got != c.count {
				t.Errorf("%d API servers are replaced by themselves, want %d", got, c.count)
			}
			if others := targets[1].ControlPlanes; len(others) != len(c.base.ControlPlanes) {
				t.Errorf("beside the first API server are %v", others)
			}
		})
	}
}
