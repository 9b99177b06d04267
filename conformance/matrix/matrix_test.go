package matrix

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
)

func names(cells []server.Options) string {
	var all []string
	for _, c := range cells {
		all = append(all, c.Cell.Name)
	}
	return strings.Join(all, " ")
}

func TestCells(t *testing.T) {
	tests := []struct {
		name       string
		matrix     Matrix
		want, fail string
	}{
		{name: "one", matrix: Matrix{Kubernetes: []string{"1.37"}, Gates: ParseGates("on")}, want: "1.37-gate-on"},
		{name: "patch version", matrix: Matrix{Kubernetes: []string{"v1.37"}, Gates: ParseGates("default")}, want: "1.37-gate-default"},
		{name: "both", matrix: Matrix{Kubernetes: []string{"1.36", "1.37"}, Gates: ParseGates("both")}, want: "1.36-gate-on 1.36-gate-off 1.37-gate-on 1.37-gate-off"},
		{name: "both where there is no gate", matrix: Matrix{Kubernetes: []string{"1.34"}, Gates: ParseGates("both")}, want: "1.34-gate-absent"},
		{name: "all", matrix: Matrix{Kubernetes: []string{"1.34", "1.37"}, Gates: ParseGates("all")}, want: "1.34-gate-absent 1.37-gate-off 1.37-gate-on 1.37-gate-default"},
		{name: "a list of states", matrix: Matrix{Kubernetes: []string{"1.37"}, Gates: ParseGates("on, default")}, want: "1.37-gate-on 1.37-gate-default"},
		{name: "all, emulated", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.34", Gates: ParseGates("all")}, want: "1.37-as-1.34-gate-absent"},
		{name: "default where there is no gate", matrix: Matrix{Kubernetes: []string{"1.34"}, Gates: ParseGates("default")}, want: "1.34-gate-default"},
		{name: "absent where there is a gate", matrix: Matrix{Kubernetes: []string{"1.33", "1.36"}, Gates: ParseGates("absent")}, fail: "Kubernetes 1.36 has the feature gate"},
		{name: "off where there is no gate", matrix: Matrix{Kubernetes: []string{"1.34"}, Gates: ParseGates("off")}, fail: "its state is absent or default"},
		{name: "a state twice", matrix: Matrix{Kubernetes: []string{"1.37"}, Gates: ParseGates("on,on")}, fail: "1.37-gate-on is named twice"},
		{name: "a version twice", matrix: Matrix{Kubernetes: []string{"1.37", "v1.37"}, Gates: ParseGates("on")}, fail: "1.37-gate-on is named twice"},
		{name: "emulation", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.35", Gates: ParseGates("on")}, want: "1.37-as-1.35-gate-on"},
		{name: "emulated version without the gate", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.34", Gates: ParseGates("on")}, fail: "no feature gate"},
		{name: "on where there is no gate", matrix: Matrix{Kubernetes: []string{"1.33"}, Gates: ParseGates("on")}, fail: "its state is absent or default"},
		{name: "unknown version", matrix: Matrix{Kubernetes: []string{"9.99"}, Gates: ParseGates("on")}, fail: "9.99"},
		{name: "unknown gate setting", matrix: Matrix{Kubernetes: []string{"1.37"}, Gates: ParseGates("maybe")}, fail: "not one of on, off, default, absent, both, all"},
		{name: "too old to be emulated", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.33", Gates: ParseGates("on")}, fail: "can emulate 1.34 to 1.37"},
		{name: "newer than the binary", matrix: Matrix{Kubernetes: []string{"1.36"}, Emulate: "1.37", Gates: ParseGates("on")}, fail: "can emulate 1.33 to 1.36"},
		{name: "emulation that is no version", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "new", Gates: ParseGates("on")}, fail: "can emulate"},
		{name: "no version", matrix: Matrix{Gates: ParseGates("on")}, fail: "no Kubernetes version is named"},
		{name: "older nodes", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, Nodes: []string{"1.34", "1.36"}, Gates: ParseGates("on")}, want: "kind-1.37-nodes-1.34-1.36-gate-on"},
		{name: "nodes that are too old", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, Nodes: []string{"1.33"}, Gates: ParseGates("on")}, fail: "a kubelet may be at most 3 minors older"},
		{name: "nodes that are too new", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.36", "1.37"}, Nodes: []string{"1.37"}, Gates: ParseGates("on")}, fail: "with an API server of 1.36.3: a kubelet must not be newer"},
		{name: "nodes of an unknown version", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, Nodes: []string{"2.0"}, Gates: ParseGates("on")}, fail: "2.0"},
		{name: "nodes where there are none", matrix: Matrix{Kubernetes: []string{"1.37"}, Nodes: []string{"1.36"}, Gates: ParseGates("on")}, fail: "clusters of the provider local have no nodes"},
		{name: "several API servers", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, ControlPlanes: []string{"1.36", "1.36"}, Gates: ParseGates("on")}, want: "kind-1.37-control-planes-1.36-1.36-gate-on"},
		{name: "API servers too far apart", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, ControlPlanes: []string{"1.36", "1.35"}, Gates: ParseGates("on")}, fail: "at most 1 minor may be between them"},
		{name: "a node newer than one API server", matrix: Matrix{Provider: "kind", Kubernetes: []string{"1.37"}, ControlPlanes: []string{"1.36", "1.36"}, Nodes: []string{"1.37"}, Gates: ParseGates("on")}, fail: "a kubelet must not be newer"},
		{name: "several API servers where there are no nodes", matrix: Matrix{Kubernetes: []string{"1.37"}, ControlPlanes: []string{"1.37", "1.37"}, Gates: ParseGates("on")}, fail: "clusters of the provider local have no nodes"},
		{name: "defaults kept", matrix: Matrix{Kubernetes: []string{"1.37"}, Gates: ParseGates("on,default"), Unchanged: true}, want: "1.37-unchanged-gate-on 1.37-unchanged-gate-default"},
		{name: "unknown provider", matrix: Matrix{Provider: "cloud", Kubernetes: []string{"1.37"}, Gates: ParseGates("on")}, fail: `unknown provider "cloud"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.matrix.Provider == "" {
				test.matrix.Provider = "local"
			}
			cells, err := test.matrix.Cells()
			if test.fail != "" {
				if err == nil || !strings.Contains(err.Error(), test.fail) {
					t.Fatalf("error %v, want %q", err, test.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := names(cells); got != test.want {
				t.Errorf("cells %s, want %s", got, test.want)
			}
		})
	}
}

const head = "apiVersion: authzconf.dev/v1alpha1\nkind: Matrix\n"

func TestLoad(t *testing.T) {
	tests := []struct{ name, text, want, fail string }{
		{
			name: "real and emulated",
			text: head + "cells:\n  - {kubernetes: [\"1.33\"], gate: [absent]}\n  - {kubernetes: [\"1.37\"], emulate: [\"1.35\", \"1.36\"], gate: [off, on]}\n",
			want: "1.33-gate-absent 1.37-as-1.35-gate-off 1.37-as-1.35-gate-on 1.37-as-1.36-gate-off 1.37-as-1.36-gate-on",
		},
		{name: "defaults kept", text: head + "cells:\n  - {kubernetes: [\"1.37\"], gate: [default]}\n  - {kubernetes: [\"1.37\"], gate: [default], unchanged: true}\n", want: "1.37-gate-default 1.37-unchanged-gate-default"},
		{name: "unknown field", text: head + "cells:\n  - kubernetes: [\"1.33\"]\n    gates: [absent]\n", fail: `m.yaml:5:5: unknown field "gates"`},
		{name: "no YAML", text: "a: [", fail: "m.yaml:"},
		{name: "another kind", text: "apiVersion: authzconf.dev/v1alpha1\nkind: List\n", fail: `m.yaml:2:7: kind must be Matrix, not "List"`},
		{name: "another version", text: "apiVersion: v2\nkind: Matrix\n", fail: "m.yaml:1:13: apiVersion must be"},
		{name: "no cells", text: head, fail: "there are no cells"},
		{name: "no gate", text: head + "cells:\n  - {kubernetes: [\"1.33\"]}\n", fail: "m.yaml:4:6: gate is missing"},
		{name: "no version", text: head + "cells:\n  - {gate: [absent]}\n", fail: "m.yaml:4:6: no Kubernetes version is named"},
		{name: "a state that there is not", text: head + "cells:\n  - {kubernetes: [\"1.37\"], gate: [on]}\n  - kubernetes: [\"1.33\"]\n    gate: [on]\n", fail: "m.yaml:5:5: Kubernetes 1.33 has no feature gate"},
		{name: "a version that there is not", text: head + "cells:\n  - {kubernetes: [\"9.99\"], gate: [on]}\n", fail: `m.yaml:4:6: Kubernetes version "9.99"`},
		{name: "twice", text: head + "cells:\n  - {kubernetes: [\"1.37\"], gate: [on]}\n  - {kubernetes: [\"1.36\", \"1.37\"], gate: [all]}\n", fail: "m.yaml:5:6: the cell 1.37-gate-on is named twice"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cells, err := Load("m.yaml", []byte(test.text), Matrix{Provider: "local"})
			if test.fail != "" {
				if err == nil || !strings.Contains(err.Error(), test.fail) {
					t.Fatalf("error %v, want %q", err, test.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := names(cells); got != test.want {
				t.Errorf("cells %s, want %s", got, test.want)
			}
		})
	}
}

// loadCells returns the cells of a matrix file of this repository.
func loadCells(t *testing.T, path, provider string) []server.Options {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	cells, err := Load(path, data, Matrix{Provider: provider})
	if err != nil {
		t.Fatal(err)
	}
	return cells
}

// TestFileOfCI holds ci/matrix.yaml to what there is: a version that is new and
// not in it would never be run.
func TestFileOfCI(t *testing.T) {
	cells := loadCells(t, "ci/matrix.yaml", "local")
	all := Matrix{Provider: "local", Kubernetes: Minors(), Gates: ParseGates("all")}
	want, err := all.Cells()
	if err != nil {
		t.Fatal(err)
	}
	all.Kubernetes = []string{Newest()}
	emulated, err := all.Emulating(Emulated())
	if err != nil {
		t.Fatal(err)
	}
	unchanged := Matrix{Provider: "local", Kubernetes: Minors()[len(Minors())-2:], Gates: ParseGates("default"), Unchanged: true}
	newest, err := unchanged.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(cells), names(slices.Concat(want, emulated, newest)); got != want {
		t.Errorf("cells %s\nwant  %s", got, want)
	}
}

// TestSkewFileOfCI wants nodes of all three minors before the newest in ci/skew.yaml.
func TestSkewFileOfCI(t *testing.T) {
	cells := loadCells(t, "ci/skew.yaml", "kind")
	minors := Minors()
	for _, minor := range minors[len(minors)-4 : len(minors)-1] {
		isTried := slices.ContainsFunc(cells, func(o server.Options) bool {
			return o.Release.Minor == Newest() && strings.Contains(o.Cell.Nodes, minor+".")
		})
		if !isTried {
			t.Errorf("no cell has an API server of %s and a node of %s", Newest(), minor)
		}
	}
}

// parseCells returns the cells that a command line asks for.
func parseCells(t *testing.T, line string) ([]server.Options, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var f Flags
	f.Register(flags)
	f.RegisterMore(flags)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return f.Cells(product.NewInvocation(nil, "test", io.Discard))
}

// TestControlPlanesFlags: the number of API servers and their versions have to agree.
func TestControlPlanesFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--provider kind --control-planes 3":                                       "kind-1.37-control-planes-1.37-1.37-gate-default",
		"--provider kind --control-planes 1":                                       "kind-1.37-gate-default",
		"--provider kind --control-planes-kubernetes 1.36,1.37":                    "kind-1.37-control-planes-1.36-1.37-gate-default",
		"--provider kind --control-planes 3 --control-planes-kubernetes 1.36,1.36": "kind-1.37-control-planes-1.36-1.36-gate-default",
		"--provider kind --control-planes 2":                                       "error: 2 control planes: expected 1 or 3",
		"--provider kind --control-planes-kubernetes 1.36":                         "error: 2 control planes: expected 1 or 3",
		"--provider kind --control-planes 3 --control-planes-kubernetes 1.36":      "error: --control-planes-kubernetes has 1 version beside that of --kubernetes",
		"--provider kind --control-planes 3 --kubernetes 1.36,1.37":                "kind-1.36-control-planes-1.36-1.36-gate-default kind-1.37-control-planes-1.37-1.37-gate-default",
	} {
		cells, err := parseCells(t, line)
		got := names(cells)
		if err != nil {
			got = "error: " + err.Error()
		}
		isWanted := got == want
		if strings.HasPrefix(want, "error: ") {
			isWanted = strings.HasPrefix(got, want)
		}
		if !isWanted {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// TestUnchangedFlag: with --gate its cells come beside those of --gate, and alone they are the only ones.
func TestUnchangedFlag(t *testing.T) {
	for line, want := range map[string]string{
		"":                                "1.37-gate-default",
		"--unchanged default":             "1.37-unchanged-gate-default",
		"--gate both --unchanged default": "1.37-gate-on 1.37-gate-off 1.37-unchanged-gate-default",
		"--unchanged both --emulate 1.36": "1.37-as-1.36-unchanged-gate-on 1.37-as-1.36-unchanged-gate-off",
	} {
		cells, err := parseCells(t, line)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(cells); got != want {
			t.Errorf("%q: cells %s, want %s", line, got, want)
		}
	}
}
