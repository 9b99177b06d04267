package matrix

import (
	"strings"
	"testing"
)

func TestCells(t *testing.T) {
	tests := []struct {
		name       string
		matrix     Matrix
		want, fail string
	}{
		{name: "one", matrix: Matrix{Kubernetes: []string{"1.37"}, Gate: "on"}, want: "1.37-gate-on"},
		{name: "patch version", matrix: Matrix{Kubernetes: []string{"v1.37"}, Gate: "default"}, want: "1.37-gate-default"},
		{name: "both", matrix: Matrix{Kubernetes: []string{"1.36", "1.37"}, Gate: "both"}, want: "1.36-gate-on 1.36-gate-off 1.37-gate-on 1.37-gate-off"},
		{name: "both where there is no gate", matrix: Matrix{Kubernetes: []string{"1.34"}, Gate: "both"}, want: "1.34-gate-off"},
		{name: "emulation", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.35", Gate: "on"}, want: "1.37-as-1.35-gate-on"},
		{name: "emulated version without the gate", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.34", Gate: "on"}, fail: "no feature gate"},
		{name: "on where there is no gate", matrix: Matrix{Kubernetes: []string{"1.33"}, Gate: "on"}, fail: "use --gate off or default"},
		{name: "unknown version", matrix: Matrix{Kubernetes: []string{"9.99"}, Gate: "on"}, fail: "9.99"},
		{name: "unknown gate setting", matrix: Matrix{Kubernetes: []string{"1.37"}, Gate: "maybe"}, fail: "none of on, off, default, both"},
		{name: "too old to be emulated", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "1.33", Gate: "on"}, fail: "can emulate 1.34 to 1.37"},
		{name: "newer than the binary", matrix: Matrix{Kubernetes: []string{"1.36"}, Emulate: "1.37", Gate: "on"}, fail: "can emulate 1.33 to 1.36"},
		{name: "emulation that is no version", matrix: Matrix{Kubernetes: []string{"1.37"}, Emulate: "new", Gate: "on"}, fail: "can emulate"},
		{name: "no version", matrix: Matrix{Gate: "on"}, fail: "names no version"},
		{name: "unknown provider", matrix: Matrix{Provider: "cloud", Kubernetes: []string{"1.37"}, Gate: "on"}, fail: `unknown provider "cloud"`},
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
			var names []string
			for _, c := range cells {
				names = append(names, c.Cell.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("cells %s, want %s", got, test.want)
			}
		})
	}
}
