// Package explore sends generated cases to real API servers and judges what they do by the model: a disagreement means
// that one of the two is wrong. Most cases have their grants answered by the recorder's first point, which takes no
// time; one in rbacShare has them as RBAC objects, so that the rules of RBAC stay part of what is looked at.
package explore

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// Product is generated cases against the model.
var Product = product.Product{Name: "explore", Command: "explore", New: newFlags}

// flags are those of the product.
type flags struct {
	matrix   matrix.Matrix
	binaries local.Binaries
	cases    int
}

func newFlags(set *pflag.FlagSet) product.Flags {
	f := &flags{}
	set.IntVar(&f.cases, "cases", 1000, "how many cases each version and gate gets")
	set.StringSliceVar(&f.matrix.Kubernetes, "kubernetes", []string{matrix.Newest()}, "versions to explore, each "+local.VersionsHelp())
	f.matrix.Gates = matrix.Gates{scenarios.GateOn}
	set.Var(&f.matrix.Gates, "gate", "ConstrainedImpersonation: on, off, default, absent, both (on and off) or all")
	f.binaries.RegisterFlags(set)
	f.binaries.RegisterSource(set)
	f.binaries.RegisterAPIServers(set)
	return f
}

// Plan implements product.Flags.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.cases < 1 {
		return nil, fmt.Errorf("--cases %d: the number of cases is at least 1", f.cases)
	}
	f.binaries.Progress = i.Messages
	f.matrix.Provider, f.matrix.Binaries = local.Name, &f.binaries
	m := f.matrix
	var err error
	if m.Kubernetes, err = f.binaries.ResolveFlag(context.Background(), i.Fact, m.Kubernetes...); err != nil {
		return nil, err
	}
	cells, err := m.Cells()
	if err != nil {
		return nil, err
	}
	namedCells := slices.Clone(cells)
	for _, c := range cells {
		for _, at := range []place{{start: 1}, {server: 1}, {server: 1, start: 1}} {
			namedCells = append(namedCells, nameAt(c, at))
		}
	}
	if err := server.CheckAPIServers(namedCells); err != nil {
		return nil, err
	}
	return NewPlan(Options{Cells: cells, Cases: f.cases, Seed: i.Seed}), nil
}
